"""Retention: which runs go, that they go for good, and that their space comes back."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import indelible as ind
from indelible.core.arriving import ARRIVING
from indelible.errors import FormatTooNew, IndelibleError, Misuse, RunBusy, StaleWriter, StoreUnavailable, UnknownRun
from indelible.runtime.pruning import HELD, Wish, chosen, delete_all, drop_past
from indelible.runtime.runstore import RunStore
from indelible.stores.base import Batch, Label, Query, Store, Upkeep, Write, inbox_of
from indelible.stores.memory import MemoryStore
from indelible.stores.sqlite import SqliteStore
from indelible.testing.conformance_kit import SteppedClock, entries, refused, write
from indelible.testing.vfs import FaultyDisk, Trouble
from tests.unit import cli_stage
from tests.unit.cli_stage import Stage
from tests.unit.simple_agents import Memory, agent_of

stage = cli_stage.stage

DAY = 86_400.0


def quiet(_runs: int, _size: int) -> None:
    """Tell nobody."""


def ended(run_id: str, status: str = "finished", size: int = 100, agent: str = "a") -> Write:
    return Write(run_id, 1, Batch(0, 1, os.urandom(size)), Label(agent, status, None, b""))


class OneByOne:
    """A store that deletes its runs singly, as remote ones do."""

    def __init__(self, store: MemoryStore) -> None:
        for name in ("append", "read", "list_runs", "claim", "put_snapshot", "get_snapshot", "delete", "close"):
            setattr(self, name, getattr(store, name))
        for name in ("now", "facts", "reclaim"):
            setattr(self, name, getattr(store, name))
        self.url, self.durable, self.shared = store.url, store.durable, store.shared


@pytest.fixture(params=["memory", "sqlite", "one by one"])
def aged(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunStore]:
    """Five runs of each kind, one a day, the last one today."""
    clock = SteppedClock()
    memory = MemoryStore(clock)
    store: Store = memory
    if request.param == "sqlite":
        store = SqliteStore(str(tmp_path / "agent.db"), clock=clock)
    elif request.param == "one by one":
        store = OneByOne(memory)  # type: ignore[assignment]  # it has what a store has
    with ind.open("memory:") as other, RunStore(store, other.clock) as runs:
        for day in range(5):
            clock.advance(DAY)
            for status in ("finished", "failed", "parked", "running"):
                run_id = f"{status} {day}"
                store.claim(run_id, "somebody", 30.0)
                assert store.append([ended(run_id, status, agent="even" if day % 2 == 0 else "odd")]) == [None]
                store.claim(run_id, "somebody", 0.0)
        yield runs


def picked(runs: RunStore, **parts: object) -> list[str]:
    return sorted(entry.run_id for entry in chosen(runs, Wish(**parts)))  # type: ignore[arg-type]


def test_what_is_chosen(aged: RunStore) -> None:
    """Ended runs that are older; never what is running; parked ones only if they are asked for."""
    assert picked(aged, older_than_s=3.5 * DAY) == ["failed 0", "finished 0"]
    assert picked(aged, older_than_s=3 * DAY) == ["failed 0", "finished 0"], "older, not as old"
    assert picked(aged, older_than_s=3.5 * DAY, parked=True) == ["failed 0", "finished 0", "parked 0"]
    assert picked(aged, keep_last=7) == ["failed 0", "failed 1", "finished 0"] or picked(aged, keep_last=7) == [
        "failed 0", "finished 0", "finished 1"
    ]  # fmt: skip
    assert picked(aged, older_than_s=0.5 * DAY, keep_last=2) == sorted(
        f"{status} {day}" for status in ("failed", "finished") for day in range(3 + 1)
    ), "today's two are the newest two"
    assert picked(aged, older_than_s=0, keep_last=8) == ["failed 0", "finished 0"]
    assert picked(aged, older_than_s=2.5 * DAY, agent="odd") == ["failed 1", "finished 1"]
    assert picked(aged, keep_last=100) == []
    assert picked(aged, run_ids=("finished 3", "failed 0", "finished 3")) == ["failed 0", "finished 3"]


def test_what_cannot_be_chosen(aged: RunStore) -> None:
    """B71: a wish for nothing in particular deletes nothing in particular."""
    refused(Misuse, lambda: picked(aged))
    refused(Misuse, lambda: picked(aged, keep_last=-1))
    refused(Misuse, lambda: picked(aged, run_ids=("finished 0",), keep_last=1))
    refused(UnknownRun, lambda: picked(aged, run_ids=("nobody",)))
    refused(Misuse, lambda: picked(aged, run_ids=("../x",)))
    assert "delete" in refused(Misuse, lambda: picked(aged, run_ids=("running 0",))).hint
    assert "--include-parked" in refused(Misuse, lambda: picked(aged, run_ids=("parked 0",))).hint
    aged.store.claim("failed 0", "somebody else", 30.0)
    refused(RunBusy, lambda: picked(aged, run_ids=("failed 0",)))
    assert "failed 0" not in picked(aged, older_than_s=0)


def test_a_run_on_its_way_here_is_left_alone(aged: RunStore) -> None:
    """Whoever brings it holds it only now and then."""
    aged.store.claim("coming", "somebody", 30.0)
    assert aged.store.append([ended("coming", ARRIVING)]) == [None]
    aged.store.claim("coming", "somebody", 0.0)
    assert "coming" not in {entry.run_id for entry in chosen(aged, Wish(keep_last=0), history=True)}


def test_one_run_that_cannot_be_read_keeps_no_other_from_losing_its_past(
    aged: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B83: whatever is wrong with it is told, and it is let go of; only a store that is away ends it all."""
    (entry,) = aged.store.list_runs(Query(run_ids=("parked 0",))).runs

    def broken(_: RunStore, run_id: str, owner: str) -> None:
        raise FormatTooNew(f"run {run_id!r} was written by a newer release", hint="pip install -U indelible")

    monkeypatch.setattr("indelible.runtime.pruning._folded", broken)
    assert "newer release" in drop_past(aged, entry).kept
    assert aged.store.list_runs(Query(run_ids=("parked 0",))).runs[0].owner == ""


