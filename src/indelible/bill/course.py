"""The course of one agent, loop by loop: what every way to persist it is given to write.

Owns: `Course`, `Loop` and `Encoded`, the shapes that the parts of `bill` hand to one another.
Must never: read a store, a trace or a price.
Invariant: applying the patches of the first n loops to `start` gives the state after loop n.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from indelible.bill.costs import Footprint


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop of an agent.

    `records` are its journal events, each by itself and plain, as MessagePack bytes. `patch` is what it did to the
    state as JSON Patch operations (RFC 6902: `add` with "/field/-" for an append, `replace`, `remove`).
    `decision` is true if a deed was done or a queue changed. `usd` is the money paid in it, None if something in
    it has no known price; `took_s` the seconds its calls took, None if that was not recorded.
    """

    records: tuple[bytes, ...]
    patch: tuple[dict[str, Any], ...]
    decision: bool = False
    usd: float | None = 0.0
    tokens: int = 0
    took_s: float | None = None


@dataclass(frozen=True, slots=True)
class Course:
    """A whole run or trace. `batches` and `snapshots` are the bytes of each durable write of Indelible's own, and
    `sealing_s` is the processor time, in seconds, in which they were encoded (of a run: encoded anew).

    What was recorded before the first loop belongs to the first loop, and what came after the last one to the last.
    """

    name: str
    kind: str
    start: dict[str, Any]
    loops: tuple[Loop, ...]
    batches: tuple[int, ...]
    snapshots: tuple[int, ...] = ()
    notices: tuple[str, ...] = ()
    """What could not be read, and where."""
    sealing_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Encoded:
    """A course as one strategy wrote it.

    `footprint` is told for a storage that keeps objects: what is appended is an object a write there. With `appends`
    a file or a table takes all of it as one, which `in_one` tells.

    `saved` are the numbers of loops (counted from 1) after which everything up to there was durable, in order;
    what a crash costs follows from them. `cpu_s` is processor time, in seconds.
    """

    strategy: str
    footprint: Footprint
    cpu_s: float
    saved: tuple[int, ...] = field(default=())
    appends: bool = False

    @property
    def in_one(self) -> Footprint:
        """The footprint where what is appended goes into one file or table: a local disk, EBS, EFS, PostgreSQL."""
        if not self.appends:
            return self.footprint
        kept = self.footprint.kept.total
        return Footprint.of(self.footprint.writes, stored_bytes=kept, objects=1 if kept else 0)
