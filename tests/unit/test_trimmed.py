"""Runs whose past was pruned: they go on, are shown, verified and billed, and never called damaged for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import indelible as ind
from indelible.core import snapshots
from indelible.core.journal import Batch
from indelible.core.record import Record
from indelible.errors import JournalDamaged
from indelible.runtime.meter import PRUNED, total
from indelible.runtime.pruning import drop_past
from indelible.runtime.runstore import RunStore
from indelible.runtime.verify import verify
from indelible.stores.memory import MemoryStore
from tests.unit import cli_stage
from tests.unit.cli_stage import Stage
from tests.unit.simple_agents import Memory, agent_of, kinds

stage = cli_stage.stage


@ind.action
def paid(text: str) -> str:
    """A call that costs a cent."""
    ind.usage(usd=0.01, tokens_in=3, tokens_out=5)
    return text


def body(run: ind.Run[Memory]) -> None:
    task = run.state.tasks.take()
    run.state.notes.append(paid(f"about {task}"))
    run.state.count += 1
    if task == "ask":
        run.ask("Go on?")
    if not run.state.tasks:
        run.finish("done")


TASKS = (*(f"task {number} {'x' * 200}" for number in range(40)), "ask", "last", "very last")
agent = agent_of(body, tasks=TASKS)


@pytest.fixture
def runs() -> Iterator[RunStore]:
    """A store with a run that has committed forty cycles and waits for an answer."""
    with ind.open("memory:") as opened:
        with opened.run("r", agent, "see") as run:
            work(run)
        yield opened


def work(run: ind.Run[Memory]) -> None:
    while run.is_active:
        with run.cycle():
            body(run)
        if run.outcome.status == "parked":
            return


def dropped(runs: RunStore) -> int:
    """Drop the run's past, and return up to which event."""
    (entry,) = runs.entries()
    went = drop_past(runs, entry)
    assert not went.kept, went.kept
    (after,) = runs.entries()
    assert went.bytes == entry.stored_bytes - after.stored_bytes > 0
    assert (after.head, after.updated_at, after.live) == (entry.head, entry.updated_at, False)
    return went.events


def test_what_is_read_is_the_same(runs: RunStore) -> None:
    """B73 B83: the snapshot is enough: state, waits and what was spent are as they were."""
    before = runs.recover("r").record
    head = dropped(runs)
    found = runs.recover("r")
    found.record.chain = before.chain
    assert found.record == before
    assert found.notices == []
    assert list(runs.events("r")) == []
    assert runs.pruned("r") == head == before.seq
    assert verify(runs, "r").faults == []
    assert verify(runs, "r").pruned == head


def test_the_run_goes_on(runs: RunStore) -> None:
    """And what follows is read from the snapshot on, whichever way it is read."""
    head = dropped(runs)
    runs.answer("r", "yes")
    with runs.run("r", agent) as run:
        work(run)
        assert run.outcome.status == "finished"
        assert run.state.count == len(TASKS)
    report = verify(runs, "r")
    assert (report.faults, report.pruned) == ([], head)
    assert [seq for seq, _ in runs.events("r")] == list(range(head + 1, runs.recover("r").record.seq + 1))
    assert kinds(runs)[0] == "run.claimed"
    assert kinds(runs)[-1] == "run.finished"
    again = dropped(runs)
    assert again > head
    assert runs.recover("r").record.status == "finished"


def test_what_was_spent_still_counts(runs: RunStore) -> None:
    """In the record, in the meter and in the sum of all meters; the actions it was spent by are not known any more."""
    before = runs.recover("r").record.usage
    head = dropped(runs)
    meter = runs.meter("r")
    assert (meter.pruned, meter.events, meter.batches) == (head, head, [])
    assert len(meter.notices) == 1
    assert f"events 1 to {head} were pruned" in meter.notices[0]
    runs.answer("r", "yes")
    with runs.run("r", agent) as run:
        work(run)
    usage, meter = runs.recover("r").record.usage, runs.meter("r")
    assert usage.usd == pytest.approx(0.01 * len(TASKS))
    assert meter.calls.calls == usage.calls
    assert meter.calls.usd == pytest.approx(usage.usd)
    assert meter.actions[PRUNED].usd == pytest.approx(before.usd)
    assert meter.actions["paid"].calls == usage.calls - before.calls == 2
    assert total([meter]).calls.usd == pytest.approx(usage.usd)
    assert meter.notices == [n for n in meter.notices if "were pruned" in n]


def test_a_budget_still_holds() -> None:
    """What was spent before the beginning is part of it."""
    with ind.open("memory:") as opened:
        with opened.run("r", agent, "see", budget_usd=0.415) as run:
            work(run)
        dropped(opened)
        opened.answer("r", "yes")
        with opened.run("r", agent) as run:
            work(run)
            assert (run.outcome.status, run.outcome.kind) == ("parked", "budget")
        opened.answer("r", 1.0)
        with opened.run("r", agent) as run:
            work(run)
        assert opened.recover("r").record.status == "finished"


