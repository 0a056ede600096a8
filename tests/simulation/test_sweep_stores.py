"""Every operation of an agent goes wrong in every way, with each kind of store in the world of the sweep."""

from __future__ import annotations

import contextvars
import os
from typing import Any

import pytest

from indelible.stores.base import Query
from indelible.testing import simulate
from indelible.testing.faults import Fault, Plan
from indelible.testing.processes import Process
from indelible.testing.world import World
from tests.figures import tell
from tests.simulation import workload_async, workload_sync
from tests.simulation.real_worlds import Kind, Objects, Postgres, RealWorld, Sqlite, Valkey

FULL = os.environ.get("INDELIBLE_FULL_SWEEPS") == "1"
"""`make prove` tries both agents at every operation; the tests one of them, at every third."""
WORKLOADS = (workload_async.OWN_LOOP, workload_sync.WORKLOAD) if FULL else (workload_async.OWN_LOOP,)


class StoreSweep(simulate._Sweep):
    """The sweep in worlds of that kind; every `stride`-th fault, each once."""

    def __init__(self, workload: simulate.Workload, kind: Kind, stride: int) -> None:
        super().__init__(workload, tuple(Fault), double=False, stride=1, exact=False, stop_early=False)
        self.kind, self.each, self.number = kind, stride, -1

    def _new_world(self) -> World:
        return RealWorld(self.kind)

    def _single(self, base: Any, plan: Plan) -> None:
        self.number += 1
        if self.number % self.each == 0:
            places, stores = len(self.kind.places), len(self.kind.stores)
            super()._single(base, plan)
            self.kind.clear(places, stores)

    def _hang(self, hung: Process, problems: list[str]) -> None:
        # Whoever takes over is another process, which has no part in what hangs.
        self._anew(hung.world)
        contextvars.Context().run(super()._hang, hung, problems)

    def _process(self, world: World, *args: Any, **kwargs: Any) -> Any:
        try:
            return super()._process(world, *args, **kwargs)
        finally:
            self._anew(world)

    def _anew(self, world: World) -> None:
        assert isinstance(world, RealWorld)
        world.reopen()


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: str(workload.name))
@pytest.mark.parametrize("made", [Sqlite, Postgres, Valkey, Objects])
def test_sweep_of_a_store(made: type[Kind], workload: simulate.Workload) -> None:
    """B01 B02 B03 B09 B50 B57 B59 B69: whatever holds the journal, no fault loses a result or repeats a deed."""
    kind = made()
    try:
        report = StoreSweep(workload, kind, 1 if FULL else 3).run()
    finally:
        kind.end()
    tell(f"{made.__name__}, {report}")
    assert not report.problems, str(report)
    assert report.lost == report.repeats == 0
    assert set(report.by_fault) == set(Fault)
    assert report.points > 140


@pytest.mark.parametrize("wrong", ["forgets", "takes from anybody"])
def test_a_store_that_is_wrong_is_caught(wrong: str) -> None:
    """Else the sweep would show nothing: one acknowledges a write in fifty without making it, one asks for no epoch."""
    kind = Wrong(wrong)
    try:
        report = StoreSweep(workload_async.OWN_LOOP, kind, 3).run()
    finally:
        kind.end()
    assert report.problems


class Wrong(Sqlite):
    """SQLite, and between it and the world something that is wrong."""

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self.wrong, self.writes = wrong, 0

    def open(self, place: Any, clock: Any) -> Any:
        """See `Kind`."""
        store: Any = super().open(place, clock)
        append = store.append

        def forgets(writes: Any) -> Any:
            self.writes += 1
            return append(writes) if self.writes < 100 or self.writes % 50 else [None] * len(writes)

        def from_anybody(writes: Any) -> Any:
            runs = store.list_runs(Query(run_ids=tuple(write.run_id for write in writes))).runs
            epochs = {run.run_id: run.epoch for run in runs}
            return append([write._replace(epoch=epochs.get(write.run_id, write.epoch)) for write in writes])

        store.append = forgets if self.wrong == "forgets" else from_anybody
        return store
