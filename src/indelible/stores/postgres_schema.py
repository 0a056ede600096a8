"""The tables of a PostgreSQL store: made once, brought up to date, and looked at before a store is announced.

Owns: the numbered steps, the schema's version, and the checks of server, tables and privileges at opening.
Must never: touch a table that is not ours, or leave a step half done.
Invariant: after `prepare`, the tables are as the steps make them, whoever made them and however many
processes came at once, and this role may do with them what it has to.

A step is a file `migrations/postgres/NNNN_name.sql`. One that a release has shipped is never changed.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import psycopg

from indelible.errors import FormatTooNew, IndelibleError, JournalDamaged, Misuse, StoreUnavailable
from indelible.stores import postgres_faults
from indelible.stores.postgres_place import Place
from indelible.stores.postgres_pool import Connection

VERSION = 1
"""How many steps there are; a test holds it to the files."""
OLDEST_SERVER = 130_000
_LOCK = 0x494E44454C49424C  # "INDELIBL"
_LOCK_WAIT = "30s"

TABLES = ["indelible_meta", "indelible_runs", "indelible_batches", "indelible_snapshots"]
FUNCTIONS = ["indelible_settle", "indelible_append", "indelible_append_many"]

# What `_FOUND` must find, at least; a test holds it to what the steps make.
FORMS = frozenset(
    """
    function indelible_append/12
    function indelible_append_many/13
    function indelible_settle/1
    indelible_batches index (no, last_seq) unique
    indelible_batches.after_seq bigint not null
    indelible_batches.data bytea not null
    indelible_batches.last_seq bigint not null
    indelible_batches.no bigint not null
    indelible_meta index (the_only) unique
    indelible_meta.the_only boolean not null
    indelible_meta.version integer not null
    indelible_runs index (era) where listed
    indelible_runs index (no) unique
    indelible_runs index (run_id) unique
    indelible_runs index (status, era) where listed
    indelible_runs.about bytea
    indelible_runs.agent text
    indelible_runs.begins bigint not null
    indelible_runs.created_at double precision not null
    indelible_runs.deleted boolean not null
    indelible_runs.epoch bigint not null
    indelible_runs.era bigint not null generated
    indelible_runs.head bigint not null
    indelible_runs.lease_until double precision not null
    indelible_runs.listed boolean not null
    indelible_runs.no bigint not null
    indelible_runs.owner text not null
    indelible_runs.run_id text not null
    indelible_runs.status text not null
    indelible_runs.stored_bytes bigint not null
    indelible_runs.touched bigint not null
    indelible_runs.ttl_s double precision not null
    indelible_runs.updated_at double precision not null
    indelible_runs.wake_at double precision
    indelible_snapshots index (no, seq) unique
    indelible_snapshots.data bytea not null
    indelible_snapshots.no bigint not null
    indelible_snapshots.seq bigint not null
    """.strip().replace("    ", "").split("\n")
)  # fmt: skip

_SERVER = """
SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), current_setting('fsync'),
    current_setting('transaction_read_only')"""
_VERSION = "SELECT version FROM indelible_meta"
# By a look at the rows of pg_class: to_regclass() may still go by what this session knew before it waited for the lock.
_EXISTS = "SELECT EXISTS (SELECT FROM pg_class WHERE relname = 'indelible_meta' AND pg_table_is_visible(oid))"
_BEGIN_STEP = "SELECT set_config('lock_timeout', %s, true), pg_advisory_xact_lock(%s)"
_SET_VERSION = """
INSERT INTO indelible_meta (version) VALUES (%s) ON CONFLICT (the_only) DO UPDATE SET version = excluded.version"""
_FOUND = """
SELECT concat(name, '.', attname, ' ', format_type(atttypid, NULL), CASE WHEN attnotnull THEN ' not null' END,
    CASE WHEN attgenerated <> '' THEN ' generated' END)
FROM unnest(%(tables)s::text[]) AS name
JOIN pg_attribute ON attrelid = to_regclass(name) AND attnum > 0 AND NOT attisdropped
UNION ALL
SELECT concat(name, ' index (', (SELECT string_agg(pg_get_indexdef(indexrelid, k, true), ', ' ORDER BY k)
    FROM generate_series(1, indnkeyatts) AS k), ')', CASE WHEN indisunique THEN ' unique' END,
    ' where ' || pg_get_expr(indpred, indrelid))