def test_they_go_for_good(aged: RunStore) -> None:
    """B69 B70: with their inboxes; what is left is as it was; doing it again does nothing."""
    inbox = inbox_of("finished 1")
    aged.store.append([write(inbox, 0, epoch=0)])
    before = {entry.run_id: entry for entry in entries(aged.store)}
    told: list[tuple[int, int]] = []
    wish = Wish(keep_last=0)
    assert delete_all(aged, chosen(aged, wish), lambda *far: told.append(far)) == []
    assert told == [(10, 1000)]
    left = {entry.run_id: entry for entry in entries(aged.store)}
    assert left == {run_id: entry for run_id, entry in before.items() if run_id[:4] in ("park", "runn")}
    assert list(aged.store.read("finished 1")) == list(aged.store.read(inbox)) == []
    late = aged.store.append([write("finished 1", 1), write("finished 1", 0), write(inbox, 0, epoch=0)])
    assert all(isinstance(answer, StaleWriter) for answer in late)
    refused(UnknownRun, lambda: aged.store.claim("finished 1", "somebody", 30.0))
    assert delete_all(aged, chosen(aged, wish), quiet) == []
    assert len(entries(aged.store)) == 10


def test_what_has_changed_meanwhile_stays(aged: RunStore) -> None:
    """A run that was taken up, or went on, between the look and the deed."""

    def meanwhile() -> Iterator[object]:
        found = list(chosen(aged, Wish(older_than_s=3.5 * DAY)))
        aged.store.claim("failed 0", "a retry", 30.0)
        assert aged.store.claim("finished 0", "another", 30.0) == 2
        assert aged.store.append([Write("finished 0", 2, Batch(1, 2, b"on"))]) == [None]
        aged.store.claim("finished 0", "another", 0.0)
        yield from found

    passed_over = delete_all(aged, meanwhile(), quiet)  # type: ignore[arg-type]
    assert sorted(went.run_id for went in passed_over) == ["failed 0", "finished 0"]
    assert len(entries(aged.store)) == 20
    entry = next(entry for entry in entries(aged.store) if entry.run_id == "finished 0")
    assert (entry.head, entry.owner) == (2, ""), "what was held to look at it is let go of"


