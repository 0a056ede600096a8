"""What a cycle promises: commit, roll-back, waiting, opening."""

from __future__ import annotations

from typing import Any

import pytest

import indelible as ind
from indelible.errors import Misuse, NotStorable, RunBusy, RunMismatch, StateInvalid, UnknownRun
from indelible.runtime.runstore import RunStore
from indelible.stores.memory import MemoryStore
from tests.golden.make import TickingClock
from tests.unit.simple_agents import Memory, agent_of, kinds


def test_a_task_that_fails_for_good_moves_to_the_failed_list_and_the_run_goes_on(store: RunStore) -> None:
    """B22, B23: failed stays failed, nothing is dropped, the rest of the queue is worked off."""

    def body(run: ind.Run[Memory]) -> None:
        task = run.state.tasks.take()
        if task == "bad":
            raise ValueError("never works")
        run.state.notes.append(task)
        if not run.state.tasks:
            run.finish(list(run.state.notes))

    outcome = agent_of(body, tasks=("a", "bad", "b"), attempts=2).run("o", store=store, run_id="r")
    assert outcome.result == ["a", "b"]
    with store.run("r", agent_of(body)) as run:
        failed = run.state.tasks.failed
        assert [(item.value, item.attempts) for item in failed] == [("bad", 2)]
        assert "never works" in failed[0].error
        assert run.state.tasks.added == run.state.tasks.done + len(failed) + len(run.state.tasks)


def test_a_cycle_that_fails_without_a_task_fails_the_run(store: RunStore) -> None:
    def body(run: ind.Run[Memory]) -> None:
        raise ValueError("broken")

    outcome = agent_of(body, attempts=2).run("o", store=store, run_id="r")
    assert (outcome.status, outcome.error.partition(" (at ")[0]) == ("failed", "ValueError: broken")
    assert kinds(store)[-2:] == ["cycle.rolled_back", "run.failed"]


def test_a_roll_back_leaves_nothing_of_the_cycle(store: RunStore) -> None:
    tries: list[tuple[int, int, int]] = []

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        tries.append((run.state.count, len(run.state.notes), len(run.state.tasks)))
        run.state.count += 1
        run.state.notes.append("x")
        run.state.tasks.extend(["p", "q"])
        if len(tries) < 3:
            raise ValueError
        run.finish()

    agent_of(body).run("o", store=store, run_id="r")
    assert tries == [(0, 0, 0)] * 3


def test_a_value_that_cannot_be_stored_is_refused_before_any_deed_and_loses_nothing(store: RunStore) -> None:
    """B34, B38: the path is named, the deed has not been done, the run goes on once the code is mended."""
    sent: list[str] = []

    class Loose(ind.State):
        data: dict[str, Any] = {}  # noqa: RUF012

    broken = [True]

    @ind.action(effect="irreversible")
    def send() -> None:
        sent.append("x")

    @ind.agent(state=Loose, backoff_s=0)
    def loose(run: ind.Run[Loose]) -> None:
        run.state.data["connection"] = {"socket": object()} if broken else "fine"
        send()
        run.finish(run.state.data)

    with pytest.raises(NotStorable, match=r"state\.data.*connection.*socket.*object"):
        loose.run("o", store=store, run_id="r")
    assert sent == []
    broken.clear()
    assert loose.run("o", store=store, run_id="r").result == {"connection": "fine"}


def test_a_result_that_cannot_be_stored_is_refused_at_once_by_name(store: RunStore) -> None:
    """B37: permanent, immediate, never retried; and a deed with such a result still counts as done."""
    calls: list[str] = []

    @ind.action
    def tool() -> Any:
        calls.append("tool")
        return object()

    @ind.action(effect="irreversible")
    def deed() -> Any:
        calls.append("deed")
        return object()

    which = [tool, deed, deed]

    def body(run: ind.Run[Memory]) -> None:
        which[0]()

    agent = agent_of(body)
    for expected in (["tool"], ["tool", "deed"], ["tool", "deed"]):
        with pytest.raises(NotStorable, match=r"tool\(\) result|deed"):
            agent.run("o", store=store, run_id="r")
        assert calls == expected
        which.pop(0)


def test_state_changes_only_inside_a_cycle(store: RunStore) -> None:
    with store.run("r", Memory, "o") as run:
        with pytest.raises(Misuse, match="cycle"):
            run.state.count = 3
        with run.cycle():
            run.state.count = 3
        assert run.state.count == 3


