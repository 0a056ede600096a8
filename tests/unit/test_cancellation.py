"""Cancelled at each wait, ended in mid-run, closed early: nothing is lost or done twice, the run can be had at once."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import indelible as ind
from indelible.core import events as ev
from indelible.runtime.runstore import RunStore
from indelible.runtime.verify import verify
from tests.unit.cancelling import RESULT, Saboteur, World, journey, to_the_end
from tests.unit.simple_agents import Memory, kinds


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """What was never awaited or never looked at is told when it is collected; warnings are errors."""
    yield
    gc.collect()


def check_let_go(runs: RunStore) -> None:
    """Nobody holds a run, and what was written of it verifies."""
    for entry in runs.entries():
        assert (entry.owner, entry.live) == ("", False)
        assert not verify(runs, entry.run_id).faults


def cancelled_at(at: int, whom: str, runs: RunStore) -> bool:
    """One journey that is cut off there and then resumed to its end; False if it was over before."""
    world, saboteur = World(), Saboteur(at, whom)
    agent = journey(world)

    async def work() -> None:
        if (await agent.run("See the world", store=runs, run_id="r")).kind == "ask":
            runs.answer("r", "go on")
            await agent.run("See the world", store=runs, run_id="r")

    with suppress(asyncio.CancelledError):
        asyncio.run(saboteur.run(work()))
    assert saboteur.complaints == []
    check_let_go(runs)
    before = list(runs.events("r"))
    assert to_the_end(agent, runs).result == RESULT
    after = list(runs.events("r"))
    assert after[: len(before)] == before
    assert not {"run.failed", "action.failed"} & {ev.kind_of(event) for _, event in after}
    assert [e.error for _, e in after if isinstance(e, ev.CycleRolledBack)] == ["ValueError: no such hotel"]
    assert set(world.answered.values()) == {1}
    assert set(world.done) == {"mail", "order", "fax", "room", "letter"}
    assert set(world.done.values()) == {1}
    assert world.undone == {"room"}
    assert runs.recover("r").record.in_doubt() == []
    return saboteur.struck


@pytest.mark.parametrize("whom", ["the first task", "the task that waits", "the program"])
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_cut_off_at_each_wait_nothing_is_lost_or_done_twice(kind: str, whom: str, tmp_path: Path) -> None:
    """B95, B97, B98: opening, model call, gather, deeds, keyed deeds, time limit, task group, undo, commit, closing."""
    at, struck = 0, True
    while struck:
        at += 1
        with ind.open(str(tmp_path / f"{at}.db") if kind == "file" else "memory:", durability="os") as runs:
            struck = cancelled_at(at, whom, runs)
    assert at > 40


def test_a_store_given_by_its_path_is_closed_whatever_wait_is_cut_off(tmp_path: Path) -> None:
    """The thread that opens the run is waited for before the store is closed under it."""
    at, struck = 0, True
    while struck and at < 8:
        at += 1
        world, saboteur = World(), Saboteur(at, "the first task")
        agent, path = journey(world), str(tmp_path / f"{at}.db")
        with suppress(asyncio.CancelledError):
            asyncio.run(saboteur.run(agent.run("See the world", store=path, run_id="r")))
        struck = saboteur.struck
        with ind.open(path) as runs:
            check_let_go(runs)
            assert to_the_end(agent, runs).result == RESULT
        assert set(world.done.values()) | set(world.answered.values()) == {1}


@pytest.mark.parametrize("fails", [False, True])
def test_cancelled_while_a_cycle_waits_for_its_branches_the_next_can_be_entered(store: RunStore, fails: bool) -> None:
    """Someone who owns the loop puts a time limit around a cycle; it strikes while the cycle is being left."""

    async def main() -> None:
        gate = asyncio.Event()

        @ind.action
        async def slow() -> int:
            await gate.wait()
            return 1

        async def block(run: ind.Run[Memory]) -> None:
            async with run.cycle():
                run.state.count += 1
                branches.append(asyncio.create_task(slow()))
                await asyncio.sleep(0)
                if fails:
                    raise ValueError

        branches: list[asyncio.Task[int]] = []
        async with store.run("r", Memory, "o") as run:
            task = asyncio.create_task(block(run))
            while not branches:
                await asyncio.sleep(0)
            for _ in range(3):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
            gate.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await branches[0], run.state.count, run.attempt) == (1, 0, 1)
            async with run.cycle():
                run.state.count += 10
            assert run.state.count == 10

    asyncio.run(main())
    assert kinds(store)[2:] == ["cycle.entered", "action.completed", "cycle.entered", "cycle.committed"]
    check_let_go(store)


def test_cancelled_between_commit_and_end_both_are_durable(store: RunStore) -> None:
    """B95: the last commit is awaited to its end before the cancellation is passed on."""

    @ind.agent(state=Memory, name="tester", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        run.finish("done")

    def saw(event: ev.Event) -> None:
        if isinstance(event, ev.RunFinished):
            tasks[0].cancel()

    tasks: list[asyncio.Task[Any]] = []

    async def main() -> None:
        tasks.append(asyncio.create_task(agent.run("o", store=store, run_id="r", observe=saw)))
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]

    asyncio.run(main())
    assert kinds(store)[-2:] == ["cycle.committed", "run.finished"]
    assert store.recover("r").record.status == "finished"


def counting(store: RunStore) -> Any:
    """An async generator that yields in the middle of each cycle."""
    sent: list[int] = []

    @ind.action(effect="irreversible")
    async def send(n: int) -> int:
        await asyncio.sleep(0)
        sent.append(n)
        return len(sent)

    async def numbers() -> AsyncIterator[int]:
        async with store.run("r", Memory, "o") as run:
            while run.is_active:
                async with run.cycle():
                    run.state.count += 1
                    yield await send(run.state.count)

    return numbers


@pytest.mark.parametrize("how", ["closed", "dropped", "kept until the loop ends"])
def test_a_generator_that_is_closed_early_commits_nothing_of_that_cycle(store: RunStore, how: str) -> None:
    """B95: the consumer stops after the second number; what it paid for is kept, and the cycle is not committed."""
    kept: list[Any] = []
    complaints: list[Any] = []
    numbers = counting(store)

    async def main() -> list[int]:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        got: list[int] = []
        stream = numbers()
        if how.startswith("kept"):
            kept.append(stream)
        async for number in stream:
            got.append(number)
            if len(got) == 2:
                break
        if how == "closed":
            await stream.aclose()
        return got

    assert asyncio.run(main()) == [1, 2]
    gc.collect()
    assert complaints == []
    check_let_go(store)
    record = store.recover("r").record
    assert (record.committed, record.attempt, record.status) == (1, 1, "running")

    async def again() -> int:
        stream = numbers()
        try:
            number: int = await anext(stream)
            return number
        finally:
            await stream.aclose()

    assert asyncio.run(again()) == 2  # from the journal; no third deed


@pytest.mark.parametrize("owner", ["agent", "loop"])
def test_a_coroutine_that_is_disposed_of_is_no_failed_attempt(
    store: RunStore, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B95: the event loop is closed with the run in the middle of an action, and nobody has cancelled anything."""
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    sent: list[str] = []

    @ind.action(effect="irreversible")
    async def send() -> None:
        sent.append("x")

    @ind.action
    async def hang() -> None:
        sent.append("hangs")
        await asyncio.get_running_loop().create_future()

    @ind.agent(state=Memory, name="Memory", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        await send()
        await hang()

    async def own() -> None:
        async with store.run("r", Memory, "o") as run, run.cycle():
            await agent(run)

    async def until_it_hangs() -> None:
        while "hangs" not in sent:
            await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # asyncio tells of a task that was destroyed
    tasks = [loop.create_task(agent.run("o", store=store, run_id="r") if owner == "agent" else own())]
    loop.run_until_complete(until_it_hangs())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    tasks.clear()
    gc.collect()
    check_let_go(store)
    assert kinds(store)[-3:] == ["cycle.entered", "action.intended", "action.completed"]
    assert store.recover("r").record.attempt == 1
    assert told == []
