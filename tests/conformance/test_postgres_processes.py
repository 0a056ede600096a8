"""The PostgreSQL store between processes: all at once, killed, forked, cut off."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest

from indelible.errors import RunBusy, StoreUnavailable
from indelible.stores import postgres_schema
from indelible.stores.owner import Owner, enter
from indelible.stores.postgres import PostgresStore
from indelible.stores.postgres_place import place_of
from indelible.stores.postgres_pool import PostgresPool
from indelible.testing.conformance_kit import entries, refused, write
from tests.conformance.children import Child
from tests.servers.postgres import server


@pytest.fixture
def url() -> str:
    return server().database()


def hold(store: PostgresStore, run_id: str) -> int:
    enter(run_id)
    return store.claim(run_id, Owner.here(run_id), 3600.0)


def others(url: str) -> list[tuple[int, str]]:
    """The sessions in this database besides ours: process and state."""
    with psycopg.connect(url) as con:
        return con.execute(
            """SELECT pid, state FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"""
        ).fetchall()


def test_ten_processes_open_an_empty_database_at_once(url: str) -> None:
    """B79: one makes the tables, all find them, and nobody is turned away."""

    def work(number: int) -> Callable[[Child], None]:
        def opening(test: Child) -> None:
            test.hear()
            with closing(PostgresStore(url)) as store:
                hold(store, f"run-{number}")
                assert store.append([write(f"run-{number}", 0), write(f"run-{number}", 1)]) == [None, None]

        return opening

    children = [Child(work(number)) for number in range(10)]
    for child in children:
        child.say("go")
    assert [child.ended() for child in children] == [0] * 10
    with closing(PostgresStore(url, readonly=True)) as store:
        assert sorted((entry.run_id, entry.head) for entry in entries(store)) == [(f"run-{n}", 2) for n in range(10)]


class Halting(list[bytes]):
    """Steps of which the second one is never given: whoever wants it says so, and waits to be killed."""

    def __init__(self, test: Child) -> None:
        super().__init__([postgres_schema.steps()[0], b""])
        self._test = test

    def __getitem__(self, at: object) -> bytes:  # type: ignore[override]
        if at == 1:
            self._test.say("in the middle")
            self._test.hear()
        return super().__getitem__(at)  # type: ignore[call-overload, no-any-return]


def test_killed_while_the_tables_are_made(url: str) -> None:
    """B77 B79: while others wait for it; half a migration is none, and they make the tables."""

    def dying(test: Child) -> None:
        pool = PostgresPool(place_of(url), readonly=False)
        postgres_schema.prepare(pool.connect(), pool.place, full=True, readonly=False, scripts=Halting(test))

    def opening(test: Child) -> None:
        with closing(PostgresStore(url)) as store:
            assert hold(store, "a") == 1
        test.say("opened")

    with Child(dying) as dies:
        assert dies.hear() == "in the middle"
        with psycopg.connect(url) as con:
            assert con.execute("SELECT to_regclass('indelible_runs')").fetchone() == (None,)
        with Child(opening) as opens:
            dies.kill()
            assert opens.hear() == "opened"
    with closing(PostgresStore(url)) as store:
        assert [entry.run_id for entry in entries(store)] == ["a"]


def test_a_step_that_fails_leaves_what_there_was(url: str) -> None:
    """B77: old tables with rows in them, and a new step that breaks in its middle."""
    with closing(PostgresStore(url)) as store:
        hold(store, "a")
        store.append([write("a", 0)])
    pool = PostgresPool(place_of(url), readonly=False)
    broken = [*postgres_schema.steps(), b"ALTER TABLE indelible_runs DROP COLUMN about; SELECT 1 / 0"]
    with closing(pool):
        refused(
            StoreUnavailable,
            lambda: pool.write(
                lambda con: postgres_schema.prepare(con, pool.place, full=True, readonly=False, scripts=broken)
            ),
        )
    with closing(PostgresStore(url)) as store:
        assert [batch.data for batch in store.read("a")] == [b"x"]
        assert store.append([write("a", 1)]) == [None]


def test_the_steps_make_what_is_looked_for(url: str) -> None:
    """B79: no more and no less, so that nothing that is made goes unlooked at."""
    PostgresStore(url).close()
    with psycopg.connect(url) as con:
        asked = {"tables": postgres_schema.TABLES, "functions": postgres_schema.FUNCTIONS}
        found = {row[0] for row in con.execute(postgres_schema._FOUND.encode(), asked)}
    assert found == postgres_schema.FORMS
    assert len(postgres_schema.steps()) == postgres_schema.VERSION


def test_a_killed_holder_is_taken_over_at_once(url: str) -> None:
    """B102: its lease has an hour to run, but its process is gone."""

    def work(test: Child) -> None:
        store = PostgresStore(url)
        hold(store, "a")
        store.append([write("a", at) for at in range(3)])
        test.say("held")
        test.hear()

    with Child(work) as child, closing(PostgresStore(url)) as store:
        assert child.hear() == "held"
        assert entries(store)[0].live
        error = refused(RunBusy, lambda: hold(store, "a"))
        assert f"process {child.pid} on host" in str(error)
        child.kill()
        assert not entries(store)[0].live
        assert hold(store, "a") == 2
        assert [batch.last_seq for batch in store.read("a")] == [1, 2, 3]


def test_what_was_acknowledged_survives_kill_9(url: str) -> None:
    """B94: of the client, in the middle of its appends."""

    def work(run_id: str) -> Callable[[Child], None]:
        def appending(test: Child) -> None:
            store = PostgresStore(url)
            hold(store, run_id)
            at = 0
            while True:
                assert store.append([write(run_id, at, b"x" * 3000)]) == [None]
                at += 1
                test.say(at)

        return appending

    for run_id in "abc":
        with Child(work(run_id)) as child:
            heard = 0
            while heard < 25:
                heard = int(child.hear())
            child.kill()
        with closing(PostgresStore(url)) as store:
            assert hold(store, run_id) == 2
            seqs = [batch.last_seq for batch in store.read(run_id)]
            assert seqs == list(range(1, len(seqs) + 1))
            assert len(seqs) >= heard


def test_four_processes_write_groups_in_opposite_orders(url: str) -> None:
    """B49 B55: they meet in the same inboxes, and none is turned away for a deadlock."""
    inboxes = [f"run-{number}/inbox" for number in range(12)]

    def work(number: int) -> Callable[[Child], None]:
        def sending(_test: Child) -> None:
            names = inboxes if number % 2 else inboxes[::-1]
            with closing(PostgresStore(url)) as store:
                heads, left = dict.fromkeys(names, 0), dict.fromkeys(names, 15)
                while wanted := [name for name in names if left[name]]:
                    answers = store.append([write(name, heads[name], epoch=0) for name in wanted])
                    for name, answer in zip(wanted, answers, strict=True):
                        if answer is None:
                            heads[name] += 1
                            left[name] -= 1
                        else:
                            heads[name] = int(answer.ids["head"] or 0)

        return sending

    children = [Child(work(number)) for number in range(4)]
    assert [child.ended() for child in children] == [0] * 4
    with closing(PostgresStore(url)) as store:
        assert [len(list(store.read(inbox))) for inbox in inboxes] == [60] * 12
        server_says = [line for line in server().log if "deadlock" in line]
        assert server_says == []


def test_a_store_is_used_on_both_sides_of_a_fork(url: str) -> None:
    """B105: opened before, used after, each with connections of its own; closing one side is nothing to the other."""
    with closing(PostgresStore(url)) as store:
        hold(store, "parent")
        hold(store, "child")
        store.append([write("parent", 0), write("child", 0)])
        assert len(list(store.read("parent"))) == 1

        def work(test: Child) -> None:
            for at in range(1, 50):
                assert store.append([write("child", at)]) == [None]
            assert len(list(store.read("parent"))) >= 1
            test.say("half")
            assert test.hear() == "go on"
            store.close()

        before = {pid for pid, _ in others(url)}
        with Child(work) as child:
            for at in range(1, 50):
                assert store.append([write("parent", at)]) == [None]
            assert child.hear() == "half"
            child.say("go on")
            assert child.ended() == 0
        assert store.append([write("parent", 50)]) == [None]
        assert len(list(store.read("parent"))) == 51
        assert len(list(store.read("child"))) == 50
        assert before <= {pid for pid, _ in others(url)}, "the parent's connections are still those of before"


def test_a_child_does_not_keep_the_sessions_of_a_killed_parent(url: str) -> None:
    """B105: or a transaction of the dead one would keep its locks for as long as the child lives."""

    def parent(test: Child) -> None:
        store = PostgresStore(url)
        hold(store, "a")

        def child(_parent: Child) -> None:
            test.say("forked")
            test.hear()

        with Child(child):
            pass

    with Child(parent) as dies:
        assert dies.hear() == "forked"
        dies.kill()
        while others(url):
            pass
        dies.say("and now the grandchild may go")


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forks_while_other_threads_write(url: str) -> None:
    """B105 B106: also of a connection that a thread was just using."""
    done = threading.Event()
    with closing(PostgresStore(url)) as store:
        hold(store, "a")
        written: list[int] = []

        def writing() -> None:
            at = 0
            while not done.is_set():
                assert store.append([write("a", at, b"x" * 3000)]) == [None]
                assert any(True for _ in store.read("a", at))
                at += 1
            written.append(at)

        thread = threading.Thread(target=writing)
        thread.start()
        for number in range(8):

            def work(_test: Child, run_id: str = f"child-{number}") -> None:
                assert hold(store, run_id) == 1
                assert store.append([write(run_id, 0)]) == [None]

            with Child(work) as child:
                assert child.ended() == 0
        done.set()
        thread.join()
        assert [batch.last_seq for batch in store.read("a")] == list(range(1, written[0] + 1))
        assert len(entries(store)) == 9


@pytest.fixture
def locked(url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Another session that has the row of run "a" locked."""
    with closing(PostgresStore(url)) as store:
        assert store.claim("a", "somebody", 3600.0) == 1
    with psycopg.connect(url) as con:
        con.execute("SELECT FROM indelible_runs FOR UPDATE")
        yield con


