"""Many processes on one file, and a foreign lock on it: all get through, or are told, and nothing paid is dropped."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, groupby
from pathlib import Path

import pytest

import indelible as ind
from indelible.core import events as ev
from indelible.drive.clock import SystemClock
from indelible.errors import StoreUnavailable
from indelible.runtime.runstore import RunStore
from indelible.runtime.verify import verify
from indelible.stores import sqlite_file, writer
from indelible.stores.sqlite import SqliteStore
from indelible.testing.ledger import Ledger
from tests.crash.contending_agent import CYCLES, counter
from tests.crash.live import Live

AGENT = Path(__file__).with_name("contending_agent.py")
LOCKER = Path(__file__).with_name("locking_process.py")


def all_at_once(folder: Path, *processes: tuple[str, ...]) -> None:
    """Let them go when all are there; each ends well and without a complaint."""
    lives = [Live(folder, AGENT, *arguments) for arguments in processes]
    try:
        for live in lives:
            assert live.hear() == "ready"
        for live in lives:
            live.tell()
        assert [live.hear() for live in lives] == ["done"] * len(lives)
        assert [live.end() for live in lives] == [(0, "")] * len(lives)
    finally:
        for live in lives:
            live.__exit__()


def test_four_processes_at_full_speed_get_through_and_lose_nothing(tmp_path: Path) -> None:
    """B49: 4 processes, 50 cycles each, as fast as they can, on one file; nobody is told that it is locked."""
    names = [[f"p{process}-{n}" for n in range(2)] for process in range(4)]
    all_at_once(tmp_path, *(("own", "agent.db", *some) for some in names))
    deeds = [deed.what for deed in Ledger(tmp_path / "ledger").read()]
    with ind.open(str(tmp_path / "agent.db"), readonly=True) as runs:
        for name in chain(*names):
            assert not verify(runs, name).faults
            record = runs.recover(name).record
            assert (record.status, record.committed, record.in_doubt()) == ("finished", CYCLES, [])
            wanted = [f"{name} {n}" for n in range(CYCLES)]
            assert [what for what in deeds if what.startswith(f"{name} ")] == wanted
            assert not {"cycle.rolled_back", "action.failed"} & {ev.kind_of(event) for _, event in runs.events(name)}
        assert not any(entry.live for entry in runs.entries())
    assert len(deeds) == 4 * 2 * CYCLES


def test_two_that_resume_from_the_same_stale_list_advance_each_run_one_at_a_time(tmp_path: Path) -> None:
    """B50, B54: whoever does not get a run is told before any deed; an entry that is over is not run again."""
    names = [f"r{n}" for n in range(6)]
    with ind.open(str(tmp_path / "agent.db")) as runs:
        for name in names:
            with runs.run(name, counter, "share"):
                pass
    all_at_once(tmp_path, ("share", "agent.db", *names), ("share", "agent.db", *names))
    deeds = Ledger(tmp_path / "ledger").read()
    with ind.open(str(tmp_path / "agent.db"), readonly=True) as runs:
        for name in names:
            done = [(deed.kind, deed.what) for deed in deeds if deed.what.startswith(f"{name} ")]
            assert done == [(kind, f"{name} {n}") for n in range(3) for kind in ("begin", "end")]
            assert not verify(runs, name).faults
            told = [event for _, event in runs.events(name)]
            epochs = [event.epoch for event in told if isinstance(event, ev.RunClaimed)]
            assert epochs == sorted(set(epochs))
            # Each cycle was done by one process from its beginning to its end.
            entered = [event.cycle for event in told if isinstance(event, ev.CycleEntered)]
            assert [number for number, _ in groupby(entered)] == entered == [1, 2, 3]
    for _, pair in groupby(deeds, key=lambda deed: deed.what):
        assert len({deed.process for deed in pair}) == 1


class Foreign:
    """A lock that another program holds, let go of when someone waits for it, or when told."""

    def __init__(self, locker: Live) -> None:
        self._locker = locker
        self.held = False
        self.waits = 0

    def hold(self) -> None:
        self._locker.tell()
        assert self._locker.hear() == "locked"
        self.held = True

    def let_go(self) -> None:
        self._locker.tell()
        assert self._locker.hear() == "free"
        self.held = False


@pytest.fixture
def path(tmp_path: Path) -> str:
    where = str(tmp_path / "agent.db")
    ind.open(where).close()
    return where


@pytest.fixture
def foreign(path: str, tmp_path: Path) -> Iterator[Foreign]:
    with Live(tmp_path, LOCKER, path) as locker:
        yield Foreign(locker)


class Notes(ind.State):
    notes: ind.Log[str]
    count: int = 0


paid: list[str] = []


@ind.action
def think(prompt: str) -> str:
    paid.append(prompt)
    ind.usage(usd=0.01)
    return prompt.upper()


@ind.action(effect="irreversible")
def send(what: str) -> str:
    paid.append(what)
    return f"{what} sent"


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    paid.clear()


def check_journal(path: str, *notes: str) -> None:
    """One commit with these notes; no trouble of the store's is in the journal as an outcome (B55)."""
    with ind.open(path) as runs:
        assert not verify(runs, "r").faults
        kinds = [ev.kind_of(event) for _, event in runs.events("r")]
        assert not {"action.failed", "action.doubted", "cycle.rolled_back", "run.failed"} & set(kinds)
        with runs.run("r", Notes) as run:
            assert list(run.state.notes) == list(notes)
            assert run.attempt == 1


