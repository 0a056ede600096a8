"""A `def` called where an event loop runs: it works, or says at once why it cannot; it never hangs (B99)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import indelible as ind
from indelible.errors import Misuse
from indelible.runtime.runstore import RunStore
from tests.unit.simple_agents import Memory, agent_of, kinds

PATIENCE_S = 60.0


def in_a_loop(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it in an event loop of another thread, so that a hang is seen and does not hang the tests."""
    raised: list[BaseException] = []

    def serve() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "it hangs"
    if raised:
        raise raised[0]


@ind.action
def think(prompt: str) -> str:
    ind.usage(usd=0.01)
    return prompt.upper()


@ind.action(effect="irreversible")
def send(text: str) -> str:
    return f"{text} sent"


@ind.action(effect="irreversible", key=lambda order: order)
def pay(order: str) -> str:
    return f"{order} paid"


def test_a_def_agent_runs_inside_a_running_loop(store: RunStore) -> None:
    """B99: everything it does is done in the calling thread."""

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        if run.attempt == 1:
            raise ValueError("once")
        run.finish(
            [think("a"), send("b"), pay("c"), run.now().tzname(), len(run.new_id()), 0 <= run.random.random() < 1]
        )

    async def main() -> None:
        outcome = agent_of(body).run("o", store=store, run_id="r")
        assert outcome.result == ["A", "b sent", "c paid", "UTC", 36, True]

    in_a_loop(main)


def test_def_actions_in_an_async_cycle_share_its_journal_while_others_are_under_way(store: RunStore) -> None:
    """B99: a batch of an async sibling is in flight; the `def` waits for the writer, not for the loop."""
    done: list[str] = []

    @ind.action(effect="irreversible")
    async def asend(n: int) -> int:
        await asyncio.sleep(0)
        done.append("async")
        return n

    @ind.agent(state=Memory, name="tester", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        async def both(n: int) -> list[Any]:
            return [send(f"before {n}"), await asend(n), think(f"after {n}"), run.new_id() != "", pay(f"order {n}")]

        run.finish(await asyncio.gather(*(both(n) for n in range(8))))

    async def main() -> None:
        outcome = await agent.run("o", store=store, run_id="r")
        assert outcome.result == [[f"before {n} sent", n, f"AFTER {n}", True, f"order {n} paid"] for n in range(8)]

    in_a_loop(main)
    assert len(done) == 8


def test_a_keyed_def_that_another_thread_performs_is_refused_at_once(store: RunStore) -> None:
    """B99: what that thread does may need the loop, so it is not waited for here; threads wait for one another."""
    paid: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    @ind.action(effect="irreversible", key=lambda order: order)
    def pay_slowly(order: str) -> str:
        begun.set()
        go_on.wait(PATIENCE_S)
        paid.append(order)
        return f"{order} paid"

    @ind.agent(state=Memory, name="tester", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        one, two = (asyncio.create_task(asyncio.to_thread(pay_slowly, "x")) for _ in range(2))
        while not begun.is_set():
            await asyncio.sleep(0)
        with pytest.raises(Misuse, match="would never end"):
            pay_slowly("x")
        go_on.set()
        run.finish([await one, await two, pay_slowly("x")])

    async def main() -> None:
        assert (await agent.run("o", store=store, run_id="r")).result == ["x paid"] * 3

    in_a_loop(main)
    assert paid == ["x"]


def test_a_with_block_that_would_wait_for_tasks_of_its_own_loop_is_refused(store: RunStore) -> None:
    """B99: the cycle is left by `with` while a task still performs an action of it; the run can be gone on with."""

    @ind.action
    async def slow() -> str:
        await asyncio.sleep(0)
        return "slow"

    async def main() -> None:
        with store.run("r", Memory, "o") as run:
            tasks: list[asyncio.Task[str]] = []

            async def block() -> None:
                with run.cycle():
                    run.state.count = 1
                    tasks.append(asyncio.create_task(slow()))
                    await asyncio.sleep(0)

            with pytest.raises(Misuse, match="async with"):
                await block()
            await tasks[0]
            assert run.state.count == 0
            with run.cycle():
                run.state.count = 2
            assert (run.state.count, run.attempt, run.cycle_number) == (2, 1, 2)

    in_a_loop(main)
    assert kinds(store)[-2:] == ["cycle.entered", "cycle.committed"]