def test_an_own_loop_rolls_back_and_raises(store: RunStore) -> None:
    with store.run("r", Memory, "o") as run:
        with run.cycle():
            run.state.tasks.append("a")
        with pytest.raises(ZeroDivisionError), run.cycle():
            run.state.tasks.take()
            _ = 1 // 0
        assert run.attempt == 2
        with run.cycle():
            assert run.state.tasks.take() == "a"
            assert run.state.tasks.attempts == 2
            run.finish("done")
        assert not run.is_active
    assert run.outcome.result == "done"


def test_asking_suspends_and_answers_come_back_where_they_were_asked(store: RunStore) -> None:
    """B07: effects before the question happen once, each question has a stable identity."""
    sent: list[str] = []

    @ind.action(effect="irreversible")
    def send(text: str) -> None:
        sent.append(text)

    def body(run: ind.Run[Memory]) -> None:
        send("start")
        answers = [run.ask("Which supplier?"), run.ask("Which supplier?"), run.ask("How many?")]
        run.finish(answers)

    agent = agent_of(body)
    for answer in ("ada", "bob", 3):
        assert agent.run("o", store=store, run_id="r").kind == "ask"
        store.answer("r", answer)
    assert agent.run("o", store=store, run_id="r").result == ["ada", "bob", 3]
    assert sent == ["start"]
    with pytest.raises(Misuse, match="does not wait"):
        store.answer("r", "late")


@pytest.mark.parametrize(("answer", "status"), [("yes", "sent"), ("no", "refused")])
def test_approval_is_asked_for_before_the_intent(store: RunStore, answer: str, status: str) -> None:
    sent: list[str] = []

    @ind.action(effect="irreversible", approve=True)
    def pay(amount: int) -> str:
        sent.append("paid")
        return "sent"

    def body(run: ind.Run[Memory]) -> None:
        try:
            run.finish(pay(5))
        except ind.DidNotHappen:
            run.finish("refused")

    agent = agent_of(body)
    assert agent.run("o", store=store, run_id="r").kind == "approve"
    assert "action.intended" not in kinds(store)
    store.answer("r", answer)
    assert agent.run("o", store=store, run_id="r").result == status
    assert len(sent) == (status == "sent")


def test_asking_inside_a_deed_is_refused(store: RunStore) -> None:
    @ind.action(effect="idempotent")
    def pay(run_it: str) -> str:
        return str(held[0].ask("sure?"))

    held: list[ind.Run[Memory]] = []

    def body(run: ind.Run[Memory]) -> None:
        held.append(run)
        pay("x")

    with pytest.raises(Misuse, match="inside an action"):
        agent_of(body).run("o", store=store, run_id="r")


def test_recorded_values_stay_the_same_when_the_cycle_is_entered_again(store: RunStore) -> None:
    seen: list[Any] = []

    def body(run: ind.Run[Memory]) -> None:
        seen.append((run.now(), run.now(), run.random.random(), run.random.random(), run.new_id(), run.new_id()))
        run.ask("go on?")
        run.finish()

    agent = agent_of(body)
    agent.run("o", store=store, run_id="r")
    store.answer("r", "yes")
    agent.run("o", store=store, run_id="r")
    assert seen[0] == seen[1]
    assert seen[0][4] != seen[0][5]
    assert seen[0][2] != seen[0][3]


def test_a_run_of_another_agent_or_objective_is_refused_with_the_difference(store: RunStore) -> None:
    """B27: same id, other purpose: stop, show both, offer choices."""

    def body(run: ind.Run[Memory]) -> None:
        run.ask("wait")

    agent_of(body).run("find suppliers", store=store, run_id="r")
    with pytest.raises(RunMismatch, match=r"'find suppliers', not 'find customers'"):
        agent_of(body).run("find customers", store=store, run_id="r")
    with pytest.raises(RunMismatch, match=r"belongs to agent 'tester', not to 'Memory'"), store.run("r", Memory):
        pass
    assert agent_of(body).run(store=store, run_id="r").status == "parked"


def test_an_unknown_run_is_an_error_and_leaves_no_trace(store: RunStore) -> None:
    """B26: resuming what does not exist resumes nothing and says so."""

    def body(run: ind.Run[Memory]) -> None:
        run.finish()

    with pytest.raises(UnknownRun):
        agent_of(body).run(store=store, run_id="nobody")
    assert list(store.entries()) == []
    assert agent_of(body).run("o", store=store, run_id="nobody").is_finished