def test_newer_snapshots_that_are_bad_are_passed_over(runs: RunStore) -> None:
    """B83: for the one that the journal begins at, which is always kept."""
    head = dropped(runs)
    runs.answer("r", "yes")
    with runs.run("r", agent) as run:
        work(run)
    expected = runs.recover("r").record
    for _ in range(2):
        runs.store.put_snapshot("r", expected.seq, b"bad")
    found = runs.recover("r")
    found.record.chain = expected.chain
    assert found.record == expected
    assert f"snapshot at event {expected.seq}" in found.notices[0]
    assert any(f"snapshot at event {expected.seq}" in fault for fault in verify(runs, "r").faults)
    assert runs.pruned("r") == head


def test_a_torn_tail_is_cut_all_the_same(runs: RunStore) -> None:
    """B29 B89: with nothing before the snapshot to try it from."""
    head = dropped(runs)
    runs.answer("r", "yes")
    with runs.run("r", agent) as run:
        work(run)
    store = runs.store
    assert isinstance(store, MemoryStore)
    journal = store._journals["r"]
    last = journal.batches[-1]
    journal.batches[-1] = Batch(last.after_seq, last.last_seq, last.data[:20])
    found = runs.recover("r")
    assert (found.record.seq, found.cut_to) == (last.after_seq, last.last_seq)
    assert "cut off and kept aside" in found.notices[-1]
    assert verify(runs, "r").torn
    assert verify(runs, "r").faults == []
    assert runs.meter("r").pruned == head
    (entry,) = runs.entries()
    assert "torn" in drop_past(runs, entry).kept


@pytest.mark.parametrize("tail", [False, True])
def test_a_beginning_that_is_damaged_is_told_as_damage(runs: RunStore, tail: bool) -> None:
    """B89: nothing stands for what was pruned any more: a clear error, and no new run in its place."""
    head = dropped(runs)
    if tail:
        runs.answer("r", "yes")
        with runs.run("r", agent) as run:
            work(run)
    runs.store.put_snapshot("r", head, b"bad")
    with pytest.raises(JournalDamaged, match=r"snapshot at event|does not follow"):
        runs.recover("r")
    with pytest.raises(JournalDamaged), runs.run("r", agent, "see"):
        pass
    with pytest.raises(JournalDamaged):
        list(runs.events("r"))
    report = verify(runs, "r")
    assert not report.ok
    assert f"snapshot at event {head}" in report.faults[0]
    assert "nothing of the run is counted" in runs.meter("r").notices[0]


def test_first_batches_that_are_missing_are_no_pruning(runs: RunStore) -> None:
    """B90: a journal begins later only where a snapshot says so."""
    store = runs.store
    assert isinstance(store, MemoryStore)
    del store._journals["r"].batches[0]
    with pytest.raises(JournalDamaged, match="no snapshot stands there"):
        runs.pruned("r")
    assert not verify(runs, "r").ok


def test_nothing_is_dropped_that_would_not_be_rebuilt(runs: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """B83: the snapshot is compared with the fold of the journal, and read back, before anything goes."""
    (entry,) = runs.entries()
    before = list(runs.store.read("r"))
    monkeypatch.setattr(snapshots, "decode", lambda data, run_id, seq: Record(run_id, seq))
    assert drop_past(runs, entry).kept
    monkeypatch.undo()
    monkeypatch.setattr(runs.store, "get_snapshot", lambda run_id, at_most_seq: None)
    assert "another snapshot back" in drop_past(runs, entry).kept
    monkeypatch.undo()
    assert list(runs.store.read("r")) == before
    assert not next(iter(runs.entries())).live, "and nobody holds the run"


def test_a_held_run_keeps_its_past(runs: RunStore) -> None:
    """A live process reads its own journal by its chain."""
    (entry,) = runs.entries()
    with runs.run("r", agent):
        assert "is held by" in drop_past(runs, entry).kept
    assert runs.pruned("r") == 0


def test_the_commands_say_it_once(stage: Stage) -> None:
    """B73: "pruned", never "damaged"; and none of them refuses."""
    stage("run", "agent.py:worker", "send a b c d e f g h i j k l m n o p q ask z", "--run-id", "r")
    code, out, err = stage("prune", "--run", "r", "--history", "--yes")
    assert (code, err) == (0, "")
    assert "pruned the past of 1 run" in out
    for verb in ("log", "show", "effects", "bill", "verify"):
        code, out, err = stage(verb, "r")
        assert code == 0, (verb, out, err)
        assert (out + err).count("were pruned") == 1, (verb, out, err)
        assert "damaged" not in out + err
        assert "does not verify" not in out + err
