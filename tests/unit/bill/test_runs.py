"""Runs read as courses: the loops, the patches and the sizes against the store they were written to."""

from __future__ import annotations

from typing import Any

import pytest

import indelible as ind
from indelible.bill.document import apply
from indelible.bill.jsonform import fields_of
from indelible.bill.runs import read
from indelible.bill.strategies import OURS, encode, states
from indelible.core import events as ev
from indelible.core.snapshots import FIRST_AFTER_BYTES
from indelible.errors import UnknownRun
from indelible.runtime.agents import Agent
from indelible.runtime.runstore import RunStore
from indelible.stores.base import Write
from tests.unit.simple_agents import Memory, agent_of


@pytest.fixture
def store() -> Any:
    with ind.open("memory:") as opened:
        yield opened


@ind.action
def think(task: str) -> str:
    ind.usage(tokens_in=10, tokens_out=5, usd=None if task == "?" else 0.25)
    return task.upper()


@ind.action
def look(task: str) -> str:
    return task * 3


@ind.action(effect="irreversible")
def deliver(task: str) -> str:
    return f"delivered {task}"


def run(store: RunStore, agent: Agent[Memory], run_id: str = "r") -> None:
    agent.run("an objective", store=store, run_id=run_id)


def working(run: ind.Run[Memory]) -> None:
    task = run.state.tasks.take()
    run.state.notes.append(think(task))
    run.state.notes.append(look(task))
    run.state.count += 1
    if task == "b":
        run.state.tasks.append("c")
    if not run.state.tasks:
        run.finish(None)


def kinds_of(records: tuple[bytes, ...]) -> list[str]:
    return [ev.kind_of(event) for record in records for event in ev.decode(b"\x91" + record, "")]


def test_a_committed_cycle_is_a_loop(store: RunStore) -> None:
    run(store, agent_of(working, tasks=("a", "b")))
    course = read(store, "r")
    item = {"priority": 0, "attempts": 0, "not_before": None}
    assert course.start == {
        "tasks": {"items": {"0": {"value": "a", **item}, "1": {"value": "b", **item}}, "failed": {}},
        "notes": [],
        "count": 0,
    }
    assert [set(map(str, loop.patch)) for loop in course.loops][1] == {
        str({"op": "remove", "path": "/tasks/items/1"}),
        str({"op": "add", "path": "/tasks/items/2", "value": {"value": "c", **item}}),
        str({"op": "add", "path": "/notes/-", "value": "B"}),
        str({"op": "add", "path": "/notes/-", "value": "bbb"}),
        str({"op": "replace", "path": "/count", "value": 2}),
    }
    assert (course.name, course.kind, len(course.loops)) == ("r", "tester", 3)
    assert [loop.usd for loop in course.loops] == [0.25] * 3
    assert [loop.tokens for loop in course.loops] == [15] * 3
    assert all(loop.decision and loop.took_s is not None for loop in course.loops)
    cycle = ["cycle.entered", "action.completed", "action.completed", "cycle.committed"]
    assert kinds_of(course.loops[0].records) == ["run.started", "run.claimed", *cycle]
    assert kinds_of(course.loops[2].records) == [*cycle, "run.finished"]
    assert course.notices == ()


def test_the_patches_lead_to_the_state_in_the_store(store: RunStore) -> None:
    run(store, agent_of(working, tasks=("a", "b")))
    course = read(store, "r")
    assert [state["count"] for _, _, state in states(course)] == [1, 2, 3]
    *_, (_, _, state) = states(course)
    assert state == fields_of(store.recover("r").record.doc)


def test_the_sizes_are_those_in_the_store(store: RunStore) -> None:
    run(store, agent_of(working, tasks=("a", "b")))
    course = read(store, "r")
    assert list(course.batches) == [len(batch.data) for batch in store.store.read("r")]
    assert course.snapshots == ()
    assert course.sealing_s > 0
    ours = next(each for each in encode(course) if each.strategy == OURS)
    assert ours.footprint.writes.total == next(store.entries()).stored_bytes