@pytest.mark.parametrize("where", ["opening", "an answer", "a deed", "the commit", "closing"])
def test_a_foreign_lock_is_waited_for(where: str, path: str, foreign: Foreign, monkeypatch: pytest.MonkeyPatch) -> None:
    """B49: it is held for longer than a first try, and for less than we are ready to wait."""
    patience = sqlite_file._Patience.__call__

    def wait(self: sqlite_file._Patience, tries: int) -> bool:
        foreign.waits += 1
        if tries == 5:
            foreign.let_go()
        return patience(self, tries)

    monkeypatch.setattr(sqlite_file._Patience, "__call__", wait)

    def at(here: str) -> None:
        if here == where:
            foreign.hold()

    with RunStore(SqliteStore(path, busy_s=60), SystemClock()) as runs:
        at("opening")
        with runs.run("r", Notes, "o") as run:
            with run.cycle():
                at("an answer")
                run.state.notes.append(think("a"))
                at("a deed")
                run.state.notes.append(send("b"))
                at("the commit")
            at("closing")
    assert (foreign.held, foreign.waits, paid) == (False, 6, ["a", "b"])
    check_journal(path, "A", "b sent")


@pytest.fixture
def hasty(path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunStore]:
    """A store that does not wait for long."""
    monkeypatch.setattr(writer, "pauses", lambda _: iter((0.001,)))
    with RunStore(SqliteStore(path, busy_s=0.005), SystemClock()) as runs:
        yield runs


def test_what_was_paid_for_under_a_lasting_lock_is_kept_and_written_later(
    path: str, foreign: Foreign, hasty: RunStore
) -> None:
    """B49, B55: told with a type, and not as a failure of the action; asked for again, it is not paid for again."""
    with hasty.run("r", Notes, "o") as run, run.cycle():
        foreign.hold()
        with pytest.raises(StoreUnavailable, match="another process kept it locked"):
            think("a")
        run.state.notes.append(think("a"))  # the same call made again, and its answer is known in this process
        foreign.let_go()
    assert paid == ["a"]
    check_journal(path, "A")


def test_no_deed_is_begun_under_a_lasting_lock(path: str, foreign: Foreign, hasty: RunStore) -> None:
    with hasty.run("r", Notes, "o") as run, run.cycle():
        foreign.hold()
        with pytest.raises(StoreUnavailable):
            send("b")
        assert paid == []
        foreign.let_go()
        run.state.notes.append(send("b"))
    assert paid == ["b"]
    check_journal(path, "b sent")


def test_a_deed_that_was_done_when_the_lock_came_is_kept_and_written_later(
    path: str, foreign: Foreign, hasty: RunStore
) -> None:
    """B49: the completion cannot be written just now, and is known in this process."""

    @ind.action(effect="irreversible")
    def send_and_lock() -> str:
        paid.append("b")
        foreign.hold()
        return "b sent"

    with hasty.run("r", Notes, "o") as run:
        with pytest.raises(StoreUnavailable), run.cycle():
            send_and_lock()
        foreign.let_go()
        with run.cycle():
            run.state.notes.append(send_and_lock())
    assert paid == ["b"]
    check_journal(path, "b sent")


def test_a_commit_under_a_lasting_lock_holds_once_it_can_be_written(
    path: str, foreign: Foreign, hasty: RunStore
) -> None:
    """B53: it is written once, by whatever is written next."""
    with hasty.run("r", Notes, "o") as run:
        with pytest.raises(StoreUnavailable), run.cycle():
            run.state.notes.append(think("a"))
            foreign.hold()
        assert list(run.state.notes) == ["A"]
        foreign.let_go()
        with run.cycle():
            run.state.count += 1
    assert paid == ["a"]
    check_journal(path, "A")


def test_a_run_that_cannot_be_opened_under_a_lasting_lock_is_not_there(
    path: str, foreign: Foreign, hasty: RunStore
) -> None:
    """B53: no run without its first event, and nothing in the way of starting it later."""
    foreign.hold()
    with pytest.raises(StoreUnavailable), hasty.run("r", Notes, "o"):
        raise AssertionError("it is open")
    foreign.let_go()
    assert list(hasty.entries()) == []
    with hasty.run("r", Notes, "o"), ind.open(path) as others:
        assert [entry.run_id for entry in others.entries()] == ["r"]
