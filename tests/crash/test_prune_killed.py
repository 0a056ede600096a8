"""`indelible prune` killed in the middle: each run is there, or gone, as a whole, and once more finishes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import indelible as ind
from indelible.runtime.pruning import GROUP, Wish, chosen, delete_all, drop_past
from indelible.runtime.runstore import RunStore
from indelible.runtime.verify import verify
from indelible.stores.base import RunEntry, inbox_of
from indelible.stores.sqlite import SqliteStore
from indelible.testing.conformance_kit import entries, write
from tests.conformance.children import Child
from tests.unit.simple_agents import Memory
from tests.unit.test_prune import fill

ROUNDS = 6


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "agent.db")


def whole(path: str) -> set[str]:
    """The runs that are there, all of each; what is gone has left nothing."""
    with closing(SqliteStore(path)) as store:
        here = {entry.run_id: entry for entry in entries(store)}
        for run_id, entry in here.items():
            assert [batch.last_seq for batch in store.read(run_id)] == [entry.head]
        assert [fact for fact in store.facts() if fact.verdict == "bad"] == []
    with closing(apsw.Connection(path)) as con:
        assert con.execute("SELECT count(*) FROM batches WHERE no <> 0").get == len(here)
    return set(here)


def test_killed_between_and_within_groups(path: str) -> None:
    """B70 B111: SIGKILL after so many groups, again and again, until nothing is left to do."""
    count = GROUP * ROUNDS
    fill(path, count, 200)
    with closing(SqliteStore(path)) as store:
        store.append([write(inbox_of(f"run-{number}"), 0, epoch=0) for number in range(0, count, 7)])
        store.reclaim()
    left = count

    def work(child: Child) -> None:
        def killed(_runs: int, _size: int) -> None:
            child.say("a group has gone")
            child.hear()

        with ind.open(path) as runs:
            delete_all(runs, chosen(runs, Wish(keep_last=0)), killed)

    for _ in range(ROUNDS - 1):
        with Child(work) as child:
            assert child.hear() == "a group has gone"
            child.kill()
        left -= GROUP
        with closing(apsw.Connection(path)) as con:
            assert con.execute("SELECT count(*) FROM runs WHERE run_id NOT LIKE '%/inbox' AND deleted = 0").get == left
    with ind.open(path) as runs:
        assert delete_all(runs, chosen(runs, Wish(keep_last=0)), lambda *_: None) == []
        assert list(runs.entries()) == []
        assert not any(fact.verdict == "bad" for fact in SqliteStore.facts(sqlite(runs)))
    with closing(apsw.Connection(path)) as con:
        assert con.execute("SELECT count(*) FROM batches WHERE no <> 0").get == 0


def sqlite(runs: RunStore) -> SqliteStore:
    assert isinstance(runs.store, SqliteStore)
    return runs.store


def test_the_command_killed_at_any_moment(tmp_path: Path) -> None:
    """B70: as a process of its own, stopped by SIGKILL after more and more of its work; then once to its end."""
    path = str(tmp_path / "agent.db")
    fill(path, GROUP * 20, 200)
    command = [sys.executable, "-m", "indelible", "prune", "--keep-last", "5", "--yes", "--store", path]
    before = len(whole(path))
    for target in (1, 2, 4):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                with closing(apsw.Connection(path)) as con:
                    while process.poll() is None and _left(con) > before - GROUP * target:
                        pass
            finally:
                process.send_signal(signal.SIGKILL)
        left = len(whole(path))
        assert left <= before
        before = left
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert len(whole(path)) == 5


def _left(con: apsw.Connection) -> int:
    return int(con.execute("SELECT count(*) FROM runs WHERE deleted = 0").get)


def runs_with_a_past(path: str, count: int) -> Iterator[RunEntry]:
    with ind.open(path, durability="os") as runs:
        for number in range(count):
            with runs.run(f"r{number}", Memory, "see") as run:
                for _ in range(30):
                    with run.cycle():
                        run.state.count += 1
                        run.state.notes.compact(0, None)
                        run.state.notes.append(os.urandom(100).hex())
        yield from runs.entries()


@pytest.mark.parametrize("moment", ["claim 1", "put_snapshot 1", "get_snapshot 2", "put_snapshot 2", "claim 2"])
def test_history_killed_at_each_step(path: str, moment: str) -> None:
    """B83: before, between and after the two writes of a snapshot: the run reads the same, and can be pruned."""
    list(runs_with_a_past(path, 1))
    with ind.open(path) as runs:
        expected = runs.recover("r0").record

    def work(child: Child) -> None:
        name, _, number = moment.partition(" ")
        seen = [0]
        with ind.open(path) as runs:
            real = getattr(runs.store, name)

            def watched(*args: object) -> object:
                answer = real(*args)
                seen[0] += 1
                if seen[0] == int(number):
                    child.say("now")
                    child.hear()
                return answer

            setattr(runs.store, name, watched)
            (entry,) = runs.entries()
            drop_past(runs, entry)

    with Child(work) as child:
        assert child.hear() == "now"
        child.kill()
    with ind.open(path) as runs:
        found = runs.recover("r0")
        found.record.chain = expected.chain
        assert (found.record, found.notices) == (expected, [])
        assert verify(runs, "r0").ok
        (entry,) = runs.entries()
        went = drop_past(runs, entry)
        assert went.bytes > 0 or went.kept == "nothing of it is left"
        assert runs.pruned("r0") == expected.seq
        assert verify(runs, "r0").ok
