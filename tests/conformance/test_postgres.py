"""The shipped conformance suite against a real PostgreSQL server, directly and as behind a pooler."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from indelible.errors import StoreUnavailable
from indelible.stores.base import Batch, Fact, Label, Query, Store, Upkeep, Write, inbox_of
from indelible.stores.postgres import _LIST, PostgresStore
from indelible.stores.postgres_pool import PostgresPool
from indelible.testing.conformance import SharedStoreConformance, StoreConformance
from indelible.testing.conformance_kit import entries, in_threads, refused, write
from tests.figures import tell
from tests.servers.postgres import server

LABEL = Label("research", "active", None, b"x" * 200)


def database_of(tmp_path: Path) -> str:
    place = tmp_path / "url"
    if not place.exists():
        place.write_text(server().database())
    return place.read_text()


class TestPostgresStore(StoreConformance, SharedStoreConformance):
    def open_store(self, tmp_path: Path, clock: Callable[[], float]) -> Store:
        return PostgresStore(database_of(tmp_path), clock=clock)


class Scattered:
    """What a pooler makes of a connection: each transaction goes to another session than the one before."""

    everywhere: list[psycopg.Connection[Any]]

    def __init__(self, conninfo: str, seen: list[psycopg.Connection[Any]]) -> None:
        mine = [psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) for _ in range(3)]
        seen += mine
        self._next = itertools.cycle(mine)
        self._con = next(self._next)
        self._inside = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._con, name)

    def execute(self, *args: Any, **named: Any) -> Any:
        if not self._inside:
            self._con = next(self._next)
        return self._con.execute(*args, **named)

    @contextmanager
    def _together(self, kind: str) -> Iterator[Any]:
        if not self._inside:
            self._con = next(self._next)
        self._inside += 1
        try:
            with getattr(self._con, kind)() as inner:
                yield inner
        finally:
            self._inside -= 1

    def pipeline(self) -> Any:
        return self._together("pipeline")

    def transaction(self) -> Any:
        return self._together("transaction")

    def close(self) -> None:
        """The sessions stay open, to be looked at."""


class TestPostgresBehindAPooler(StoreConformance, SharedStoreConformance):
    """Whatever a session kept would be missing in the next one, and would be found in the end."""

    @pytest.fixture(autouse=True)
    def _scattered(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        seen: list[psycopg.Connection[Any]] = []
        monkeypatch.setattr(PostgresPool, "connect", lambda pool: Scattered(pool.place.conninfo, seen))
        yield
        for con in seen:
            with con:
                left = con.execute(
                    """
                    SELECT (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_cursors),
                        (SELECT count(*) FROM pg_settings WHERE source = 'session'), pg_my_temp_schema()::int,
                        (SELECT count(*) FROM pg_listening_channels()),
                        (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())
                    """
                ).fetchone()
                assert left == (0, 0, 0, 0, 0, 0)

    def open_store(self, tmp_path: Path, clock: Callable[[], float]) -> Store:
        return PostgresStore(database_of(tmp_path), clock=clock)


@pytest.fixture
def url() -> str:
    return server().database()


def held(store: Store, *run_ids: str) -> None:
    for run_id in run_ids:
        assert store.claim(run_id, "somebody", 3600.0) == 1


def fact(store: Store, name: str) -> Fact:
    assert isinstance(store, Upkeep)
    (found,) = (fact for fact in store.facts() if fact.name == name)
    return found


def test_a_group_is_one_statement_in_one_transaction(url: str) -> None:
    """The group commit of a hundred runs takes one commit of the server, and keeps the order of the call."""
    names = [f"run-{number}" for number in range(100)]
    with closing(PostgresStore(url)) as store, psycopg.connect(url, autocommit=True) as con:
        held(store, *names)
        commits = "SELECT pg_current_xact_id()::text::bigint"
        ((before,),) = con.execute(commits).fetchall()
        assert store.append([write(name, 0, label=LABEL) for name in names]) == [None] * 100
        ((after,),) = con.execute(commits).fetchall()
        assert after - before == 2, "one for the group, one for asking"
        assert [entry.run_id for entry in entries(store)] == names[::-1]


def test_mostly_no_index_is_touched(url: str) -> None:
    """B49: an append changes its run in place."""
    with closing(PostgresStore(url)) as store, psycopg.connect(url, autocommit=True) as con:
        held(store, "a")
        for at in range(300):
            assert store.append([write("a", at, label=LABEL)]) == [None]
        store.close()
        con.execute("SELECT pg_stat_force_next_flush()")
        until = """SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'indelible_runs'"""
        updates = hot = 0
        while updates < 300:  # the server counts a session when it ends
            con.execute("SELECT pg_sleep(0.01)")
            ((updates, hot),) = con.execute(until).fetchall()
        assert hot / updates > 0.9


def test_forty_thousand_runs_are_listed_by_an_index(url: str) -> None:
    """B111: a page costs as much as a page, wherever it stands."""
    with closing(PostgresStore(url)) as store, psycopg.connect(url, autocommit=True) as con:
        con.execute(
            """
            INSERT INTO indelible_runs (run_id, listed, touched, created_at, updated_at, status, agent, about)
            SELECT 'run-' || number, true, nextval('indelible_touches'), 0, 0,
                CASE WHEN number % 100 = 0 THEN 'active' ELSE 'finished' END, 'research', ''
            FROM generate_series(1, 40000) AS number
            """
        )
        con.execute("ANALYZE indelible_runs")
        assert [entry.run_id for entry in entries(store)] == [f"run-{number}" for number in range(40_000, 0, -1)]
        active = entries(store, Query(statuses=frozenset({"active"}), agent="research"))
        assert [entry.run_id for entry in active] == [f"run-{number}" for number in range(40_000, 0, -100)]
        page = store.list_runs(Query(), "20000.20000")
        assert page.runs[0].run_id == "run-19999"
        asked = {"now": None, "touched": 20_000, "no": 20_000, "era": 4, "agent": None, "limit": 501}
        plan = "\n".join(row[0] for row in con.execute(b"EXPLAIN " + _LIST.encode(), asked))
        assert "indelible_runs_by_era" in plan
        assert "Seq Scan" not in plan


def test_full_is_synchronous_whatever_the_server_is_set_to(url: str) -> None:
    """And a stronger setting stays; with "os" nobody waits for the disk."""
    name = url.rpartition("/")[2]
    see = "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen VALUES "
    see += "(current_setting('synchronous_commit')); RETURN NULL; END $$"
    for setting, full in (("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")):
        server().run(f"ALTER DATABASE {name} SET synchronous_commit = '{setting}'")
        with closing(PostgresStore(url)) as store, closing(PostgresStore(url, durability="os")) as fast:
            assert (store.durable, fast.durable) == (True, False)
            server().run("DROP TABLE IF EXISTS seen CASCADE; DROP FUNCTION IF EXISTS see CASCADE", url=url)
            server().run("CREATE TABLE seen (setting text)", see, url=url)
            server().run("CREATE TRIGGER see AFTER INSERT ON indelible_batches EXECUTE FUNCTION see()", url=url)
            held(store, f"{setting}-a", f"{setting}-b")
            assert store.append([write(f"{setting}-a", 0)]) == [None]
            assert store.append([write(f"{setting}-{one}", at) for one, at in (("a", 1), ("b", 0))]) == [None, None]
            assert fast.append([write(f"{setting}-a", 2)]) == [None]
            with psycopg.connect(url) as con:
                assert [row[0] for row in con.execute("SELECT setting FROM seen")] == [full, full, "off"]


def test_other_isolation_levels_serve_as_well(url: str) -> None:
    """B55: what the server rolls back for another's sake is tried again, and never answered."""
    name = url.rpartition("/")[2]
    server().run(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    won: list[int] = []
    with closing(PostgresStore(url)) as one, closing(PostgresStore(url)) as two:
        held(one, "a", "b", "c")
        assert one.append([write("b", 0), write("c", 0), write("b", 1)]) == [None] * 3

        def work(store: Store) -> None:
            for at in range(60):
                if store.append([write("a", at)]) == [None]:
                    won.append(at)
                else:
                    assert any(True for _ in store.read("a", at))

        in_threads(lambda: work(one), lambda: work(two))
        assert sorted(won) == list(range(60))
        assert fact(one, "default_transaction_isolation").verdict == "note"


def test_facts_of_a_sound_store(url: str) -> None:
    with closing(PostgresStore(url)) as store:
        held(store, "a", "b")
        store.append([write("a", 0), write("b", 0)])
        store.delete("b")
        found = {fact.name: fact for fact in store.facts()}
        assert [fact for fact in found.values() if fact.verdict == "bad"] == []
        assert found["fsync"].value == "on"
        assert found["runs"].value == "1 and 2 tombstones"
        assert found["orphans"].value == "none"
        with psycopg.connect(url) as con:
            ((now,),) = con.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchall()
        assert abs(store.now() - now) < 60


def test_facts_of_a_store_that_is_not_whole(url: str) -> None:
    """B70: what belongs to no run, and a journal that does not reach its head."""
    with closing(PostgresStore(url)) as store:
        held(store, "a", "b")
        store.append([write("a", 0), write("b", 0)])
        store.put_snapshot("b", 1, b"s")
        server().run("DELETE FROM indelible_runs WHERE run_id = 'b'", url=url)
        server().run("DELETE FROM indelible_batches WHERE no IN (SELECT no FROM indelible_runs)", url=url)
        assert fact(store, "orphans").value == "1 batches and 1 snapshots of no run"
        assert fact(store, "journals").verdict == "bad"
        assert "'a'" in fact(store, "journals").value


def test_deleted_while_others_write(url: str) -> None:
    """B69 B70: whoever comes first, nothing is left behind, nor comes back; also of an inbox that is just made."""
    names = [f"run-{number}" for number in range(40)]
    with closing(PostgresStore(url)) as one, closing(PostgresStore(url)) as two:
        held(one, *names)

        def write_all() -> None:
            for name in names:
                inbox = inbox_of(name)
                for at in range(3):
                    one.append([write(name, at, label=LABEL), write(inbox, at, epoch=0)])

        def delete_all() -> None:
            for name in names:
                two.delete(name)

        in_threads(write_all, delete_all)
        assert entries(one) == []
        assert fact(one, "orphans").value == "none"
        assert fact(one, "runs").value == "0 and 80 tombstones"
        assert [list(one.read(inbox_of(name))) for name in names] == [[]] * 40


def test_of_several_hosts_the_one_that_answers(url: str) -> None:
    """The first takes no connection, and the URL that the store gives names both again."""
    where = psycopg.conninfo.conninfo_to_dict(url)
    several = f"postgresql://postgres@/{where['dbname']}?host=127.0.0.1,127.0.0.1&port=1,{where['port']}"
    with closing(PostgresStore(several)) as store:
        held(store, "a")
        with closing(PostgresStore(store.url, readonly=True)) as again:
            assert again.url == store.url
            assert [entry.run_id for entry in entries(again)] == ["a"]


def test_space_is_given_back(url: str) -> None:
    """B73: to the server's system, also if what stays lies behind what goes; and what stays is whole."""
    with closing(PostgresStore(url)) as store:
        names = [f"run-{number}" for number in range(40)]
        held(store, *names)
        for at in range(50):
            store.append([Write(name, 1, Batch(at, at + 1, bytes([at]) * 9000)) for name in names])
        for name in names[:-1]:
            store.delete(name)
        with psycopg.connect(url, autocommit=True) as con:
            ((before,),) = con.execute("SELECT pg_database_size(current_database())").fetchall()
            freed = store.reclaim()
            ((after,),) = con.execute("SELECT pg_database_size(current_database())").fetchall()
        tell(f"PostgreSQL: of 18.0 MB of batches 17.5 MB deleted; {freed / 1e6:.1f} MB given back")
        assert freed > 15_000_000
        assert before - after > 15_000_000
        assert [batch.data for batch in store.read(names[-1])] == [bytes([at]) * 9000 for at in range(50)]
        assert store.append([write(names[-1], 50)]) == [None]
        assert store.reclaim() < 1_000_000


def test_only_the_owner_gives_space_back(url: str) -> None:
    PostgresStore(url).close()
    name = url.rpartition("/")[2]
    server().run(f"CREATE ROLE writer_{name} LOGIN PASSWORD 'pw'", url=url)
    rights = "SELECT, INSERT, UPDATE, DELETE ON indelible_runs, indelible_batches, indelible_snapshots, indelible_meta"
    server().run(f"GRANT {rights} TO writer_{name}", url=url)
    server().run(f"GRANT USAGE ON SEQUENCE indelible_touches TO writer_{name}", url=url)
    with closing(PostgresStore(server().url(name, f"writer_{name}", "pw"))) as store:
        assert store.url == server().url(name, f"writer_{name}")
        held(store, "a")
        assert store.append([write("a", 0)]) == [None]
        error = refused(StoreUnavailable, store.reclaim)
        assert "postgres" in error.what
        assert [fact for fact in store.facts() if fact.verdict == "bad"] == []
