"""What makes a cycle wait gets through: task groups, `gather(return_exceptions=True)`, a caught time limit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import indelible as ind
from indelible.errors import NotStorable
from indelible.runtime.runstore import RunStore
from tests.unit.simple_agents import Memory, agent_of, kinds


def test_asking_in_a_task_group_parks_the_run(store: RunStore) -> None:
    """A task group wraps the signal in a group of exceptions; the run waits all the same."""

    @ind.agent(state=Memory, name="tester", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        async def asking() -> str:
            return str(run.ask("who?"))

        async with asyncio.TaskGroup() as group:
            task = group.create_task(asking())
        run.finish(task.result())

    assert asyncio.run(agent.run("o", store=store, run_id="r")).kind == "ask"
    store.answer("r", "ada")
    assert asyncio.run(agent.run("o", store=store, run_id="r")).result == "ada"


def test_a_queue_without_a_due_task_parks_the_run_from_a_task_group_as_well(store: RunStore) -> None:
    @ind.agent(state=Memory, name="tester", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        async def taking() -> str:
            return run.state.tasks.take()

        async with asyncio.TaskGroup() as group:
            group.create_task(taking())

    @agent.start
    def start(run: ind.Run[Memory]) -> None:
        run.state.tasks.append("later", not_before=2e10)

    assert asyncio.run(agent.run("o", store=store, run_id="r", wait=False)).kind == "due"


def test_a_signal_that_gather_returns_as_a_value_is_not_lost(store: RunStore) -> None:
    """`return_exceptions=True` hands the signal over as a result; the cycle must not commit on it."""

    @ind.agent(state=Memory, name="tester", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        async def asking() -> str:
            return str(run.ask("who?"))

        got = await asyncio.gather(asking(), return_exceptions=True)
        run.finish(got)

    assert asyncio.run(agent.run("o", store=store, run_id="r")).kind == "ask"
    assert "cycle.committed" not in kinds(store)
    store.answer("r", "ada")
    assert asyncio.run(agent.run("o", store=store, run_id="r")).result == ["ada"]


def test_an_error_that_follows_from_a_lost_signal_is_no_failed_attempt(store: RunStore) -> None:
    @ind.action(effect="irreversible", approve=True)
    def pay() -> str:
        return "paid"

    def body(run: ind.Run[Memory]) -> None:
        try:
            paid = pay()
        except BaseException:
            paid = ""
        run.finish({"paid": 1}[paid])

    agent = agent_of(body)
    assert agent.run("o", store=store, run_id="r").kind == "approve"
    store.answer("r", "yes")
    assert agent.run("o", store=store, run_id="r").result == 1
    assert "cycle.rolled_back" not in kinds(store)


@pytest.mark.parametrize(
    ("answer", "policy", "stands"),
    [
        (ind.happened(), "ask", "finished"),
        (ind.did_not_happen(), "ask", "finished"),
        (ind.unknown(), "ask", "doubt"),
        (ind.unknown(), "assume_happened", "finished"),
        (ind.unknown(), "assume_not", "finished"),
        (ind.happened(object()), "ask", "finished"),
    ],
)
def test_no_cycle_commits_over_a_deed_that_it_left_in_doubt(
    store: RunStore, answer: Any, policy: Any, stands: str
) -> None:
    """A time limit that the agent catches proves nothing: probe, policy or person decide before the commit."""

    def probe() -> Any:
        return answer

    limits: list[asyncio.Timeout] = []

    @ind.action(effect="irreversible", probe=probe, on_doubt=policy)
    async def send() -> None:
        limits[0].reschedule(0)
        await asyncio.get_running_loop().create_future()

    @ind.agent(state=Memory, name="tester", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        try:
            async with asyncio.timeout(None) as limit:
                limits.append(limit)
                await send()
        except TimeoutError:
            run.finish("went on")

    outcome = asyncio.run(agent.run("o", store=store, run_id="r"))
    assert (outcome.kind or outcome.status) == stands
    assert len(store.recover("r").record.in_doubt()) == (stands == "doubt")


def test_the_last_attempt_asks_about_its_doubt_before_the_task_is_given_up(store: RunStore) -> None:
    limits: list[asyncio.Timeout] = []

    @ind.action(effect="irreversible")
    async def send() -> None:
        limits[0].reschedule(0)
        await asyncio.get_running_loop().create_future()

    @ind.agent(state=Memory, name="tester", backoff_s=0, attempts=1)
    async def agent(run: ind.Run[Memory]) -> None:
        async with asyncio.timeout(None) as limit:
            limits.append(limit)
            await send()

    assert asyncio.run(agent.run("o", store=store, run_id="r")).kind == "doubt"


def test_an_error_of_indelible_in_a_task_group_stops_the_run_and_counts_no_attempt(store: RunStore) -> None:
    @ind.action
    async def tool() -> Any:
        return object()

    @ind.agent(state=Memory, name="tester", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(tool())

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(agent.run("o", store=store, run_id="r"))
    assert isinstance(caught.value.exceptions[0], NotStorable)
    assert store.recover("r").record.attempt == 1


def test_a_group_of_errors_is_told_by_what_it_holds(store: RunStore) -> None:
    def body(run: ind.Run[Memory]) -> None:
        raise ExceptionGroup("unhandled errors in a TaskGroup", [ValueError("no such city")])

    outcome = agent_of(body, attempts=1).run("o", store=store, run_id="r")
    assert outcome.error.startswith("ExceptionGroup: ValueError: no such city (at test_review_signals.py:")
