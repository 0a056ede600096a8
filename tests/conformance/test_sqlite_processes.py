"""The SQLite store between processes: killed, forked, locked out, and all at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from indelible.errors import RunBusy, StoreUnavailable
from indelible.stores import migrations
from indelible.stores.owner import Owner, enter
from indelible.stores.sqlite import SqliteStore
from indelible.testing.conformance_kit import entries, refused, write
from tests.conformance.children import Child


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "agent.db")


def hold(store: SqliteStore, run_id: str) -> int:
    enter(run_id)
    return store.claim(run_id, Owner.here(run_id), 3600.0)


def sound(path: str) -> bool:
    con = apsw.Connection(path)
    try:
        return bool(con.pragma("integrity_check") == "ok")
    finally:
        con.close()


def test_ten_processes_open_a_new_file_at_once(path: str) -> None:
    """B79: one makes the tables, all find them, and nobody is turned away."""

    def work(number: int) -> Callable[[Child], None]:
        def opening(test: Child) -> None:
            test.hear()
            with closing(SqliteStore(path)) as store:
                hold(store, f"run-{number}")
                assert store.append([write(f"run-{number}", 0), write(f"run-{number}", 1)]) == [None, None]

        return opening

    children = [Child(work(number)) for number in range(10)]
    for child in children:
        child.say("go")
    assert [child.ended() for child in children] == [0] * 10
    with closing(SqliteStore(path, readonly=True)) as store:
        assert sorted((entry.run_id, entry.head) for entry in entries(store)) == [(f"run-{n}", 2) for n in range(10)]
    assert sound(path)


def test_killed_while_the_tables_are_made(path: str) -> None:
    """B79: half a migration is none."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def work(_test: Child) -> None:
        con = apsw.Connection(path)
        con.pragma("journal_mode", "wal")
        con.create_scalar_function("die", die)
        migrations.migrate(con, path, [migrations.steps()[0] + "; SELECT die();"])

    with Child(work) as child:
        assert child.ended() == -signal.SIGKILL
    with closing(SqliteStore(path)) as store:
        assert hold(store, "a") == 1


def test_a_killed_holder_is_taken_over_at_once(path: str) -> None:
    """B102: its lease has an hour to run, but its process is gone."""

    def work(test: Child) -> None:
        store = SqliteStore(path)
        hold(store, "a")
        store.append([write("a", at) for at in range(3)])
        test.say("held")
        test.hear()

    with Child(work) as child, closing(SqliteStore(path)) as store:
        assert child.hear() == "held"
        assert entries(store)[0].live
        error = refused(RunBusy, lambda: hold(store, "a"))
        assert f"process {child.pid} on host" in str(error)
        child.kill()
        assert not entries(store)[0].live
        assert hold(store, "a") == 2
        assert [batch.last_seq for batch in store.read("a")] == [1, 2, 3]


def test_what_was_acknowledged_survives_kill_9(path: str) -> None:
    """B94: every append whose answer the test has heard of is there, and the journal has no hole."""

    def work(test: Child) -> None:
        store = SqliteStore(path)
        hold(store, "a")
        at = 0
        while True:
            assert store.append([write("a", at, b"x" * 3000)]) == [None]
            at += 1
            test.say(at)

    for _ in range(3):
        with Child(work) as child:
            heard = 0
            while heard < 25:
                heard = int(child.hear())
            child.kill()
        with closing(SqliteStore(path)) as store:
            seqs = [batch.last_seq for batch in store.read("a")]
            assert seqs == list(range(1, len(seqs) + 1))
            assert len(seqs) >= heard
        assert sound(path)
        for name in (path, path + "-wal", path + "-shm"):
            Path(name).unlink(missing_ok=True)


def test_four_processes_write_at_once(path: str) -> None:
    """B49: no 'database is locked' among our own."""

    def work(number: int) -> Callable[[Child], None]:
        def writing(_test: Child) -> None:
            with closing(SqliteStore(path)) as store:
                hold(store, f"run-{number}")
                for at in range(50):
                    assert store.append([write(f"run-{number}", at)]) == [None]

        return writing

    children = [Child(work(number)) for number in range(4)]
    assert [child.ended() for child in children] == [0] * 4
    with closing(SqliteStore(path)) as store:
        assert [entry.head for entry in entries(store)] == [50] * 4


def test_a_foreign_writer_that_stays_too_long(path: str) -> None:
    """B49 B55: bounded, typed, and nothing of it is kept; afterwards all goes on."""
    with closing(SqliteStore(path, busy_s=0.05)) as store:
        hold(store, "a")
        foreign = apsw.Connection(path)
        foreign.execute("BEGIN IMMEDIATE")
        error = refused(StoreUnavailable, lambda: store.append([write("a", 0)]))
        assert path in str(error)
        assert "fuser" in error.hint
        assert list(store.read("a")) == [], "readers are not kept waiting"
        foreign.execute("ROLLBACK")
        foreign.close()
        assert store.append([write("a", 0)]) == [None]


def test_a_foreign_writer_that_leaves_in_time(path: str) -> None:
    """B49."""
    with closing(SqliteStore(path, busy_s=30)) as store:
        hold(store, "a")
        foreign = apsw.Connection(path)
        foreign.execute("BEGIN IMMEDIATE")
        answers: list[object] = []
        waiting = threading.Thread(target=lambda: answers.extend(store.append([write("a", 0)])))
        waiting.start()
        assert not answers
        foreign.execute("COMMIT")
        waiting.join()
        foreign.close()
        assert answers == [None]


def test_a_foreign_reader_keeps_nobody_waiting(path: str) -> None:
    """B49: a transaction that someone left open over the tables."""
    with closing(SqliteStore(path, busy_s=0.05)) as store:
        hold(store, "a")
        foreign = apsw.Connection(path)
        foreign.execute("BEGIN")
        assert foreign.execute("SELECT count(*) FROM batches").get == 0
        for at in range(50):
            assert store.append([write("a", at, b"x" * 9000)]) == [None]
        assert foreign.execute("SELECT count(*) FROM batches").get == 0
        foreign.close()


def test_a_store_is_used_on_both_sides_of_a_fork(path: str) -> None:
    """B105: what either commits is kept, also when the other closes first."""
    with closing(SqliteStore(path)) as store:
        hold(store, "parent")
        hold(store, "child")
        store.append([write("parent", 0), write("child", 0)])

        def work(test: Child) -> None:
            for at in range(1, 50):
                assert store.append([write("child", at)]) == [None]
            assert len(list(store.read("parent"))) >= 1
            test.say("half")
            assert test.hear() == "closed"
            assert Path(path + "-wal").exists(), "the log of an open connection was taken away"
            for at in range(50, 100):
                assert store.append([write("child", at)]) == [None]
            store.close()

        with Child(work) as child:
            for at in range(1, 50):
                assert store.append([write("parent", at)]) == [None]
            assert child.hear() == "half"
            store.close()
            child.say("closed")
            assert child.ended() == 0
    with closing(SqliteStore(path)) as again:
        assert len(list(again.read("parent"))) == 50
        assert len(list(again.read("child"))) == 100
    assert sound(path)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forks_while_other_threads_write(path: str) -> None:
    """B105 B106: a fork waits for the commit that is under way, and the threads go on after it."""
    done = threading.Event()
    with closing(SqliteStore(path)) as store:
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
    assert sound(path)
