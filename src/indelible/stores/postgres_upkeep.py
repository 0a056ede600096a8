"""What there is to know about a PostgreSQL store, and giving space back.

Owns: the questions behind `Upkeep.facts`, and `reclaim`.
Must never: change a row; wait for a lock that others need.
Invariant: what is told is what the server says of itself now.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from indelible.errors import StoreUnavailable
from indelible.stores.base import Fact
from indelible.stores.postgres_place import Place
from indelible.stores.postgres_pool import Connection
from indelible.stores.postgres_schema import TABLES

FULL_TRIES = 50
"""How often to ask for a table that others are using just now; none of them is made to wait for that."""
WASTE_BYTES = 1 << 20
WASTE_PART = 0.2

_NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"
_SETTINGS = """
SELECT current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'), current_setting('default_transaction_isolation'),
    current_setting('autovacuum'), pg_is_in_recovery(), pg_backend_pid(), current_setting('max_connections')::int,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
    (SELECT count(*) FROM pg_stat_replication), current_setting('synchronous_standby_names'),
    current_schema(), current_user::text,
    (SELECT pg_get_userbyid(relowner)::text FROM pg_class WHERE oid = to_regclass('indelible_batches'))"""
_SIZES = """
SELECT name, pg_total_relation_size(to_regclass(name)), coalesce(n_dead_tup, 0), coalesce(n_live_tup, 0)
FROM unnest(%s::text[]) AS name LEFT JOIN pg_stat_all_tables ON relid = to_regclass(name)"""
_COUNTS = """
SELECT count(*) FILTER (WHERE listed), count(*) FILTER (WHERE deleted), coalesce(sum(stored_bytes), 0)::int8
FROM indelible_runs"""
_STRAY_BATCHES = """
SELECT count(*) FROM indelible_batches AS batch
WHERE NOT EXISTS (SELECT FROM indelible_runs AS run WHERE run.no = batch.no AND NOT deleted)"""
_STRAY_SNAPSHOTS = """
SELECT count(*) FROM indelible_snapshots AS one
WHERE NOT EXISTS (SELECT FROM indelible_runs AS run WHERE run.no = one.no AND NOT deleted)"""
_CUT_SHORT = """
SELECT count(*), min(run_id) FROM indelible_runs AS run
WHERE NOT deleted AND head <> coalesce(
    (SELECT max(last_seq) FROM indelible_batches AS batch WHERE batch.no = run.no), begins)"""
_OWNED = """
SELECT pg_has_role(relowner, 'USAGE'), pg_get_userbyid(relowner)::text
FROM pg_class WHERE oid = to_regclass('indelible_batches')"""
_WASTE = """
SELECT pg_total_relation_size(to_regclass('indelible_batches')),
    (SELECT coalesce(sum(octet_length(data)), 0) + 120 * count(*) FROM indelible_batches)::int8,
    pg_total_relation_size(to_regclass('indelible_snapshots')),
    (SELECT coalesce(sum(octet_length(data)), 0) + 120 * count(*) FROM indelible_snapshots)::int8"""
_FULL_BATCHES = "VACUUM (FULL, SKIP_LOCKED) indelible_batches"
_FULL_SNAPSHOTS = "VACUUM (FULL, SKIP_LOCKED) indelible_snapshots"
_PLAIN = "VACUUM (ANALYZE, SKIP_LOCKED) indelible_runs, indelible_batches, indelible_snapshots"


def now(con: Connection) -> float:
    """The time on the server's clock, in epoch seconds."""
    return float(_row(con, _NOW)[0])


def facts(con: Connection) -> Iterator[Fact]:
    """What the server is, what it guarantees, and whether the tables fit together."""
    yield from _server(con)
    yield from _rows(con)
    yield from _wholeness(con)