FROM unnest(%(tables)s::text[]) AS name JOIN pg_index ON indrelid = to_regclass(name) AND indisvalid AND indisready
UNION ALL
SELECT concat('function ', name, '/', pronargs)
FROM unnest(%(functions)s::text[]) AS name JOIN pg_proc ON proname = name AND pg_function_is_visible(pg_proc.oid)"""
_LACKING = """
SELECT concat(privilege, ' ON ', name)
FROM unnest(%(tables)s::text[]) AS name, unnest(%(rights)s::text[]) AS privilege
WHERE NOT has_table_privilege(to_regclass(name), privilege)
UNION ALL
SELECT 'USAGE ON SEQUENCE indelible_touches'
WHERE %(writes)s AND NOT coalesce(has_sequence_privilege(to_regclass('indelible_touches'), 'USAGE'), false)
UNION ALL
SELECT concat('EXECUTE ON FUNCTION ', name)
FROM unnest(%(functions)s::text[]) AS name JOIN pg_proc ON proname = name AND pg_function_is_visible(pg_proc.oid)
WHERE %(writes)s AND NOT has_function_privilege(pg_proc.oid, 'EXECUTE')"""


def steps() -> list[bytes]:
    """The SQL of every step, the first one first."""
    folder = files("indelible.stores.migrations").joinpath("postgres")
    named = sorted((file.name, file) for file in folder.iterdir() if file.name.endswith(".sql"))
    return [file.read_bytes() for _, file in named]


def prepare(con: Connection, place: Place, *, full: bool, readonly: bool, scripts: list[bytes] | None = None) -> None:
    """Check the server, make the tables or bring them up to date, and check what is there then.

    Raises `Misuse`, `StoreUnavailable`, `FormatTooNew` or `JournalDamaged`.
    """
    try:
        _check_server(con, place, full=full, readonly=readonly)
        version = VERSION if scripts is None else len(scripts)
        found = _inspect(con, place, version)
        if found < version and readonly:
            raise Misuse(
                f"{place.name} has schema {found or 'none'}, and a read-only store is not brought up to date",
                hint="open it once with readonly=False",
                store=place.url,
            )
        if found < version:
            _migrate(con, place, scripts or steps())
        _verify(con, place, readonly)
    except psycopg.Error as error:
        raise postgres_faults.translate(error, place) from error


def _check_server(con: Connection, place: Place, *, full: bool, readonly: bool) -> None:
    version, encoding, fsync, read_only = _row(con, _SERVER)
    if version < OLDEST_SERVER:
        raise Misuse(
            f"{place.name} runs PostgreSQL {version // 10_000}; 13 is the oldest that serves", hint="upgrade it"
        )
    if encoding != "UTF8":
        raise Misuse(
            f"{place.name} is encoded in {encoding}, which cannot hold every name",
            hint="createdb -E UTF8 -T template0 indelible",
            store=place.url,
        )
    if readonly:
        return
    if read_only == "on":
        raise postgres_faults.translate(psycopg.errors.ReadOnlySqlTransaction(), place)
    if full and fsync == "off":
        raise StoreUnavailable(
            f"{place.name} runs with fsync=off: what it acknowledges is lost with its machine",
            hint="ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();    (or open with durability='os')",
            store=place.url,
        )


def _inspect(con: Connection, place: Place, version: int) -> int:
    """The version of the schema, 0 where there is none."""
    if not _row(con, _EXISTS)[0]:
        return 0
    try:
        rows = con.execute(_VERSION).fetchall()
    except psycopg.errors.UndefinedColumn as error:
        raise _foreign(place, "indelible_meta") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise _lacking(place, ["SELECT ON indelible_meta"]) from error
    found = rows[0][0] if len(rows) == 1 else None
    if not isinstance(found, int) or found < 1:
        raise _foreign(place, "indelible_meta")
    if found > version:
        raise FormatTooNew(
            f"{place.name} has schema {found}, this release knows {version}",
            hint="pip install --upgrade indelible",
            store=place.url,
            found=found,
            known=version,
        )
    return found


def _migrate(con: Connection, place: Place, scripts: list[bytes]) -> None:
    """In one transaction, and one process at a time. If it dies in the middle, the server undoes all of it."""
    try:
        with con.transaction():
            con.execute(_BEGIN_STEP, (_LOCK_WAIT, _LOCK))
            # Again, now that nobody else can be at it.
            for number in range(_inspect(con, place, len(scripts)), len(scripts)):
                con.execute(scripts[number])
            con.execute(_SET_VERSION, (len(scripts),))
    except (psycopg.errors.DuplicateTable, psycopg.errors.WrongObjectType) as error:
        raise _foreign(place, "indelible_...") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreUnavailable(
            f"{place.name}: this role may not make the store's tables",
            hint="GRANT CREATE ON SCHEMA public TO role;    (or let a role that may open the store once)",
            store=place.url,
        ) from error


def _verify(con: Connection, place: Place, readonly: bool) -> None:
    found = {row[0] for row in con.execute(_FOUND, {"tables": TABLES, "functions": FUNCTIONS})}
    missing = sorted(FORMS - found)
    if missing:
        raise JournalDamaged(
            f"{place.name}: {missing[0]} is missing or was changed",
            hint="restore the tables from a backup, or give the store a schema of its own",
            store=place.url,
        )
    rights = ["SELECT"] if readonly else ["SELECT", "INSERT", "UPDATE", "DELETE"]
    asked: dict[str, Any] = {
        "tables": TABLES[1:], "functions": FUNCTIONS, "rights": rights, "writes": not readonly,
    }  # fmt: skip
    lacking = [row[0] for row in con.execute(_LACKING, asked)]
    if lacking:
        raise _lacking(place, lacking)


def _lacking(place: Place, rights: list[str]) -> IndelibleError:
    return StoreUnavailable(
        f"{place.name}: this role lacks {rights[0]}" + (f" and {len(rights) - 1} more" if len(rights) > 1 else ""),
        hint=f"GRANT {rights[0]} TO role;    (all: docs/stores/postgresql.md; to read only: readonly=True)",
        store=place.url,
    )


def _foreign(place: Place, table: str) -> IndelibleError:
    return Misuse(
        f"{place.name}: there is a table {table} that is not ours; it was left as it is",
        hint="give the store a database or a schema of its own: ALTER ROLE role SET search_path = indelible",
        store=place.url,
    )


def _row(con: Connection, query: Any) -> tuple[Any, ...]:
    row = con.execute(query).fetchone()
    assert row is not None
    return row