def test_snapshots_are_told_as_kept(store: RunStore) -> None:
    def growing(run: ind.Run[Memory]) -> None:
        run.state.notes.append(run.random.randbytes(FIRST_AFTER_BYTES // 2).hex())
        run.state.count += 1
        if run.state.count == 12:
            run.finish(None)

    run(store, agent_of(growing, tasks=()))
    course = read(store, "r")
    newest = store.store.get_snapshot("r", 2**62)
    assert newest is not None
    assert len(course.snapshots) == 2
    assert course.snapshots[-1] == len(newest[1])
    assert course.snapshots[0] < course.snapshots[1]


def test_what_a_rolled_back_attempt_recorded_belongs_to_the_loop_it_precedes(store: RunStore) -> None:
    """B113: the call is recalled by the second attempt, so its money is there once."""
    tries: list[int] = []

    def failing_once(run: ind.Run[Memory]) -> None:
        task = run.state.tasks.take()
        run.state.notes.append(think(task))
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("once")
        run.finish(None)

    run(store, agent_of(failing_once))
    course = read(store, "r")
    assert kinds_of(course.loops[0].records) == [
        "run.started", "run.claimed", "cycle.entered", "action.completed", "cycle.rolled_back",
        "cycle.entered", "cycle.committed", "run.finished",
    ]  # fmt: skip
    assert (len(course.loops), course.loops[0].usd) == (1, 0.25)
    assert {"op": "replace", "path": "/tasks/items/0/attempts", "value": 1} in course.loops[0].patch
    *_, (_, _, state) = states(course)
    assert state == fields_of(store.recover("r").record.doc)


def test_what_follows_the_last_commit_belongs_to_the_last_loop(store: RunStore) -> None:
    def fails_in_the_end(run: ind.Run[Memory]) -> None:
        task = run.state.tasks.take()
        run.state.notes.append(think(task))
        if task == "b":
            raise ValueError("always")

    agent = agent_of(fails_in_the_end, tasks=("a", "b"), attempts=1, on_failure="fail")
    run(store, agent)
    course = read(store, "r")
    assert len(course.loops) == 1
    assert kinds_of(course.loops[0].records)[-3:] == ["action.completed", "cycle.rolled_back", "run.failed"]
    assert course.loops[0].usd == 0.5
    *_, (_, _, state) = states(course)
    assert list(state["tasks"]["failed"]) == ["1"]
    assert state == fields_of(store.recover("r").record.doc)


def test_a_deed_is_a_decision_and_so_is_a_change_of_a_queue(store: RunStore) -> None:
    def turns(run: ind.Run[Memory]) -> None:
        run.state.count += 1
        if run.state.count == 2:
            deliver("it")
        if run.state.count == 3:
            run.state.tasks.append("more")
        if run.state.count == 4:
            run.finish(None)

    run(store, agent_of(turns, tasks=()))
    assert [loop.decision for loop in read(store, "r").loops] == [False, True, True, False]


def test_a_price_that_is_not_known_is_unknown(store: RunStore) -> None:
    run(store, agent_of(working, tasks=("?", "a")))
    assert [loop.usd for loop in read(store, "r").loops] == [None, 0.25]


def test_a_run_without_usage_says_so(store: RunStore) -> None:
    """B113: no silent zero."""

    def unpaid(run: ind.Run[Memory]) -> None:
        if run.state.tasks:
            look(run.state.tasks.take())
        else:
            run.finish(None)

    run(store, agent_of(unpaid))
    course = read(store, "r")
    assert [loop.usd for loop in course.loops] == [None, 0.0]
    assert course.notices == ("no call of run 'r' reported what it used (`indelible.usage`): its money is unknown",)


def test_a_changed_state_class_is_a_patch(store: RunStore) -> None:
    class Older(ind.State):
        notes: ind.Log[str]
        gone: int = 7

    class Newer(ind.State):
        notes: ind.Log[str]
        title: str = "none"

    @ind.agent(state=Older, name="changing", version=1)
    def older(run: ind.Run[Older]) -> None:
        run.state.notes.append("old")
        if len(run.state.notes) == 1:
            run.ask("go on?")

    @ind.agent(state=Newer, name="changing", version=2)
    def newer(run: ind.Run[Newer]) -> None:
        run.state.title = "new"
        run.finish(None)

    assert older.run("x", store=store, run_id="r").status == "parked"
    store.answer("r", "yes")
    newer.run(store=store, run_id="r")
    course = read(store, "r")
    assert course.start == {"notes": [], "gone": 7}
    assert course.loops[0].patch[:2] == (
        {"op": "remove", "path": "/gone"},
        {"op": "add", "path": "/title", "value": "none"},
    )
    state = dict(course.start)
    apply(state, course.loops[0].patch)
    assert state == {"notes": [], "title": "new"}


def test_a_torn_last_batch_is_said_and_left_out(store: RunStore) -> None:
    run(store, agent_of(working, tasks=("a", "b")))
    batches = list(store.store.read("r"))
    with ind.open("memory:") as torn:
        torn.store.claim("r", "owner", 60)
        cut = [*batches[:-1], batches[-1]._replace(data=batches[-1].data[:-1])]
        assert torn.store.append([Write("r", 1, batch) for batch in cut]) == [None] * len(cut)
        course = read(torn, "r")
    assert len(course.notices) == 1
    assert course.notices[0].endswith("it is left out")
    assert len(course.batches) == len(batches) - 1


def test_a_run_that_committed_nothing_says_so(store: RunStore) -> None:
    def asks(run: ind.Run[Memory]) -> None:
        run.ask("now?")

    run(store, agent_of(asks))
    course = read(store, "r")
    assert course.loops == ()
    assert course.notices == ("run 'r' has committed no cycle yet",)
    assert list(course.batches) == [len(batch.data) for batch in store.store.read("r")]


def test_an_unknown_run_is_refused(store: RunStore) -> None:
    with pytest.raises(UnknownRun, match="there is no run 'nobody'"):
        read(store, "nobody")