def reclaim(con: Connection, place: Place) -> int:
    """Give space back to the server's system, and return how many bytes that was. Raises `StoreUnavailable`.

    A plain VACUUM frees space for later rows and cuts off empty ends. Where much of a table is still empty after it,
    the table is written anew (VACUUM FULL), for which it is locked: appends wait so long, and none is lost.
    """
    mine, owner = _row(con, _OWNED)
    if not mine:
        raise StoreUnavailable(
            f"{place.name}: only the owner of the tables, {owner}, can give their space back",
            hint=f"run it as {owner}, or GRANT {owner} TO this role",
            store=place.url,
        )
    before = _size(con)
    con.execute(_PLAIN)
    batches, batches_live, snapshots, snapshots_live = _row(con, _WASTE)
    if _is_waste(batches, batches_live):
        _write_anew(con, _FULL_BATCHES)
    if _is_waste(snapshots, snapshots_live):
        _write_anew(con, _FULL_SNAPSHOTS)
    return max(0, before - _size(con))


def _is_waste(size: int, live: int) -> bool:
    return size - live > max(WASTE_BYTES, WASTE_PART * size)


def _write_anew(con: Connection, statement: Any) -> None:
    before = _size(con)
    for _ in range(FULL_TRIES):
        con.execute(statement)
        if _size(con) < before:
            return


def _size(con: Connection) -> int:
    return sum(row[1] for row in con.execute(_SIZES, (TABLES,)))


def _server(con: Connection) -> Iterator[Fact]:
    (version, fsync, pages, commits, isolation, vacuums, standby, pid, most, used, replicas, synchronous, schema, role,
     owner) = _row(con, _SETTINGS)  # fmt: skip
    yield Fact("server", f"PostgreSQL {version}")
    lost = "ALTER SYSTEM SET {} = on; SELECT pg_reload_conf();"
    yield _setting("fsync", fsync, "bad", lost.format("fsync"))
    yield _setting("full_page_writes", pages, "bad", lost.format("full_page_writes"))
    if commits == "off":
        yield Fact("synchronous_commit", "off (each transaction of ours sets its own)", "note")
    else:
        yield Fact("synchronous_commit", commits)
    if isolation != "read committed":
        yield Fact("default_transaction_isolation", isolation, "note", "more transactions are tried again than need be")
    yield _setting("autovacuum", vacuums, "bad", lost.format("autovacuum"))
    if standby:
        yield Fact("role of the server", "standby: it takes no writes", "note", "give the primary's host")
    waited = f", commits wait for {synchronous}" if synchronous else ", no commit waits for one"
    yield Fact("replicas", f"{replicas}{waited}" if replicas else "none", "ok" if replicas else "note")
    tight = used > 0.9 * most
    yield Fact("connections", f"{used} of {most}", "note" if tight else "ok", "raise max_connections" if tight else "")
    between = con.info.backend_pid != pid
    yield Fact("pooler", "yes: the session is another one than we were given" if between else "none seen")
    yield Fact("schema", f"{schema}, tables of {owner}, we are {role}")


def _setting(name: str, value: str, verdict: Any, hint: str) -> Fact:
    return Fact(name, value) if value == "on" else Fact(name, value, verdict, hint)


def _rows(con: Connection) -> Iterator[Fact]:
    runs, tombstones, stored = _row(con, _COUNTS)
    yield Fact("runs", f"{runs} and {tombstones} tombstones")
    yield Fact("batches", f"{stored:,} bytes as stored")
    for name, size, dead, live in con.execute(_SIZES, (TABLES[1:],)).fetchall():
        bloated = dead > 10_000 and dead > live
        hint = "VACUUM;    (what keeps autovacuum from it? SELECT * FROM pg_stat_activity ORDER BY xact_start)"
        yield Fact(name, f"{size:,} bytes, {dead} dead rows", "note" if bloated else "ok", hint if bloated else "")


def _wholeness(con: Connection) -> Iterator[Fact]:
    batches, snapshots = _row(con, _STRAY_BATCHES)[0], _row(con, _STRAY_SNAPSHOTS)[0]
    if batches or snapshots:
        yield Fact(
            "orphans", f"{batches} batches and {snapshots} snapshots of no run", "bad", "restore them from a backup"
        )
    else:
        yield Fact("orphans", "none")
    short, first = _row(con, _CUT_SHORT)
    if short:
        hint = f"indelible verify {shlex.quote(first)}"
        yield Fact("journals", f"{short} do not reach their head, one is {first!r}", "bad", hint)
    else:
        yield Fact("journals", "each reaches its head")


def _row(con: Connection, query: Any) -> tuple[Any, ...]:
    row = con.execute(query).fetchone()
    assert row is not None
    return row
