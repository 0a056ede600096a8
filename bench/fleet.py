"""Fifty runs in one process: how many durable cycles a second, on asyncio and on threads.

Owns: the fleets, and the single runs they are compared with.
Must never: count a cycle that is not durable when the clock stops.
Invariant: one run and fifty do the same cycles on the same kind of store, one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import indelible as ind
from floor import Floor
from indelible.runtime.runstore import RunStore
from material import Results, results
from table import Row, at_least, scale
from workload import Ready, acounter, aworker, counter, worker

RUNS = 50
ROUNDS = 3
AT_LEAST = 3_000
TIMES_ONE = 3


Where = str | Callable[[], RunStore]
"""The URL of a store, or what opens one."""


def opened_at(where: Where) -> RunStore:
    """The store, open."""
    return ind.open(where) if isinstance(where, str) else where()


class Kind(NamedTuple):
    """A way to drive an agent."""

    name: str
    agent: Any
    tiny: Any
    drive: Callable[[str, Any, int, int], float]


def measure(folder: Path, cycles: int) -> list[Row]:
    """Cycles a second, and how many times those of one run."""
    rows: list[Row] = []
    lay_ready()
    for kind in (Kind("asyncio", aworker, acounter, on_asyncio), Kind("threads", worker, counter, on_threads)):
        one, many, tiny = _rates(folder, kind, cycles)
        rows += [
            scale(f"one run, {kind.name}", one, "/s"),
            at_least(f"{RUNS} runs, {kind.name}", many, AT_LEAST, "/s"),
            at_least("  times one run", many / one, TIMES_ONE, "x"),
            scale("  tiny cycles", tiny, "/s"),
        ]
    return [*rows, scale(f"floor in groups of {RUNS} rows", _floor(folder, cycles), "/s")]


def _rates(folder: Path, kind: Kind, cycles: int) -> tuple[float, float, float]:
    found: list[tuple[float, float, float]] = []
    for turn in range(ROUNDS):
        path = str(folder / f"{kind.name}-{turn}")
        alone = 5 * cycles
        found.append((
            alone / kind.drive(f"{path}-one.db", kind.agent, 1, alone),
            RUNS * cycles / kind.drive(f"{path}-many.db", kind.agent, RUNS, cycles),
            RUNS * cycles / kind.drive(f"{path}-tiny.db", kind.tiny, RUNS, cycles),
        ))  # fmt: skip
    one, many, tiny = (median(rates) for rates in zip(*found, strict=True))
    return one, many, tiny


def on_asyncio(path: Where, agent: Any, runs: int, cycles: int) -> float:
    """Seconds that so many runs take for so many cycles each."""

    async def one(run: ind.Run[Any]) -> None:
        for _ in range(cycles):
            async with run.cycle():
                await agent(run)

    async def fleet() -> float:
        async with opened_at(path) as store:
            opened = [store.run(f"run-{n}", agent, "Find three suppliers") for n in range(runs)]
            for run in opened:
                await run.__aenter__()
            began = perf_counter()
            await asyncio.gather(*(one(run) for run in opened))
            took = perf_counter() - began
            for run in opened:
                await run.__aexit__(None, None, None)
            return took

    return asyncio.run(fleet())


def on_threads(path: Where, agent: Any, runs: int, cycles: int) -> float:
    """As `on_asyncio`, each run in a thread."""

    def one(run: ind.Run[Any]) -> None:
        for _ in range(cycles):
            with run.cycle():
                agent(run)

    with opened_at(path) as store, ThreadPoolExecutor(runs) as pool:
        opened = [store.run(f"run-{n}", agent, "Find three suppliers") for n in range(runs)]
        for run in opened:
            run.__enter__()
        began = perf_counter()
        for done in [pool.submit(one, run) for run in opened]:
            done.result()
        took = perf_counter() - began
        for run in opened:
            run.__exit__(None, None, None)
        return took


class _Endless(dict[str, Results]):
    """The next results of any run: a ring of them, so that making text costs no time here."""

    def __init__(self, ring: list[Results]) -> None:
        super().__init__()
        self.ring = ring
        self.turns: dict[str, int] = {}

    def __getitem__(self, run_id: str) -> Results:
        turn = self.turns[run_id] = self.turns.get(run_id, hash(run_id)) + 1
        return self.ring[turn % len(self.ring)]


def lay_ready() -> None:
    """Lay the results of all cycles ready."""
    Ready.by_run = _Endless(list(islice(results(4), 997)))


def _floor(folder: Path, cycles: int) -> float:
    floor = Floor(str(folder / "floor3.db"))
    rows = [found.packed() for found in islice(results(5), RUNS)]
    times = [floor.write_group(rows) for _ in range(cycles)]
    floor.close()
    return RUNS / median(times)
