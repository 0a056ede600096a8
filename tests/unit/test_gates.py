"""Keyed actions inside one another: what would wait for ever is refused, and what only waits is not."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import indelible as ind
from indelible.drive.clock import SystemClock
from indelible.drive.port import Port
from indelible.errors import Misuse
from indelible.runtime.runstore import RunStore
from tests.unit.simple_agents import Memory, agent_of


def test_tasks_that_nest_keyed_actions_in_opposite_order_are_refused(store: RunStore) -> None:
    """B14: it does not hang, and both actions are named."""

    @ind.action(name="gate_a", key=lambda deeper: "a")
    async def gate_a(deeper: bool) -> str:
        await asyncio.sleep(0)
        return "a" + (await gate_b(False) if deeper else "")

    @ind.action(name="gate_b", key=lambda deeper: "b")
    async def gate_b(deeper: bool) -> str:
        await asyncio.sleep(0)
        return "b" + (await gate_a(False) if deeper else "")

    @ind.agent(state=Memory, name="tester")
    async def agent(run: ind.Run[Memory]) -> None:
        found = await asyncio.gather(gate_a(True), gate_b(True), return_exceptions=True)
        (refused,) = [each for each in found if isinstance(each, Misuse)]
        run.finish([refused.what, [each for each in found if isinstance(each, str)]])

    what, done = asyncio.run(asyncio.wait_for(agent.run("o", store=store, run_id="r"), 30)).result
    assert "gate_a-" in what
    assert "gate_b-" in what
    assert done in (["ab"], ["ba"])


def test_threads_that_nest_keyed_actions_in_opposite_order_are_refused(store: RunStore) -> None:
    inside = threading.Barrier(2)

    @ind.action(name="lock_a", key=lambda deeper: "a")
    def lock_a(deeper: bool) -> str:
        if deeper:
            inside.wait(30)
        return "a" + (lock_b(False) if deeper else "")

    @ind.action(name="lock_b", key=lambda deeper: "b")
    def lock_b(deeper: bool) -> str:
        if deeper:
            inside.wait(30)
        return "b" + (lock_a(False) if deeper else "")

    def body(run: ind.Run[Memory]) -> None:
        with ThreadPoolExecutor(2) as pool:
            both: list[Future[Any]] = [
                pool.submit(contextvars.copy_context().run, lock, True) for lock in (lock_a, lock_b)
            ]
        errors = [type(each.exception()).__name__ for each in both]
        run.finish(sorted(errors))

    assert agent_of(body).run("o", store=store, run_id="r").result == ["Misuse", "NoneType"]


@pytest.fixture
def port() -> Port:
    return Port(None, SystemClock())


def test_a_ring_of_three_is_found(port: Port) -> None:
    for call in "abc":
        assert not isinstance(port.try_gate(call), Future)
    assert isinstance(port.try_gate("b", ("helper", "a")), Future)
    assert isinstance(port.try_gate("c", ("b",)), Future)
    with pytest.raises(Misuse, match="c for a, and a for c"):
        port.try_gate("a", ("c",))


def test_what_is_waited_for_in_one_order_or_no_longer_is_no_ring(port: Port) -> None:
    """A wait that was given up, such as by a time limit, is none."""
    release = port.try_gate("a")
    port.try_gate("b")
    assert not isinstance(release, Future)
    assert isinstance(port.try_gate("b", ("a",)), Future)
    assert isinstance(port.try_gate("b", ("a",)), Future)
    assert isinstance(port.try_gate("b"), Future)
    port.waited("b", ("a",))
    port.waited("b", ("a",))
    assert isinstance(port.try_gate("a", ("b",)), Future)
    release()
    port.waited("a", ("b",))
    assert not isinstance(port.try_gate("a", ("b",)), Future)
