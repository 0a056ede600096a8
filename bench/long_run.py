"""One long run beside the floor: what a cycle costs, whether that stays flat, and what is stored.

Owns: the run of 5,000 cycles, each next to a floor transaction with the same data.
Must never: compare figures that were not taken side by side.
Invariant: floor and ours alternate, so that a drift of the machine hits both.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from time import perf_counter

import apsw

import indelible as ind
from floor import Floor
from indelible.core import snapshots
from indelible.runtime.runstore import RunStore
from material import Results, results
from table import Row, at_most, scale
from workload import Memory, Ready, deliver, worker

RUN = "long"
OBJECTIVE = "Find three suppliers"
ALLOWANCE_S = 0.2e-3
"""More than half a floor only where a floor, and so one fsync, takes less than 0.4 ms."""
BLOCK = 25


@dataclass
class LongRun:
    """What was measured, in seconds and bytes."""

    cycles: int
    floor: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    raw_bytes: int = 0
    batch_bytes: int = 0
    snapshot_bytes: int = 0
    snapshots_kept: int = 0
    snapshots_taken: list[int] = field(default_factory=list)
    file_bytes: int = 0
    early: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    written: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By cycle: bytes of all batches, bytes of all snapshots ever written."""

    def rows(self) -> list[Row]:
        """The figures beside their limits."""
        floors, cycles = blocks(self.floor), blocks(self.ours)
        # A disk has moods that last for seconds, so each block of cycles is held against the floor of its own time.
        limits = [max(1.5 * floor, floor + ALLOWANCE_S) for floor in floors]
        share = median(ours / limit for ours, limit in zip(cycles, limits, strict=True))
        ratio = median(ours / floor for ours, floor in zip(cycles, floors, strict=True))
        more = median(ours - floor for ours, floor in zip(cycles, floors, strict=True)) * 1e3
        early, late = median(self.early) * 1e3, median(self.late) * 1e3
        stored = self.batch_bytes / self.raw_bytes
        whole = (self.batch_bytes + self.snapshots_kept) / self.raw_bytes
        worst = max(self.ours) * 1e3
        rows = [
            scale("floor: one durable SQLite row", median(floors) * 1e3, "ms",
                  f"  (mean {mean(self.floor) * 1e3:.3f})"),
            Row("cycle with three results",
                f"{median(cycles) * 1e3:.3f} ms  ({ratio:.2f} x floor, + {more:.3f} ms; mean "
                f"{mean(self.ours) * 1e3:.3f}, worst {worst:.0f})",
                "<= 1.5 x, or + 0.2 ms", share <= 1),
            at_most(f"flatness: cycle {self.cycles:,} to cycle 100", late / early, 1.2, "x",
                    f"  ({early:.3f} -> {late:.3f} ms, taken in turn)"),
            at_most("stored: batches / raw data", stored, 0.7, "x", f"  (raw {self.raw_bytes / 1e6:.1f} MB)"),
            scale("stored: batches + kept snapshots / raw", whole, "x", f"  ({self.snapshots_kept / 1e6:.1f} MB kept)"),
            scale("stored: file / raw data", self.file_bytes / self.raw_bytes, "x"),
        ]  # fmt: skip
        for cycle, (batches, shots) in self.written.items():
            rows.append(at_most(f"snapshots written / journal, cycle {cycle:,}", shots / batches,
                                1 + 1 / snapshots.GROWTH, "x", f"  ({shots / 1e6:.1f} MB)"))  # fmt: skip
        return rows


def blocks(times: list[float]) -> list[float]:
    """The medians of BLOCK times each."""
    return [median(times[at : at + BLOCK]) for at in range(0, len(times), BLOCK)]


