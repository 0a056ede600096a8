"""Opening a PostgreSQL store that cannot be opened, and writing to one that takes nothing: a clear error each."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

import indelible
from indelible.errors import FormatTooNew, IndelibleError, JournalDamaged, Misuse, StoreUnavailable
from indelible.stores import open_store
from indelible.stores.base import Batch, Write
from indelible.stores.patience import Patient
from indelible.stores.postgres import PostgresStore
from indelible.testing.conformance_kit import entries, refused, write
from tests.servers.postgres import PostgresServer, server

SECRET = "s3cret"


@pytest.fixture
def url() -> str:
    return server().database()


def told(error: IndelibleError, *words: str) -> None:
    """The error and all that stands behind it say these words, and no secret."""
    text, cause = f"{error} {error.ids}", error.__cause__
    while cause is not None:
        text, cause = f"{text} {cause}", cause.__cause__
    assert SECRET not in text
    assert error.hint
    for word in words:
        assert word in str(error), str(error)


def role_for(url: str, *grants: str, options: str = "") -> str:
    """The URL of a new role with a password, to the same database."""
    name = url.rpartition("/")[2]
    role = f"role_{name}_{len(grants)}"
    server().run(f"CREATE ROLE {role} LOGIN PASSWORD '{SECRET}' {options}", url=url)
    server().run(*(f"GRANT {grant} TO {role}" for grant in grants), url=url)
    return server().url(name, role, SECRET)


@contextmanager
def another_server(*options: str, file_limit: int | None = None) -> Iterator[PostgresServer]:
    other = PostgresServer(*options)
    try:
        other.start(file_limit=file_limit)
        yield other
    finally:
        other.close()


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@host:port/db",
        f"postgresql://me:x@{SECRET}@host/db",
        f"postgresql://me:x/{SECRET}@host/db",
        f"postgresql://me:12/x?{SECRET}@host/db",
        f"postgresql://me:12/{SECRET}@host/db",
        f"postgresql://me:{SECRET}@[::1/db",
        f"postgresql://me:{SECRET}@host/db?no_such_option=1",
        f"postgresql://me:%zz{SECRET}@host/db",
    ],
)
def test_a_url_that_cannot_be_read(url: str) -> None:
    """And does not show what may be a part of a password."""
    told(refused(Misuse, lambda: PostgresStore(url)), "postgresql://")


def test_a_store_says_how_to_open_it_again_without_its_password(url: str) -> None:
    role = role_for(url, "CREATE, USAGE ON SCHEMA public")
    for given in (role, f"{role}?connect_timeout=3", f"postgresql:///?{role_as_options(role)}"):
        with closing(PostgresStore(given)) as store:
            assert SECRET not in store.url
            assert isinstance(store, PostgresStore)
            store.claim("a", "somebody", 30.0)
            again = store.url
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PGPASSWORD", SECRET)
            with closing(PostgresStore(again)) as same:
                assert [entry.run_id for entry in entries(same)] == ["a"]
                assert same.url == again


def role_as_options(url: str) -> str:
    given = psycopg.conninfo.conninfo_to_dict(url)
    return "&".join(f"{key}={value}" for key, value in given.items())


def test_it_is_opened_by_its_url(url: str) -> None:
    store = open_store(url, clock=lambda: 0.0, pause=lambda _s: None)
    assert isinstance(store, Patient)
    assert isinstance(store.store, PostgresStore)
    store.close()
    with indelible.open(url):
        pass


def test_nobody_listens() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    error = refused(StoreUnavailable, lambda: PostgresStore(f"postgresql://me:{SECRET}@127.0.0.1:{free}/db"))
    told(error, f"127.0.0.1:{free}/db", "nobody listens", "pg_isready")


def test_a_host_that_does_not_exist() -> None:
    told(refused(StoreUnavailable, lambda: PostgresStore("postgresql://nowhere.invalid/db")), "host name", "nowhere")


def test_a_socket_that_does_not_exist() -> None:
    told(refused(StoreUnavailable, lambda: PostgresStore("postgresql:///db?host=/no/such")), "socket", "/no/such")


def test_somebody_listens_who_never_answers() -> None:
    """Bounded by connect_timeout, which the URL may set."""
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        port = mute.getsockname()[1]
        slow = f"postgresql://127.0.0.1:{port}/db?connect_timeout=2"
        told(refused(StoreUnavailable, lambda: PostgresStore(slow)), "does not answer")


def test_a_wrong_password_and_none(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    role = role_for(url)
    told(
        refused(StoreUnavailable, lambda: PostgresStore(role.replace(SECRET, "wrong"))), "wrong password", "PGPASSWORD"
    )
    told(refused(StoreUnavailable, lambda: PostgresStore(role.replace(f":{SECRET}", ""))), "none was given")


def test_a_database_that_is_not_there() -> None:
    told(refused(StoreUnavailable, lambda: PostgresStore(server().url("nothing"))), "no such database", "createdb")


def test_a_server_without_tls(url: str) -> None:
    told(refused(StoreUnavailable, lambda: PostgresStore(f"{url}?sslmode=require")), "TLS", "sslmode")


def test_a_role_without_a_connection_left(url: str) -> None:
    PostgresStore(url).close()
    role = role_for(url, "SELECT ON ALL TABLES IN SCHEMA public", options="CONNECTION LIMIT 1")
    with psycopg.connect(role):
        told(refused(StoreUnavailable, lambda: PostgresStore(role, readonly=True)), "no connection left", "PgBouncer")
    PostgresStore(role, readonly=True).close()


def test_an_encoding_that_cannot_hold_every_name() -> None:
    server().run("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1'")
    told(refused(Misuse, lambda: PostgresStore(server().url("latin"))), "LATIN1", "createdb -E UTF8")


def test_a_schema_of_a_newer_release(url: str) -> None:
    """Also to read only; and it is left as it is."""
    PostgresStore(url).close()
    server().run("UPDATE indelible_meta SET version = 7", url=url)
    for readonly in (False, True):
        error = refused(FormatTooNew, lambda readonly=readonly: PostgresStore(url, readonly=readonly))  # type: ignore[misc]
        told(error, "schema 7", "pip install")
    with psycopg.connect(url) as con:
        assert con.execute("SELECT version FROM indelible_meta").fetchone() == (7,)


@pytest.mark.parametrize(
    "foreign",
    [
        "CREATE TABLE indelible_meta (key text, value text)",
        "CREATE TABLE indelible_meta (version integer)",
        "CREATE TABLE indelible_meta (version text); INSERT INTO indelible_meta VALUES ('1')",
        "CREATE TABLE indelible_runs (name text)",
        "CREATE VIEW indelible_snapshots AS SELECT 1 AS one",
    ],
)
def test_tables_of_that_name_that_are_something_else(url: str, foreign: str) -> None:
    server().run(foreign, url=url)
    told(refused(Misuse, lambda: PostgresStore(url)), "not ours", "left as it is", "search_path")
    with psycopg.connect(url) as con:
        ours = "SELECT count(*) FROM pg_class WHERE relname LIKE 'indelible_%' AND relkind IN ('r', 'v')"
        assert con.execute(ours.encode()).fetchone() == (1,)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("DROP TABLE indelible_snapshots", "indelible_snapshots"),
        ("ALTER TABLE indelible_runs DROP COLUMN wake_at", "wake_at"),
        ("ALTER TABLE indelible_batches ALTER COLUMN last_seq TYPE integer", "last_seq"),
        ("DROP INDEX indelible_runs_by_era", "index (era)"),
        ("DROP FUNCTION indelible_settle", "indelible_settle"),
        ("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'indelible_runs_by_status'::regclass", "(status"),
    ],
)
def test_tables_that_were_changed(url: str, change: str, what: str) -> None:
    """B79: an index that is there but invalid counts as missing."""
    PostgresStore(url).close()
    server().run("SET allow_system_table_mods = on; " + change, url=url)
    told(refused(JournalDamaged, lambda: PostgresStore(url)), what, "missing or was changed")


def test_two_stores_in_schemas_of_their_own(url: str) -> None:
    """By the search_path of the connection, or of the role."""
    server().run("CREATE SCHEMA one; CREATE SCHEMA two", url=url)
    for schema in ("one", "two"):
        with closing(PostgresStore(f"{url}?options=-csearch_path%3D{schema}")) as store:
            assert entries(store) == []
            store.claim(schema, "somebody", 30.0)
    with closing(PostgresStore(f"{url}?options=-csearch_path%3Done", readonly=True)) as store:
        assert [entry.run_id for entry in entries(store)] == ["one"]


def test_a_role_that_may_not_make_tables(url: str) -> None:
    """B110: told before a run is announced; where the tables exist already, it opens."""
    rights = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public"
    role = role_for(url)
    told(refused(StoreUnavailable, lambda: PostgresStore(role)), "may not make", "GRANT CREATE ON SCHEMA")
    PostgresStore(url).close()
    told(refused(StoreUnavailable, lambda: PostgresStore(role)), "lacks", "GRANT", "indelible_")
    some = role_for(url, "SELECT ON ALL TABLES IN SCHEMA public")
    told(refused(StoreUnavailable, lambda: PostgresStore(some)), "lacks", "readonly=True")
    most = role_for(url, "SELECT ON ALL TABLES IN SCHEMA public", rights)
    told(refused(StoreUnavailable, lambda: PostgresStore(most)), "USAGE ON SEQUENCE indelible_touches")
    server().run(f"GRANT USAGE ON SEQUENCE indelible_touches TO role_{url.rpartition('/')[2]}_2", url=url)
    with closing(PostgresStore(most)) as store:
        assert store.claim("a", "somebody", 30.0) == 1
        assert store.append([write("a", 0)]) == [None]


def test_a_role_that_may_only_read_reads(url: str) -> None:
    """B110: and so does one on a server that takes no writes."""
    with closing(PostgresStore(url)) as store:
        store.claim("a", "somebody", 30.0)
        store.append([write("a", 0)])
        store.put_snapshot("a", 1, b"s")
    role = role_for(url, "SELECT ON ALL TABLES IN SCHEMA public")
    server().run(f"ALTER DATABASE {url.rpartition('/')[2]} SET default_transaction_read_only = on")
    told(refused(StoreUnavailable, lambda: PostgresStore(url)), "takes no writes", "readonly=True")
    with closing(PostgresStore(role, readonly=True)) as store:
        assert [batch.data for batch in store.read("a")] == [b"x"]
        assert store.get_snapshot("a", 1) == (1, b"s")
        assert [entry.head for entry in entries(store)] == [1]
        assert store.now() > 1e9
        assert [fact for fact in store.facts() if fact.verdict == "bad"] == []
        acts: list[Callable[[], object]] = [
            lambda: store.append([write("a", 1)]),
            lambda: store.claim("a", "other", 30.0),
            lambda: store.put_snapshot("a", 1, b"t"),
            lambda: store.delete("a"),
            store.reclaim,
        ]
        for act in acts:
            told(refused(Misuse, act), "read-only")


def test_an_empty_database_to_read(url: str) -> None:
    """Nothing is made there."""
    told(refused(Misuse, lambda: PostgresStore(url, readonly=True)), "schema none", "readonly=False")
    with psycopg.connect(url) as con:
        assert con.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'indelible%'").fetchone() == (0,)


def test_a_durability_that_is_not_known(url: str) -> None:
    told(refused(Misuse, lambda: PostgresStore(url, durability="most")), "'most'")


def test_rights_taken_away_and_tables_dropped_in_mid_run(url: str) -> None:
    with closing(PostgresStore(url)) as store:
        store.claim("a", "somebody", 30.0)
        role = role_for(url, "ALL ON ALL TABLES IN SCHEMA public", "USAGE ON ALL SEQUENCES IN SCHEMA public")
        with closing(PostgresStore(role)) as theirs:
            assert theirs.append([write("a", 0)]) == [None]
            server().run(f"REVOKE UPDATE ON indelible_runs FROM role_{url.rpartition('/')[2]}_2", url=url)
            told(refused(StoreUnavailable, lambda: theirs.append([write("a", 1)])), "lacks a privilege", "GRANT")
        server().run("DROP TABLE indelible_batches", url=url)
        told(refused(JournalDamaged, lambda: store.append([write("a", 1)])), "a table of ours is gone")
        told(refused(JournalDamaged, lambda: list(store.read("a"))), "a table of ours is gone")


def test_names_that_postgresql_cannot_hold(url: str) -> None:
    """In the answer to that write: the others land."""
    with closing(PostgresStore(url)) as store:
        store.claim("a", "somebody", 30.0)
        bad = Write("a", 1, Batch(0, 1, b"x"), indelible_label("nul\0"))
        half = Write("a", 1, Batch(0, 1, b"x"), indelible_label("\ud800"))
        answers = store.append([bad, half, write("a", 0)])
        assert [type(answer) for answer in answers] == [Misuse, Misuse, type(None)]
        assert list(store.read("a\0")) == []
        assert store.get_snapshot("\ud800", 1) is None
        told(refused(Misuse, lambda: store.claim("a", "nul\0", 30.0)), "NUL")


def indelible_label(agent: str) -> indelible.stores.base.Label:
    return indelible.stores.base.Label(agent, "active", None, b"")


def test_a_server_that_does_not_sync() -> None:
    """What it acknowledges is gone with its machine: so it is not called durable."""
    with another_server("fsync=off") as other:
        told(refused(StoreUnavailable, lambda: PostgresStore(other.url())), "fsync=off", "durability='os'")
        with closing(PostgresStore(other.url(), durability="os")) as store:
            assert not store.durable
            assert [fact.name for fact in store.facts() if fact.verdict == "bad"] == ["fsync"]


def test_no_space_for_the_servers_files() -> None:
    """A real failure of the server's own writes: its files may grow no further. What was acknowledged stays."""
    limit = 24 * 1024 * 1024
    with another_server(file_limit=limit) as other, closing(PostgresStore(other.url())) as store:
        store.claim("a", "somebody", 3600.0)
        at = 0
        error: IndelibleError | None = None
        while error is None:
            try:
                assert store.append([write("a", at, b"x" * 1_000_000)]) == [None]
                at += 1
            except IndelibleError as failed:
                error = failed
        assert isinstance(error, StoreUnavailable)
        told(error, other.url().rpartition("@")[2], "no space")
        assert at > 10
        assert [batch.last_seq for batch in store.read("a")] == list(range(1, at + 1))
        other.stop()
        other.start()
        assert store.append([write("a", at, b"x" * 1_000_000)]) == [None], "with space again it goes on"
