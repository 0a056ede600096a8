"""The same promises for `async def`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import indelible as ind
from indelible.errors import Misuse
from indelible.runtime.runstore import RunStore
from tests.unit.simple_agents import Death, Memory


def test_gather_replays_whatever_the_order_of_completion(store: RunStore) -> None:
    """B14: identity does not depend on which call ends when."""
    paid: list[str] = []
    die = [True]

    @ind.action
    async def complete(prompt: str, turns: int) -> str:
        for _ in range(turns):
            await asyncio.sleep(0)
        paid.append(prompt)
        return prompt.upper()

    @ind.agent(state=Memory, name="tester", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        got = await asyncio.gather(*(complete(text, turns) for text, turns in (("a", 5), ("b", 1), ("c", 3))))
        if die:
            die.pop()
            raise Death
        run.finish(got)

    with pytest.raises(Death):
        asyncio.run(agent.run("o", store=store, run_id="r"))
    assert asyncio.run(agent.run("o", store=store, run_id="r")).result == ["A", "B", "C"]
    assert sorted(paid) == ["a", "b", "c"]


def test_a_sibling_in_flight_is_waited_for_when_the_cycle_parks(store: RunStore) -> None:
    """B97: nothing paid is left without its result because another branch had to wait."""
    paid: list[str] = []

    @ind.action
    async def slow(prompt: str) -> str:
        for _ in range(10):
            await asyncio.sleep(0)
        paid.append(prompt)
        return prompt.upper()

    @ind.agent(state=Memory, name="tester", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        async def asking() -> str:
            return str(run.ask("who?"))

        run.finish(await asyncio.gather(slow("a"), asking()))

    assert asyncio.run(agent.run("o", store=store, run_id="r")).kind == "ask"
    store.answer("r", "bob")
    assert asyncio.run(agent.run("o", store=store, run_id="r")).result == ["A", "bob"]
    assert paid == ["a"]


def test_cancelling_a_deed_leaves_it_in_doubt_never_failed(store: RunStore) -> None:
    sent: list[str] = []

    @ind.action(effect="irreversible")
    async def send() -> None:
        sent.append("x")
        await asyncio.get_running_loop().create_future()

    @ind.agent(state=Memory, name="tester", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        await send()

    async def main() -> None:
        task = asyncio.create_task(agent.run("o", store=store, run_id="r"))
        while not sent:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert [call.name for call in store.recover("r").record.in_doubt()] == ["send"]
    assert asyncio.run(agent.run("o", store=store, run_id="r")).kind == "doubt"
    assert sent == ["x"]


def test_one_business_key_at_a_time(store: RunStore) -> None:
    charged: list[int] = []

    @ind.action(effect="irreversible", key=lambda n: "the order")
    async def charge(n: int) -> int:
        charged.append(n)
        await asyncio.sleep(0)
        return n

    @ind.agent(state=Memory, name="tester", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        run.finish(await asyncio.gather(charge(1), charge(2), charge(3)))

    assert asyncio.run(agent.run("o", store=store, run_id="r")).result == [1, 1, 1]
    assert charged == [1]


def test_a_call_after_its_cycle_is_refused(store: RunStore) -> None:
    late: list[Any] = []
    ended: list[asyncio.Event] = []

    @ind.action
    async def complete(text: str) -> str:
        return text

    @ind.agent(state=Memory, name="tester", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        async def straggler() -> None:
            await ended[0].wait()
            try:
                await complete("late")
            except Misuse as error:
                late.append(error)

        late.append(asyncio.create_task(straggler()))
        await asyncio.sleep(0)
        run.finish()

    async def main() -> None:
        ended.append(asyncio.Event())
        await agent.run("o", store=store, run_id="r")
        ended[0].set()
        await late[0]

    asyncio.run(main())
    assert "after its cycle had ended" in str(late[1])
