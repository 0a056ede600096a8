"""Code and world have diverged only if no other branch of the cycle is about to ask for what was done."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import indelible as ind
from indelible.runtime.runstore import RunStore
from tests.unit.simple_agents import Death, Memory, agent_of, kinds


@pytest.mark.parametrize("turns", [0, 3])
def test_a_branch_that_lags_behind_is_no_divergence(store: RunStore, turns: int) -> None:
    """B14: the second branch had sent its mail, the first had not; on resume the first comes before it."""
    sent: list[str] = []
    die = [True]

    @ind.action(effect="irreversible")
    async def send(text: str) -> None:
        sent.append(text)

    @ind.agent(state=Memory, name="tester", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        async def first() -> None:
            if die:
                while not sent:
                    await asyncio.sleep(0)
                die.pop()
                raise Death
            await send("a")

        async def second() -> None:
            for _ in range(0 if die else turns):
                await asyncio.sleep(0)
            await send("b")

        await asyncio.gather(first(), second())
        run.finish()

    with pytest.raises(Death):
        asyncio.run(agent.run("o", store=store, run_id="r"))
    assert asyncio.run(agent.run("o", store=store, run_id="r")).is_finished
    assert sent == ["b", "a"]


def test_a_def_action_that_blocks_the_loop_while_it_waits_finds_out_at_the_end(store: RunStore) -> None:
    """The other branch cannot run meanwhile; the cycle is entered once more instead of asking anyone."""
    sent: list[str] = []
    die = [True]

    @ind.action(effect="irreversible")
    def send(text: str) -> None:
        sent.append(text)

    @ind.agent(state=Memory, name="tester", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        async def first() -> None:
            if die:
                await asyncio.sleep(0)
                die.pop()
                raise Death
            send("a")

        async def second() -> None:
            send("b")

        await asyncio.gather(first(), second())
        run.finish()

    with pytest.raises(Death):
        asyncio.run(agent.run("o", store=store, run_id="r"))
    assert asyncio.run(agent.run("o", store=store, run_id="r")).is_finished
    assert sent == ["b", "a"]
    assert "wait.answered" in kinds(store)


def test_deeds_of_many_threads_are_done_once_each_whatever_order_the_retry_has(store: RunStore) -> None:
    sent: list[str] = []

    @ind.action(effect="irreversible")
    def send(text: str) -> None:
        sent.append(text)

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        order = range(30) if run.attempt == 1 else reversed(range(60))
        with ThreadPoolExecutor(8) as pool:
            for future in [pool.submit(contextvars.copy_context().run, send, str(n)) for n in order]:
                future.result()
        if run.attempt == 1:
            raise ValueError
        run.finish()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        assert agent_of(body).run("o", store=store, run_id="r").is_finished
    finally:
        sys.setswitchinterval(before)
    assert sorted(sent, key=int) == [str(n) for n in range(60)]
