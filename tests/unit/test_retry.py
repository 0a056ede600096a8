"""A run that has failed is taken up again: what it did stays done, what failed is tried again."""

from __future__ import annotations

import asyncio

import pytest

import indelible as ind
from indelible.cli.deeds import DONE, UNDONE, Deeds
from indelible.core import events as ev
from indelible.core.record import FAILED, FINISHED, RUNNING
from indelible.errors import Misuse, NotStorable, RunMismatch, UnknownRun
from indelible.runtime.runstore import RunStore
from tests.unit.simple_agents import Death, Memory, agent_of, kinds

done: list[str] = []
outage = [True]


@pytest.fixture(autouse=True)
def world() -> None:
    """Nothing was done, and there is an outage."""
    done.clear()
    outage[:] = [True]


@ind.action
def model(prompt: str) -> str:
    done.append(f"model {prompt}")
    return prompt


@ind.action
def polish(text: str) -> str:
    if outage[0]:
        raise ConnectionError("out of reach")
    return f"fine {text}"


@ind.action(effect="irreversible")
def send(to: str, *, key: str = "") -> str:
    done.append(f"send {to}")
    return key


@ind.action(effect="irreversible", fails_cleanly=(ConnectionError,))
def post(to: str, *, key: str = "") -> str:
    done.append(f"post {key}")
    if outage[0]:
        raise ConnectionError
    return key


@ind.action(effect="irreversible", undo=lambda room: done.append(f"cancel {room}"))
def book(room: str) -> str:
    done.append(f"book {room}")
    return room


def writing(run: ind.Run[Memory]) -> None:
    task = run.state.tasks.take()
    answer = model(task) + send(task)
    run.state.notes.append(polish(answer))
    if not run.state.tasks:
        run.finish(len(run.state.notes))


def test_after_an_outage_nothing_that_was_done_is_done_again(store: RunStore) -> None:
    agent = agent_of(writing, tasks=("a", "b"), attempts=2, on_failure="fail")
    failed = agent.run("o", store=store, run_id="r")
    assert (failed.status, failed.error.partition(" (at ")[0]) == (FAILED, "ConnectionError: out of reach")
    outage[0] = False
    assert agent.run("o", store=store, run_id="r", retry=True).result == 2
    assert done == ["model a", "send a", "model b", "send b"]
    assert [deed.became for deed in Deeds.of(store.events("r"))] == [DONE, DONE]


def test_the_same_from_an_async_agent_and_from_a_loop_of_ones_own(store: RunStore) -> None:
    @ind.agent(state=Memory, attempts=1)
    async def later(run: ind.Run[Memory]) -> None:
        run.finish(polish("x"))

    assert asyncio.run(later.run("o", store=store, run_id="a")).status == FAILED
    with store.run("b", later, "o") as run, pytest.raises(ConnectionError), run.cycle():
        polish("y")
    outage[0] = False
    assert asyncio.run(later.run(store=store, run_id="a", retry=True)).result == "fine x"
    with store.run("b", later, retry=True) as run:
        assert run.is_active
        with run.cycle():
            run.finish(polish("y"))
    assert store.recover("b").record.status == FINISHED


def test_attempts_are_counted_anew_and_the_run_may_fail_again(store: RunStore) -> None:
    agent = agent_of(writing, attempts=2, on_failure="fail")
    agent.run("o", store=store, run_id="r")
    assert agent.run(store=store, run_id="r", retry=True).status == FAILED
    record = store.recover("r").record
    assert [item[2] for item in record.doc["tasks"][3].values()] == [2]
    attempts = [event.attempt for _, event in store.events("r") if isinstance(event, ev.CycleRolledBack)]
    assert attempts == [1, 2, 1, 2]
    outage[0] = False
    assert agent.run(store=store, run_id="r", retry=True).status == FINISHED
    assert done == ["model a", "send a"]


def test_tasks_given_up_before_the_run_failed_are_tried_again_too(store: RunStore) -> None:
    def body(run: ind.Run[Memory]) -> None:
        run.state.notes.append(polish(run.state.tasks.take()))
        if not run.state.tasks:
            run.finish(list(run.state.notes))

    agent = agent_of(body, tasks=("a", "b"), attempts=1)
    assert agent.run("o", store=store, run_id="r").error.startswith("IndexError")
    outage[0] = False
    assert agent.run(store=store, run_id="r", retry=True).result == ["fine a", "fine b"]


def test_a_task_whose_deed_still_stands_is_not_put_back_if_its_cycle_is_long_over(store: RunStore) -> None:
    """Done again in a new cycle, the deed would be repeated: a person looks at it."""

    def body(run: ind.Run[Memory]) -> None:
        if not run.state.tasks:
            run.finish([*run.state.notes, polish("end")])
            return
        task = run.state.tasks.take()
        if task == "a":
            send(task)
        run.state.notes.append(polish(task))

    agent = agent_of(body, tasks=("a", "b"), attempts=1)
    assert agent.run("o", store=store, run_id="r").status == FAILED
    outage[0] = False
    assert agent.run(store=store, run_id="r", retry=True).result == ["fine b", "fine end"]
    assert done == ["send a"]
    with store.run("r", agent) as run:
        assert [item.value for item in run.state.tasks.failed] == ["a"]


