"""The simulated world keeps its own promises: death is final, a copy is a death, the clock does not wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import indelible as ind
from indelible.core import events as ev
from indelible.errors import LeaseLost, Misuse, StoreUnavailable
from indelible.runtime.runstore import RunStore
from indelible.testing.faults import Fault, Plan
from indelible.testing.processes import Process, SimulatedDeath
from indelible.testing.simulate import Workload, sweep, world
from indelible.testing.world import World
from tests.simulation import workload_async, workload_sync


class Counter(ind.State):
    """A memory of one number."""

    count: int = 0


@ind.action(effect="irreversible")
def knock(door: str, *, key: str = "") -> str:
    try:
        return world().perform("knock", door, key=key)
    except BaseException:
        # Code that goes on after its process has died, as only simulated code can.
        with pytest.raises(SimulatedDeath):
            world().perform("knock", "from beyond", key=key)
        raise
    finally:
        if world().dead:
            with pytest.raises(SimulatedDeath):
                world().store.read("run")


@ind.agent(state=Counter)
def knocking(run: ind.Run[Counter]) -> None:
    knock("front")
    run.state.count += 1
    run.finish()


def program(store: RunStore) -> Any:
    return knocking.run("Knock", store=store, run_id="run")


def operations() -> list[str]:
    process = Process(World())
    process.run(program)
    return [operation.label for operation in process.operations]


@pytest.mark.parametrize("fault", [Fault.DIE_BEFORE, Fault.DIE_AFTER])
def test_a_dead_process_does_no_harm(fault: Fault) -> None:
    """Whatever runs of a dead process, in `finally` and in `except BaseException`, reaches nothing."""
    at = operations().index("deed knock front")
    outside = World()
    process = Process(outside, Plan(at, fault))
    with pytest.raises(SimulatedDeath):
        process.run(program)
    assert [deed.what for deed in outside.ledger] == (["front"] if fault is Fault.DIE_AFTER else [])
    after = outside.copy()
    with pytest.raises(SimulatedDeath):
        process.clock.entropy(1)
    assert outside.fingerprint("run") == after.fingerprint("run")


@pytest.mark.parametrize("workload", [workload_sync.WORKLOAD, workload_async.OWN_LOOP], ids=lambda w: str(w.name))
def test_a_copy_of_the_world_is_what_a_death_leaves(workload: Workload) -> None:
    """The second death of a sweep is a copy; a real one leaves just that."""
    moments: list[tuple[Any, ...]] = []
    outside = World()
    untouched = Process(outside, watch=lambda process: moments.append(process.world.fingerprint(workload.run_id)))
    untouched.run(workload.program)
    for number in range(0, len(moments), 3):
        outside = World()
        with pytest.raises(SimulatedDeath):
            Process(outside, Plan(number, Fault.DIE_BEFORE)).run(workload.program)
        assert outside.fingerprint(workload.run_id) == moments[number], untouched.operations[number].label


def test_a_store_that_answers_wrongly_once_is_read_back() -> None:
    """B06: an append that landed and was reported as failed is found, and nothing is written twice."""
    appends = [number for number, label in enumerate(operations()) if label == "store append"]
    for number in appends:
        outside = World()
        Process(outside, Plan(number, Fault.APPLIED_BUT_FAILED)).run(program)
        events = [event for _, event in RunStore(outside.store, Process(outside.copy()).clock).events("run")]
        assert sum(isinstance(event, ev.RunFinished) for event in events) == 1
        assert len(outside.ledger) == 1


def test_a_store_that_is_gone_ends_the_process_with_a_clear_error() -> None:
    """B06: store and memory agree after a failed save, because the run goes on from the store."""
    labels = operations()
    outside = World()
    last = max(number for number, label in enumerate(labels) if label == "store append")
    with pytest.raises(StoreUnavailable):
        Process(outside, Plan(last, Fault.STORE_GONE_AFTER)).run(program)
    assert Process(outside).run(program).is_finished
    assert len(outside.ledger) == 1


def test_a_process_that_was_fenced_off_is_told_so() -> None:
    """B10: the intent's append carries the epoch, so one that lost its lease does no deed."""
    at = operations().index("append action.intended")
    outside = World()
    process = Process(outside, Plan(at, Fault.FENCED_OFF))

    def fence(hung: Process) -> None:
        hung.world.expire_leases()
        hung.world.store.claim("run", "another machine", 30.0)

    process.hang = fence
    with pytest.raises(LeaseLost):
        process.run(program)
    assert outside.ledger == []


def test_time_passes_without_waiting() -> None:
    """Timers of the event loop run on simulated time."""

    async def hour(store: RunStore) -> float:
        began = store.clock.now()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1800):
                await asyncio.Event().wait()
        await store.clock.asleep(1800)
        return store.clock.now() - began

    assert Process(World()).run(hour) == pytest.approx(3600)


def test_a_program_that_waits_for_nothing_is_refused() -> None:
    """It would never end; the loop says so."""

    async def forever(_: RunStore) -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="nothing in its world"):
        Process(World()).run(forever)


def test_a_program_that_fails_by_itself_is_not_swept() -> None:
    def broken(_: RunStore) -> None:
        raise ValueError("its own fault")

    with pytest.raises(Misuse, match="does not end by itself"):
        sweep(Workload("broken", broken))


def test_outside_a_process_there_is_no_world() -> None:
    with pytest.raises(Misuse, match="no simulated process"):
        world()