def waiting(url: str) -> int:
    """The process of the session that waits for a lock."""
    with psycopg.connect(url, autocommit=True) as con:
        while True:
            found = con.execute("SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchone()
            if found is not None:
                return int(found[0])


def test_cut_off_while_it_waits(url: str, locked: psycopg.Connection[tuple[object, ...]]) -> None:
    """B55: the answer is that nobody knows, in one sentence; and the next call has a connection again."""
    with closing(PostgresStore(url)) as store:
        errors: list[StoreUnavailable] = []
        thread = threading.Thread(
            target=lambda: errors.append(refused(StoreUnavailable, lambda: store.append([write("a", 0)])))
        )
        thread.start()
        server().run(f"SELECT pg_terminate_backend({waiting(url)})")
        thread.join()
        locked.rollback()
        assert "57P01" in errors[0].what
        assert store.append([write("a", 0)]) == [None]


def test_cut_off_while_it_is_idle(url: str) -> None:
    """Nothing was sent yet, so that nothing is unknown, and nobody hears of it."""
    with closing(PostgresStore(url)) as store:
        hold(store, "a")
        assert len(list(store.read("a"))) == 0
        for at in range(3):
            pids = [pid for pid, _ in others(url)]
            assert len(pids) == 2
            server().run(*(f"SELECT pg_terminate_backend({pid}, 5000)" for pid in pids))
            assert store.append([write("a", at)]) == [None]
            assert len(list(store.read("a"))) == at + 1


def test_a_lock_that_stays(url: str, locked: psycopg.Connection[tuple[object, ...]]) -> None:
    """B49 B55: bounded, typed, and nothing of it is kept; afterwards all goes on. Readers do not wait at all."""
    server().run("ALTER FUNCTION indelible_settle(boolean) RENAME TO patient_settle", url=url)
    server().run(
        "CREATE FUNCTION indelible_settle(boolean) RETURNS text LANGUAGE sql AS "
        "$$ SELECT set_config('lock_timeout', '50ms', true) $$",
        url=url,
    )
    with closing(PostgresStore(url)) as store:
        error = refused(StoreUnavailable, lambda: store.append([write("a", 0)]))
        assert "55P03" in error.what
        assert "pg_stat_activity" in error.hint
        assert list(store.read("a")) == []
        locked.rollback()
        assert store.append([write("a", 0)]) == [None]