def test_few_are_held_at_once_where_they_go_singly() -> None:
    """A lease must not run out while the others of a group have their turn."""
    clock = SteppedClock()
    store = MemoryStore(clock)
    single = OneByOne(store)
    held, seen = set[str](), list[int]()
    ids = [f"r{number}" for number in range(2 * HELD + 5)]
    for run_id in ids:
        store.claim(run_id, "somebody", 30.0)
    assert store.append([ended(run_id) for run_id in ids]) == [None] * len(ids)
    for run_id in ids:
        store.claim(run_id, "somebody", 0.0)

    def claim(run_id: str, owner: str, ttl_s: float) -> int:
        held.add(run_id)
        seen.append(len(held))
        return store.claim(run_id, owner, ttl_s)

    def delete(run_id: str) -> None:
        store.delete(run_id)
        held.discard(run_id)

    single.claim, single.delete = claim, delete  # type: ignore[attr-defined]
    with ind.open("memory:") as other, RunStore(single, other.clock) as runs:  # type: ignore[arg-type]
        assert delete_all(runs, chosen(runs, Wish(keep_last=0)), quiet) == []
        assert (entries(store), max(seen)) == ([], HELD)


def test_a_live_worker_cannot_bring_it_back(tmp_path: Path) -> None:
    """B69: deleted through one handle while another is in mid-cycle: its commit fails, and nothing reappears."""
    path = str(tmp_path / "agent.db")

    def body(run: ind.Run[Memory]) -> None:
        run.state.count += 1

    agent = agent_of(body)
    with ind.open(path) as worker, ind.open(path) as keeper:
        run = worker.run("r", agent, "see")
        with pytest.raises(IndelibleError, match="deleted"), run:
            with run.cycle():
                body(run)
            refused(RunBusy, lambda: picked(keeper, run_ids=("r",)))
            assert picked(keeper, older_than_s=0) == []
            keeper.store.delete("r")  # by somebody who will not listen
            with run.cycle():
                body(run)
        assert entries(keeper.store) == entries(worker.store) == []
        with pytest.raises(IndelibleError), keeper.run("r", agent, "see"):
            pass
        refused(UnknownRun, lambda: keeper.recover("r"))
    assert entries_in(path) == []


def entries_in(path: str) -> list[str]:
    with closing(SqliteStore(path)) as store:
        return [entry.run_id for entry in entries(store)]


# -- many -------------------------------------------------------------------------------------------------------------

MANY = 40_000


def fill(path: str, count: int = MANY, size: int = 300) -> None:
    """Tiny runs that have ended, made directly and in groups: what matters is how they go."""
    SqliteStore(path).close()
    with closing(apsw.Connection(path)) as con, con:
        con.executemany(
            "INSERT INTO runs (run_id, epoch, touched, created_at, updated_at) VALUES (?, 1, 0, 5, 6)",
            ((f"run-{number}",) for number in range(count)),
        )
    with closing(SqliteStore(path, durability="os")) as store:
        for at in range(0, count, 2000):
            ids = (f"run-{number}" for number in range(at, min(count, at + 2000)))
            assert not any(store.append([ended(run_id, size=size) for run_id in ids]))


def test_forty_thousand_runs_in_one_go(stage: Stage) -> None:
    """B111 B63: no limit on variables is met, it takes seconds, and the space is really given back."""
    fill("agent.db")
    before = os.path.getsize("agent.db")
    began = time.monotonic()
    done = stage("prune", "--keep-last", "10", "--yes", "--json")
    assert time.monotonic() - began < 20
    assert (done.code, done.json["deleted"], done.json["bytes"]) == (0, MANY - 10, (MANY - 10) * 300)
    assert done.json["reclaimed_bytes"] >= before - os.path.getsize("agent.db") > MANY * 300
    assert len(stage("ls", "--json").json) == 10
    with closing(SqliteStore("agent.db")) as store:
        assert all(fact.verdict == "ok" for fact in store.facts())


def test_named_runs_in_any_number(stage: Stage) -> None:
    """B111: ids on the command line are not bound one by one."""
    fill("agent.db", 3000)
    words = [word for number in range(3000) for word in ("--run", f"run-{number}")]
    done = stage("prune", *words, "--yes", "--json")
    assert (done.code, done.json["deleted"]) == (0, 3000)