def test_what_failed_cleanly_is_called_with_its_key_and_what_was_undone_is_done_anew(store: RunStore) -> None:
    def body(run: ind.Run[Memory]) -> None:
        book(run.state.tasks.take())
        run.finish(post("ann"))

    agent = agent_of(body, attempts=1, on_failure="fail")
    agent.run("o", store=store, run_id="r")
    assert [line.split()[0] for line in done] == ["book", "post", "cancel"]
    outage[0] = False
    agent.run(store=store, run_id="r", retry=True)
    assert [line.split()[0] for line in done] == ["book", "post", "cancel", "book", "post"]
    assert done[1] == done[4]
    assert UNDONE not in [deed.became for deed in Deeds.of(store.events("r"))]


def test_a_task_undone_is_undone_again_if_it_is_given_up_again(store: RunStore) -> None:
    def body(run: ind.Run[Memory]) -> None:
        book(run.state.tasks.take())
        polish("x")

    agent = agent_of(body, attempts=1, on_failure="fail")
    agent.run("o", store=store, run_id="r")
    agent.run(store=store, run_id="r", retry=True)
    assert done == ["book a", "cancel a"] * 2


def test_an_answer_is_not_asked_for_again_and_a_refusal_is(store: RunStore) -> None:
    @ind.action(effect="irreversible", approve=True)
    def pay(euros: int) -> str:
        return "paid"

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        run.finish(run.ask("Who?") + pay(5))

    agent = agent_of(body, attempts=1, on_failure="fail")
    agent.run("o", store=store, run_id="r")
    store.answer("r", "ann ")
    assert agent.run(store=store, run_id="r").kind == "approve"
    store.answer("r", "no")
    assert agent.run(store=store, run_id="r").status == FAILED
    assert agent.run(store=store, run_id="r", retry=True).kind == "approve"
    store.answer("r", "yes")
    assert agent.run(store=store, run_id="r").result == "ann paid"


def test_a_deed_in_doubt_is_asked_about_before_the_retry_does_it(store: RunStore) -> None:
    """Settled while the run had failed: the retry takes what the person said."""
    wanted = [True, False]

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        if wanted.pop(0):
            risky()
        raise ValueError

    @ind.action(effect="irreversible")
    def risky() -> str:
        done.append("risky")
        raise Death

    agent = agent_of(body, attempts=1, on_failure="fail")
    with pytest.raises(Death):
        agent.run("o", store=store, run_id="r")
    assert agent.run(store=store, run_id="r").status == FAILED
    store.settle("r", "risky", happened=True, result="it did")
    retrying = agent_of(lambda run: run.finish((run.state.tasks.take(), risky())[1]))
    assert retrying.run(store=store, run_id="r", retry=True).result == "it did"
    assert done == ["risky"]


@pytest.mark.parametrize("status", [FINISHED, RUNNING, "parked"])
def test_only_a_failed_run_is_retried_and_nothing_is_written_to_another(store: RunStore, status: str) -> None:
    def body(run: ind.Run[Memory]) -> None:
        if status == "parked":
            run.ask("Who?")
        elif status == FINISHED:
            run.finish()

    agent = agent_of(body)
    stops = iter([False, True])
    agent.run("o", store=store, run_id="r", stop=lambda: next(stops) if status == RUNNING else False)
    before = kinds(store)
    with pytest.raises(Misuse, match="finished" if status == FINISHED else "has not failed") as refused:
        agent.run(store=store, run_id="r", retry=True)
    assert refused.value.hint.startswith("indelible show r" if status == FINISHED else "indelible resume r")
    assert kinds(store) == before


def test_a_retry_needs_a_run_that_exists_and_the_right_one(store: RunStore) -> None:
    agent = agent_of(writing, attempts=1, on_failure="fail")
    with pytest.raises(UnknownRun):
        agent.run("o", store=store, run_id="r", retry=True)
    with pytest.raises(Misuse, match="which run"):
        agent.run("o", store=store, retry=True)
    agent.run("o", store=store, run_id="r")
    with pytest.raises(RunMismatch):
        agent.run("p", store=store, run_id="r", retry=True)
    assert store.recover("r").record.status == FAILED
    outage[0] = False
    assert agent.run("o", store=store, run_id="r", retry=True).status == FINISHED


def test_a_process_that_dies_in_the_retry_leaves_a_run_that_goes_on(store: RunStore) -> None:
    agent = agent_of(writing, attempts=1, on_failure="fail")
    agent.run("o", store=store, run_id="r")

    def dies(run: ind.Run[Memory]) -> None:
        raise Death

    with pytest.raises(Death):
        agent_of(dies).run(store=store, run_id="r", retry=True)
    assert store.recover("r").record.status == RUNNING
    with pytest.raises(Misuse, match="has not failed"):
        agent.run(store=store, run_id="r", retry=True)
    outage[0] = False
    assert agent.run(store=store, run_id="r").status == FINISHED
    assert done == ["model a", "send a"]


def test_it_is_durable_before_the_first_call(store: RunStore) -> None:
    seen: list[list[str]] = []

    def body(run: ind.Run[Memory]) -> None:
        seen.append(kinds(store))
        raise NotStorable("stop")

    agent_of(writing, attempts=1, on_failure="fail").run("o", store=store, run_id="r")
    with pytest.raises(NotStorable):
        agent_of(body).run(store=store, run_id="r", retry=True)
    assert seen[0][-1] == "run.reopened"