def test_a_live_run_is_refused_before_any_deed(store: RunStore) -> None:
    """B50: one wins, the other is told before it does anything."""
    with store.run("r", Memory, "o") as run, run.cycle():
        with pytest.raises(RunBusy), store.run("r", Memory, "o"):
            pass
        run.state.count = 1
    with store.run("r", Memory) as again:
        assert again.state.count == 1


def test_older_state_meets_newer_code_step_by_step(store: RunStore) -> None:
    """B74, B75: migrated, defaults filled in, unknown fields kept aside and reported."""

    class Old(ind.State):
        tasks: ind.Queue[str]
        note: str = "old"
        gone: int = 5

    class New(ind.State):
        tasks: ind.Queue[str]
        notes: ind.Log[str]
        added: int = 7

    with store.run("r", ind.agent(state=Old, name="ag")(lambda run: None), "o") as old, old.cycle():
        old.state.tasks.extend(["a", "b"])

    newer = ind.agent(state=New, name="ag", version=3)(lambda run: None)

    @newer.migration(1)
    def one(state: dict[str, Any]) -> dict[str, Any]:
        note = state.pop("note")
        return {**state, "notes": [note]}

    @newer.migration(2)
    def two(state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "notes": [*state["notes"], "two"]}

    with store.run("r", newer) as run:
        assert list(run.state.notes) == ["old", "two"]
        assert run.state.added == 7
        assert list(run.state.tasks) == ["a", "b"]
    record = store.recover("r").record
    assert (record.version, record.unknown_fields) == (3, {"gone": 5})
    with (
        pytest.raises(StateInvalid, match="last written by version 3"),
        store.run("r", ind.agent(state=New, name="ag", version=2)(lambda run: None)),
    ):
        pass


def test_an_invariant_that_does_not_hold_stops_the_run_by_name(store: RunStore) -> None:
    with store.run("r", ind.agent(state=Memory, name="ag")(lambda run: None), "o") as run, run.cycle():
        run.state.count = -1
    strict = ind.agent(state=Memory, name="ag")(lambda run: None)

    @strict.invariant
    def counts_up(state: Memory) -> str | None:
        return f"count is {state.count}" if state.count < 0 else None

    with pytest.raises(StateInvalid, match="counts_up does not hold: count is -1"), store.run("r", strict):
        pass
    assert not next(iter(store.entries())).live


def test_a_cycle_that_is_entered_again_takes_the_task_it_took_before() -> None:
    """A delayed task that has become due meanwhile must not shift what is already recorded."""
    clock = TickingClock()
    store = RunStore(MemoryStore(clock.now), clock)
    taken: list[str] = []

    @ind.action
    def complete(task: str) -> str:
        return task.upper()

    def body(run: ind.Run[Memory]) -> None:
        task = run.state.tasks.take()
        taken.append(task)
        complete(task)
        run.ask("go on?")
        run.finish()

    agent = agent_of(body, tasks=())

    @agent.start
    def start(run: ind.Run[Memory]) -> None:
        run.state.tasks.append("later, but urgent", priority=-1, not_before=clock.time + 30)
        run.state.tasks.append("now")

    agent.run("o", store=store, run_id="r")
    clock.sleep(60)
    store.answer("r", "yes")
    agent.run("o", store=store, run_id="r")
    assert taken == ["now", "now"]
    store.close()


def test_a_queue_whose_tasks_are_not_due_waits_for_the_first() -> None:
    clock = TickingClock()
    store = RunStore(MemoryStore(clock.now), clock)

    def body(run: ind.Run[Memory]) -> None:
        run.state.notes.append(run.state.tasks.take())
        if not run.state.tasks:
            run.finish(list(run.state.notes))

    agent = agent_of(body, tasks=())

    @agent.start
    def start(run: ind.Run[Memory]) -> None:
        run.state.tasks.append("second", not_before=clock.time + 500)
        run.state.tasks.append("first", not_before=clock.time + 100)

    assert agent.run("o", store=store, run_id="r", wait=False).kind == "due"
    assert agent.run("o", store=store, run_id="r").result == ["first", "second"]
    store.close()


def test_a_run_that_fails_for_want_of_tasks_names_the_task_it_gave_up(store: RunStore) -> None:
    """The cause that a person looks for is the failure of the task, not the empty queue after it."""

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        raise ConnectionError("model is down")

    outcome = agent_of(body, attempts=1).run("o", store=store, run_id="r")
    assert outcome.status == "failed"
    assert "the last with ConnectionError: model is down" in outcome.error