# -- space ------------------------------------------------------------------------------------------------------------


def half_deleted(path: str, **options: object) -> SqliteStore:
    fill(path, 300, 20_000)
    store = SqliteStore(path, **options)  # type: ignore[arg-type]
    assert all(store.delete_idle([(f"run-{number}", 1) for number in range(0, 300, 2)]))
    return store


def test_space_comes_back_beside_other_processes(tmp_path: Path) -> None:
    """B63: with other handles open, one of them in the middle of reading; what is left is as it was."""
    path = str(tmp_path / "agent.db")
    with closing(half_deleted(path)) as store, closing(SqliteStore(path)) as other:
        expected = {f"run-{number}": list(other.read(f"run-{number}")) for number in range(300)}
        other.claim("run-1", "other", 30.0)
        reading = other.read("run-1")
        before = os.path.getsize(path) + os.path.getsize(path + "-wal")
        freed = store.reclaim()
        assert freed == before - os.path.getsize(path) - os.path.getsize(path + "-wal") > 150 * 20_000
        assert list(reading) == expected["run-1"]
        assert {run_id: list(other.read(run_id)) for run_id in expected} == expected
        assert other.append([Write("run-1", 2, Batch(1, 2, b"on"))]) == [None]
        assert 0 <= store.reclaim() < 100_000
        assert all(fact.verdict != "bad" for fact in store.facts())


def test_a_store_in_memory_has_upkeep_too() -> None:
    store = MemoryStore(lambda: 5.0)
    assert isinstance(store, Upkeep)
    assert (store.now(), store.reclaim()) == (5.0, 0)
    assert [fact.verdict for fact in store.facts()] == ["note"]


def test_a_locked_store_is_told_and_left(tmp_path: Path) -> None:
    """Somebody else's transaction is waited for, and then told."""
    path = str(tmp_path / "agent.db")
    with closing(half_deleted(path, busy_s=0.05)) as store, closing(apsw.Connection(path)) as con:
        con.execute("BEGIN IMMEDIATE")
        refused(StoreUnavailable, store.reclaim)
        con.execute("ROLLBACK")
        assert store.reclaim() > 0


