"""What the drivers wait for, in threads and in an event loop, and the clock they read."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextvars import copy_context

import pytest

import indelible as ind
from indelible.drive.clock import SystemClock
from indelible.drive.port import Port
from indelible.drive.stopping import StoppableClock
from indelible.runtime.runstore import RunStore
from indelible.stores.memory import MemoryStore
from tests.unit.simple_agents import Memory, agent_of, kinds

PATIENCE_S = 10.0


@pytest.fixture
def port() -> Port:
    return Port(MemoryStore(lambda: 0.0), SystemClock())


class Asked:
    """Whether somebody has asked when the actions of the cycle are over, which is what a cycle does at its end."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.tell: Callable[[], object] = lambda: None
        idle = Port.idle

        def asked(port: Port) -> Future[None] | None:
            answer = idle(port)
            self.tell()
            return answer

        patch.setattr(Port, "idle", asked)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    made = Asked(monkeypatch)
    yield made
    made.tell()


def test_a_cycle_ends_after_the_actions_of_its_threads(store: RunStore, asked: Asked) -> None:
    """B97: an answer that a thread has paid for is in the journal before the cycle's end is."""
    begun, ending = threading.Event(), threading.Event()
    asked.tell = ending.set

    @ind.action
    def complete(prompt: str) -> str:
        begun.set()
        assert ending.wait(PATIENCE_S)
        return prompt.upper()

    def body(run: ind.Run[Memory]) -> None:
        threading.Thread(target=copy_context().run, args=(complete, "a"), daemon=True).start()
        assert begun.wait(PATIENCE_S)
        run.finish()

    assert agent_of(body).run("o", store=store, run_id="r").is_finished
    told = kinds(store)
    assert told.index("action.completed") < told.index("cycle.committed")


def test_a_cycle_ends_after_the_actions_of_its_tasks(store: RunStore, asked: Asked) -> None:
    """B97: the same in an event loop."""
    tasks: list[asyncio.Task[str]] = []

    @ind.action
    async def complete(prompt: str) -> str:
        ending = asyncio.Event()
        asked.tell = ending.set
        await ending.wait()
        return prompt.upper()

    @ind.agent(state=Memory, name="tester", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        tasks.append(asyncio.create_task(complete("a")))
        await asyncio.sleep(0)
        run.finish()

    assert asyncio.run(agent.run("o", store=store, run_id="r")).is_finished
    told = kinds(store)
    assert told.index("action.completed") < told.index("cycle.committed")


def test_idle_is_when_the_last_one_has_ended(port: Port) -> None:
    assert port.idle() is None
    with port.busy():
        with port.busy():
            waiting = port.idle()
            assert waiting is not None
        assert not waiting.done()
    assert waiting.done()
    assert port.idle() is None


def test_an_action_that_is_disposed_of_in_another_thread_has_ended(port: Port) -> None:
    """B98: a coroutine may be closed far from where it began, and a commit must not wait for it for ever."""
    one = port.busy()
    began = threading.Thread(target=one.__enter__)
    began.start()
    began.join(PATIENCE_S)
    waiting = port.idle()
    assert waiting is not None
    one.__exit__(None, None, None)
    assert waiting.done()
    assert port.idle() is None


def test_the_clock_tells_the_time_of_day() -> None:
    """What is written into a journal must mean the same after the machine was started anew."""
    before = time.time()
    assert before - 1 <= SystemClock().now() <= time.time() + 1


def test_no_two_keys_are_alike() -> None:
    clock = SystemClock()
    assert len({clock.entropy(16) for _ in range(1000)}) == 1000
    assert {len(clock.entropy(size)) for size in (8, 16)} == {8, 16}


def test_a_wait_ends_when_it_is_told_to() -> None:
    """A signal that asks a process to stop is heard while it sleeps, and before it sleeps."""
    clock = StoppableClock()
    sleeping = threading.Thread(target=clock.sleep, args=(3600.0,), daemon=True)
    sleeping.start()
    clock.stop()
    sleeping.join(PATIENCE_S)
    assert not sleeping.is_alive()
    asyncio.run(asyncio.wait_for(clock.asleep(3600.0), PATIENCE_S))
    clock.close()
