"""User code that raises where nobody expects it: in an observer, a probe, an undo, a migration, an invariant."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

import indelible as ind
from indelible.core import events as ev
from indelible.errors import NotStorable, StateInvalid, UnknownRun
from indelible.runtime.runstore import RunStore
from indelible.runtime.verify import verify
from tests.unit.simple_agents import Death, Memory, agent_of, kinds


class Mute(Exception):
    """Neither its text nor its representation can be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Thing:
    """No value that can be kept, and one that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    __str__ = __repr__


@dataclass(eq=False)
class Note:
    """A value that can be kept, but neither shown nor compared."""

    text: str

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment]


def check_let_go(runs: RunStore) -> None:
    for entry in runs.entries():
        assert (entry.owner, entry.live) == ("", False)
        assert not verify(runs, entry.run_id).faults


def watched(runs: RunStore, at: int, error: Exception) -> tuple[str, list[str]]:
    """A run whose observer raises at its nth event: the kind of that event, and the deeds done."""
    sent: list[str] = []
    seen: list[str] = []

    @ind.action(effect="irreversible")
    def send(what: str) -> str:
        sent.append(what)
        return what

    @ind.action
    def think(what: str) -> str:
        return what.upper()

    def body(run: ind.Run[Memory]) -> None:
        run.state.notes.append(send(think(run.state.tasks.take())))
        if not run.state.tasks:
            run.finish(list(run.state.notes))

    def saw(event: ev.Event) -> None:
        seen.append(ev.kind_of(event))
        if len(seen) == at:
            raise error

    agent = agent_of(body, tasks=("a", "b"))
    with suppress(type(error)):
        assert agent.run("o", store=runs, run_id="r", observe=saw).is_finished
        assert len(seen) < at
    assert runs.recover("r").record.status == "finished"
    check_let_go(runs)
    assert "cycle.rolled_back" not in kinds(runs)
    return seen[at - 1] if len(seen) >= at else "", sent


@pytest.mark.parametrize("error", [ZeroDivisionError(), Mute()])
def test_what_an_observer_raises_does_not_disturb_the_run(error: Exception) -> None:
    """It counts as no failure of the task, keeps no event from being written, and is raised when all is done."""
    at, met = 0, set()
    while True:
        at += 1
        with ind.open("memory:") as runs:
            kind, sent = watched(runs, at, error)
        assert sent == ["A", "B"]
        if not kind:
            break
        met.add(kind)
    assert {"run.started", "run.claimed", "action.completed", "cycle.committed", "run.finished"} <= met


@pytest.mark.parametrize("where", ["cycle.committed", "run.finished"])
def test_an_interruption_between_the_last_commit_and_the_end_leaves_neither(store: RunStore, where: str) -> None:
    """B95: a run kept as committed but not as finished would have no task left, and fail."""

    def saw(event: ev.Event) -> None:
        if ev.kind_of(event) == where:
            raise Death

    def body(run: ind.Run[Memory]) -> None:
        run.finish(run.state.tasks.take())

    agent = agent_of(body)
    with pytest.raises(Death):
        agent.run("o", store=store, run_id="r", observe=saw)
    assert "cycle.committed" not in kinds(store)
    assert agent.run("o", store=store, run_id="r").result == "a"


def test_an_observer_of_an_async_run_and_of_ones_own_loop_is_told_of_as_well(store: RunStore) -> None:
    def saw(event: ev.Event) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        async with store.run("r", Memory, "o", observe=saw) as run, run.cycle():
            run.finish("done")

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())
    assert store.recover("r").record.status == "finished"
    with pytest.raises(KeyError), store.run("s", Memory, "o", observe=saw):
        raise KeyError  # the block's own error comes first
    check_let_go(store)


@pytest.mark.parametrize("error", [ValueError, Mute, Death])
def test_a_start_function_that_raises_leaves_no_run(store: RunStore, error: type[BaseException]) -> None:
    """B53: no run without its first state; the same id can be started once the function is mended."""
    agent = agent_of(lambda run: run.finish(run.state.tasks.take()))
    begin = agent.spec.start

    @agent.start
    def start(run: ind.Run[Memory]) -> None:
        run.state.tasks.append("half done")
        raise error

    with pytest.raises(error):
        agent.run("o", store=store, run_id="r")
    assert list(store.entries()) == []
    with pytest.raises(UnknownRun):
        store.recover("r")
    agent.spec.start = begin
    assert agent.run("o", store=store, run_id="r").result == "a"


def older_run(store: RunStore) -> None:
    with store.run("r", agent_of(lambda run: None), "o") as run, run.cycle():
        run.state.count = 7


@pytest.mark.parametrize("error", [ValueError, Mute, Death])
def test_a_migration_that_raises_changes_nothing(store: RunStore, error: type[BaseException]) -> None:
    older_run(store)
    newer = agent_of(lambda run: run.finish(run.state.count), version=2)

    @newer.migration(1)
    def spoil(data: dict[str, Any]) -> dict[str, Any]:
        data["count"] = -1
        raise error

    with pytest.raises(StateInvalid if issubclass(error, Exception) else error) as caught:
        newer.run("o", store=store, run_id="r")
    if isinstance(caught.value, StateInvalid):
        assert f"migration from version 1 failed with {error.__name__}" in str(caught.value)
    check_let_go(store)
    assert "state.migrated" not in kinds(store)
    assert agent_of(lambda run: run.finish(run.state.count)).run("o", store=store, run_id="r").result == 7


@pytest.mark.parametrize("error", [ValueError, Mute, Death])
def test_an_invariant_that_raises_stops_the_run_by_name(store: RunStore, error: type[BaseException]) -> None:
    older_run(store)
    agent = agent_of(lambda run: run.finish(run.state.count))

    @agent.invariant
    def holds(state: Memory) -> bool:
        raise error

    with pytest.raises(StateInvalid if issubclass(error, Exception) else error) as caught:
        agent.run("o", store=store, run_id="r")
    if isinstance(caught.value, StateInvalid):
        assert f"the invariant holds does not hold: {error.__name__}" in str(caught.value)
    check_let_go(store)
    agent.spec.invariants.clear()
    assert agent.run("o", store=store, run_id="r").result == 7


def test_a_probe_that_is_interrupted_decides_nothing(store: RunStore) -> None:
    """B97: the deed stays in doubt, and its probe is asked again when the run is resumed."""
    sent: list[str] = []
    asked: list[str] = []

    def probe() -> Any:
        asked.append("x")
        if len(asked) < 3:
            raise Death
        return ind.happened("sent")

    @ind.action(effect="irreversible", probe=probe)
    def send() -> str:
        sent.append("x")
        raise TimeoutError

    agent = agent_of(lambda run: run.finish(send()))
    for _ in range(2):
        with pytest.raises(Death):
            agent.run("o", store=store, run_id="r")
        check_let_go(store)
        assert len(store.recover("r").record.in_doubt()) == 1
    assert agent.run("o", store=store, run_id="r").result == "sent"
    assert sent == ["x"]


@pytest.mark.parametrize("answer", [Thing, Mute])
def test_a_probe_whose_words_cannot_be_shown_leaves_the_doubt(store: RunStore, answer: Callable[[], Any]) -> None:
    def probe() -> Any:
        if issubclass(Mute, answer):  # type: ignore[arg-type]
            raise Mute
        return answer()

    @ind.action(effect="irreversible", probe=probe)
    def send() -> None:
        raise Mute

    outcome = agent_of(lambda run: send()).run("o", store=store, run_id="r")
    assert outcome.kind == "doubt"
    assert ("its probe failed" if answer is Mute else "its probe returned Thing") in outcome.question


def test_an_undo_whose_error_cannot_be_shown_does_not_keep_the_others_from_theirs(store: RunStore) -> None:
    undone: list[str] = []

    def broken() -> None:
        raise Mute

    def fine() -> None:
        undone.append("flight")

    @ind.action(effect="irreversible", undo=fine)
    def flight() -> None:
        """Booked."""

    @ind.action(effect="irreversible", undo=broken)
    def hotel() -> None:
        """Booked."""

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        flight()
        hotel()
        raise Mute

    outcome = agent_of(body, attempts=1, on_failure="fail").run("o", store=store, run_id="r")
    assert (outcome.status, outcome.error.partition(" (at ")[0]) == (
        "failed", "Mute: (its text cannot be read: RuntimeError)")  # fmt: skip
    assert undone == ["flight"]
    (rolled,) = [event for _, event in store.events("r") if isinstance(event, ev.CycleRolledBack)]
    assert [call.partition("-")[0] for call in rolled.orphaned] == ["hotel"]


class Shy(ind.State):
    notes: ind.Log[Note]
    by_name: ind.Map[str, Note]
    one: Note | None = None
    anything: Any = None


def test_values_that_cannot_be_shown_are_kept_all_the_same(store: RunStore) -> None:
    @ind.action
    def think(note: Note) -> Note:
        return Note(note.text.upper())

    @ind.action(effect="irreversible")
    def send(note: Note) -> Note:
        return note

    @ind.agent(state=Shy, backoff_s=0)
    def agent(run: ind.Run[Shy]) -> None:
        run.state.one = send(think(Note("a")))
        run.state.notes.append(run.state.one)
        run.state.by_name["x"] = run.state.one
        run.finish(run.state.one)

    assert agent.run("o", store=store, run_id="r").result.text == "A"
    with store.run("r", agent) as run:
        assert [run.state.notes[0].text, run.state.by_name["x"].text] == ["A", "A"]


@pytest.mark.parametrize(
    ("spoil", "path"),
    [
        (lambda run: setattr(run.state, "anything", {"k": [Thing()]}), r"state\.anything.*k.*\[0\]: Thing"),
        (lambda run: run.state.notes.append(Thing()), r"state\.notes.*Thing"),
        (lambda run: run.state.by_name.update({Thing(): Note("x")}), r"state\.by_name.*Thing"),
        (lambda run: run.finish(Thing()), "result: Thing"),
    ],
)
def test_values_that_can_neither_be_kept_nor_shown_are_refused_by_path(
    store: RunStore, spoil: Callable[[ind.Run[Shy]], None], path: str
) -> None:
    @ind.agent(state=Shy, name="shy", backoff_s=0)
    def agent(run: ind.Run[Shy]) -> None:
        spoil(run)

    with pytest.raises(NotStorable, match=path):
        agent.run("o", store=store, run_id="r")
    check_let_go(store)
    assert store.recover("r").record.attempt == 1


def test_errors_that_cannot_be_shown_fail_their_task_and_no_more(store: RunStore) -> None:
    """One raised by the cycle, one by an action, one in a group, each with a part that cannot be kept."""

    @ind.action
    def fails() -> None:
        raise Mute(Thing())

    def body(run: ind.Run[Memory]) -> None:
        task = run.state.tasks.take()
        if task == "raise":
            raise Mute(Thing())
        if task == "group":
            raise ExceptionGroup("several", [Mute(), ValueError("and this")])
        if task == "action":
            fails()
        run.finish([item.error for item in run.state.tasks.failed])

    agent = agent_of(body, tasks=("raise", "action", "group", "end"), attempts=2)
    mute = "Mute: (its text cannot be read: RuntimeError)"
    group = f"ExceptionGroup: {mute}; ValueError: and this"
    assert agent.run("o", store=store, run_id="r").result == [mute, mute, group]


def test_a_stop_function_or_a_key_function_that_raises_is_heard(store: RunStore) -> None:
    @ind.action(effect="irreversible", key=lambda n: str(1 // n))
    def pay(n: int) -> None:
        """Paid."""

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        pay(0)

    def stop() -> bool:
        raise Mute

    agent = agent_of(body, attempts=1, on_failure="fail")
    with pytest.raises(Mute):
        agent.run("o", store=store, run_id="r", stop=stop)
    check_let_go(store)
    assert "ZeroDivisionError" in agent.run("o", store=store, run_id="r").error
    assert "action.intended" not in kinds(store)