def test_no_room_is_seen_before_anything_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B86: it takes room to give room back; how much, and where, is said."""
    path = str(tmp_path / "agent.db")
    with closing(half_deleted(path)) as store:
        monkeypatch.setattr("shutil.disk_usage", lambda _where: Full())
        size = os.path.getsize(path)
        error = refused(StoreUnavailable, store.reclaim)
        assert "takes" in error.what
        assert "stays deleted" in error.what
        assert "SQLITE_TMPDIR" in error.hint
        assert os.path.getsize(path) == size


class Full:
    """A disk without room."""

    free = 1000


@pytest.mark.parametrize("at", [1, 2, 10, 200, 1000])
def test_a_disk_that_fills_up_meanwhile_loses_nothing(tmp_path: Path, at: int) -> None:
    """B86: at the first, at some, or at a late write of the VACUUM."""
    path = str(tmp_path / "agent.db")
    half_deleted(path).close()
    with FaultyDisk(Trouble.NO_SPACE, at, lasting=True) as disk:
        store = SqliteStore(path, vfs=disk.name)
        expected = {entry.run_id: list(store.read(entry.run_id)) for entry in entries(store)}
        try:
            store.reclaim()
        except StoreUnavailable:
            pass
        else:
            raise AssertionError("the disk was to fill up")
        disk.lift()
        store.close()
    with closing(SqliteStore(path)) as again:
        assert {entry.run_id: list(again.read(entry.run_id)) for entry in entries(again)} == expected
        assert all(fact.verdict != "bad" for fact in again.facts())
        assert again.reclaim() > 0


# -- the command ------------------------------------------------------------------------------------------------------


def test_it_is_shown_first(stage: Stage) -> None:
    """B71: what, how much, and the command that does it; nothing is changed by looking."""
    for run_id, task in (("one", "a"), ("two", "b"), ("waits", "ask")):
        stage("run", "agent.py:worker", task, "--run-id", run_id)
    shown = stage("prune", "--older-than", "0s")
    assert shown.code == 0
    assert "2 runs (2 finished) would be deleted for good" in shown.out
    assert "waits" not in shown.out
    assert "indelible prune --older-than 0s --yes" in shown.out
    assert len(stage("ls", "--json").json) == 3
    parked = stage("prune", "--keep-last", "0", "--include-parked", "--json").json
    assert (parked["count"], parked["by_status"]) == (3, {"finished": 2, "parked": 1})
    assert parked["command"] == "indelible prune --keep-last 0 --include-parked --yes"
    assert parked["bytes"] == sum(run["stored_bytes"] for run in parked["runs"]) > 0
    done = stage("prune", "--older-than", "0s", "--yes")
    assert "deleted 2 runs" in done.out
    assert "were given back to the system" in done.out
    assert [run["run"] for run in stage("ls", "--json").json] == ["waits"]
    assert "nothing to prune" in stage("prune", "--older-than", "0s").err
    done = stage("prune", "--run", "waits", "--include-parked", "--yes")
    assert "deleted 1 run, 1 of them parked" in done.out


def test_the_past_of_runs_goes_and_they_go_on(stage: Stage) -> None:
    """B63 B73 B83."""
    words = " ".join(f"task-{number}" for number in range(60))
    stage("run", "agent.py:worker", f"{words} ask last", "--run-id", "long")
    stage("run", "agent.py:worker", "a", "--run-id", "short")
    shown = stage("prune", "--keep-last", "0", "--history")
    assert "2 runs (1 finished, 1 parked) would lose their past" in shown.out
    assert stage("verify", "long").out.count("pruned") == 0
    done = stage("prune", "--keep-last", "0", "--history", "--yes", "--json")
    assert done.code == 0
    assert sorted(done.json["pruned"]) == ["long", "short"]
    assert done.json["reclaimed_bytes"] >= 0
    again = stage("prune", "--keep-last", "0", "--history", "--yes", "--json").json
    assert again["pruned"] == {}
    assert "nothing of it is left" in again["passed_over"]["long"]
    assert stage("answer", "long", "yes").code == 0
    assert stage("resume", "long", "agent.py:worker").code == 0
    assert stage("show", "long", "--json").json["result"] == "62 done"
    assert stage("verify", "--all").code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "say which runs"),
        (("--older-than", "30"), "no length of time"),
        (("--older-than", "-1d"), "no length of time"),
        (("--keep-last", "-1"), "no number of runs"),
        (("--run", "nobody"), "there is no run"),
        (("--run", "a/b"), "looks like a path"),
        (("--run", "one", "--keep-last", "1"), "not looked for"),
        (("--reclaim", "--keep-last", "1"), "stands alone"),
        (("--run", "waits"), "has not ended"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_command(stage: Stage, words: tuple[str, ...], told: str) -> None:
    for run_id, task in (("one", "a"), ("waits", "ask")):
        stage("run", "agent.py:worker", task, "--run-id", run_id)
    for more in ((), ("--yes",)):
        done = stage("prune", *words, *more)
        assert done.code in (1, 2)
        assert told in done.err
        assert "try: " in done.err
    assert len(stage("ls", "--json").json) == 2


def test_an_inbox_that_has_no_run(stage: Stage) -> None:
    """B71: `doctor` names it, and `prune` removes it."""
    with closing(SqliteStore("agent.db")) as store:
        assert store.append([write(inbox_of("lost"), 0, epoch=0)]) == [None]
    found = stage("doctor")
    assert "inboxes without a run: lost" in found.out
    assert stage("prune", "--run", "lost", "--yes").code == 0
    assert "inboxes" not in stage("doctor").out
    with closing(SqliteStore("agent.db")) as store:
        assert isinstance(store.append([write(inbox_of("lost"), 0, epoch=0)])[0], StaleWriter)
        assert store.list_runs(Query()).runs == []


def test_the_last_run_that_is_held_keeps_its_past(tmp_path: Path) -> None:
    """A wish for history passes over what is held."""
    path = str(tmp_path / "agent.db")
    with ind.open(path) as runs, ind.open(path) as other, other.run("r", agent_of(lambda run: None), "see"):
        assert list(chosen(runs, Wish(older_than_s=0), True)) == []
        (entry,) = runs.entries()
        assert "held" in drop_past(runs, entry).kept