def measure(folder: Path, cycles: int) -> LongRun:
    """Make the run in `folder`/long.db, each cycle after a floor transaction with the same data."""
    found = LongRun(cycles)
    floor = Floor(str(folder / "floor.db"))
    path = folder / "long.db"
    material = results(1)
    marks = {cycles // 5, cycles // 2, cycles}
    with ind.open(str(path)) as store:
        _count_snapshots(store, found)
        with store.run(RUN, worker, OBJECTIVE) as run:
            for cycle in range(1, cycles + 1):
                ready = next(material)
                row = ready.packed()
                found.raw_bytes += len(row)
                found.floor.append(floor.write(row))
                found.ours.append(_cycle(run, ready))
                if cycle in marks:
                    found.written[cycle] = (_batch_bytes(store), found.snapshot_bytes)
        found.batch_bytes = _batch_bytes(store)
    floor.close()
    with _reading(path) as con:
        found.snapshots_kept = con.execute("SELECT total(length(data)) FROM snapshots").get
    found.file_bytes = sum(os.path.getsize(part) for part in folder.glob("long.db*"))
    _compare(folder, found)
    return found


def _compare(folder: Path, found: LongRun) -> None:
    """Cycles around the 100th of a young run and around the last of the old one (a copy), in turn."""
    early = min(50, found.cycles // 10)
    material = results(6)
    (folder / "old.db").write_bytes((folder / "long.db").read_bytes())
    with (
        ind.open(str(folder / "old.db")) as old_store,
        ind.open(str(folder / "young.db")) as young_store,
        old_store.run(RUN, worker) as old,
        young_store.run("young", worker, OBJECTIVE) as young,
    ):
        for turn in range(3 * early):
            took = _cycle(young, next(material)), _cycle(old, next(material))
            if turn >= early:
                found.early.append(took[0])
                found.late.append(took[1])


def _cycle(run: ind.Run[Memory], ready: Results) -> float:
    Ready.by_run[run.run_id] = ready
    began = perf_counter()
    with run.cycle():
        worker(run)
    return perf_counter() - began


def go_on_until_due(folder: Path) -> int:
    """Go on with the run in `folder` until its next cycle would take a snapshot; how many cycles it then has."""
    material = results(2)
    with ind.open(str(folder / "long.db")) as store, store.run(RUN, worker) as run:
        live = run._holding.live
        assert live is not None
        while True:
            since = live.journal.stored_bytes - live.stored_at_snapshot
            if snapshots.due(since + 8192, live.snapshot_size):
                return live.record.committed
            _cycle(run, next(material))


def measure_deed(folder: Path, cycles: int) -> list[Row]:
    """What an irreversible action adds: cycles with one and without one in turn, and a floor beside each."""
    floor = Floor(str(folder / "floor2.db"))
    material = results(3)
    times: dict[bool, list[float]] = {False: [], True: []}
    floors: list[float] = []
    with ind.open(str(folder / "deed.db")) as store, store.run(RUN, worker, OBJECTIVE) as run:
        for cycle in range(2 * cycles):
            ready = Ready.by_run[RUN] = next(material)
            floors.append(floor.write(ready.packed()))
            began = perf_counter()
            with run.cycle():
                worker(run)
                if cycle % 2:
                    deliver(RUN, ready.tasks[0])
            times[bool(cycle % 2)].append(perf_counter() - began)
    floor.close()
    pairs = zip(blocks(times[True]), blocks(times[False]), blocks(floors[::2]), strict=True)
    added = [((with_deed - without), (with_deed - without) / one) for with_deed, without, one in pairs]
    note = f" floor  ({median(more for more, _ in added) * 1e3:.3f} ms)"
    return [at_most("an irreversible action adds", median(ratio for _, ratio in added), 2, "x", note)]


def _count_snapshots(store: RunStore, found: LongRun) -> None:
    put = store.store.put_snapshot

    def counted(run_id: str, seq: int, data: bytes, begins: bool = False) -> None:
        found.snapshot_bytes += len(data)
        found.snapshots_taken.append(len(data))
        put(run_id, seq, data, begins)

    store.store.put_snapshot = counted  # type: ignore[method-assign]


def _batch_bytes(store: RunStore) -> int:
    return sum(entry.stored_bytes for entry in store.entries() if entry.run_id == RUN)


def _reading(path: Path) -> apsw.Connection:
    return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
