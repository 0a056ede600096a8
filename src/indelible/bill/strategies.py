"""One course, written in every way people write the state of an agent: encoded for real, byte by byte.

Owns: the strategies, and how the processor time of each is taken.
Must never: estimate a size; leave out a write that a strategy needs to be read back.
Invariant: every dump is exactly what `json.dumps` without spaces gives for the state after that loop.

A dump replaces the one before it, and the last state is dumped in any case. A log is appended to. Processor time is
that of encoding alone; the state itself is kept up outside of it.
"""

from __future__ import annotations

import copy
import gzip
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from time import process_time
from typing import Any

import zstandard

from indelible.bill.chunks import Chunks
from indelible.bill.costs import Footprint, Sizes
from indelible.bill.course import Course, Encoded, Loop
from indelible.bill.document import apply, dump
from indelible.core import events as ev

JSON, GZIP, ZSTD = "full JSON", "full JSON + gzip", "full JSON + zstd"
EVERY_5, EVERY_10, DECISIONS = "JSON every 5 loops", "JSON every 10 loops", "JSON at decisions"
PATCH, CHUNKS = "JSON Patch", "content-addressed"
PLAIN, COMPRESSED, OURS = "journal, plain", "journal, compressed", "journal, batched (ours)"
STRATEGIES = (JSON, GZIP, ZSTD, EVERY_5, EVERY_10, DECISIONS, PATCH, CHUNKS, PLAIN, COMPRESSED, OURS)
GZIP_LEVEL = 6
ZSTD_LEVEL = 3
SNAPSHOTS_KEPT = 2

Progress = Callable[[int, int], None]
"""Called with how many loops are done, and of how many."""


@dataclass(slots=True)
class _Written:
    """What one strategy has written so far."""

    sizes: list[int] = field(default_factory=list)
    saved: list[int] = field(default_factory=list)
    cpu_s: float = 0.0

    def take(self, size: int, loop: int, cpu_s: float) -> None:
        self.sizes.append(size)
        self.saved.append(loop)
        self.cpu_s += cpu_s


def encode(course: Course, progress: Progress | None = None) -> list[Encoded]:
    """The course under every strategy, in the order of `STRATEGIES`. Takes processor time that grows with the square
    of the course, as the full dumps do: their bytes are all made."""
    chunks = Chunks()
    done = _dumps(course, chunks, progress)
    written = {**done, PATCH: _patches(course), PLAIN: _records(course), COMPRESSED: _compressed(course)}
    found = [
        _replacing(name, told) if name in done else _appending(name, told) for name, told in written.items()
    ] + [chunks.encoded(CHUNKS), _ours(course)]  # fmt: skip
    return sorted(found, key=lambda each: STRATEGIES.index(each.strategy))


def states(course: Course) -> Iterator[tuple[int, Loop, dict[str, Any]]]:
    """The state after each loop; one and the same object, so not to be kept."""
    state = copy.deepcopy(course.start)
    for number, loop in enumerate(course.loops, 1):
        apply(state, loop.patch)
        yield number, loop, state


def _dumps(course: Course, chunks: Chunks, progress: Progress | None) -> dict[str, _Written]:
    """All strategies that see the whole state, in one pass over it."""
    written = {name: _Written() for name in (JSON, GZIP, ZSTD, EVERY_5, EVERY_10, DECISIONS)}
    last = len(course.loops)
    for number, loop, state in states(course):
        began = process_time()
        text = dump(state)
        took = process_time() - began
        due = {
            JSON: True, EVERY_5: number % 5 == 0, EVERY_10: number % 10 == 0, DECISIONS: loop.decision
        }  # fmt: skip
        for name, is_due in due.items():
            if is_due or number == last:
                written[name].take(len(text), number, took)
        for name, squeeze in ((GZIP, _gzip), (ZSTD, _zstd)):
            began = process_time()
            size = len(squeeze(text))
            written[name].take(size, number, took + process_time() - began)
        chunks.take(number, loop.patch, state)
        if progress is not None:
            progress(number, last)
    return written


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, GZIP_LEVEL, mtime=0)


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(data)


def _patches(course: Course) -> _Written:
    """A file of JSON lines: the first state, then what each loop did to it."""
    written = _Written()
    began = process_time()
    written.sizes.append(len(dump(course.start)) + 1)
    written.cpu_s += process_time() - began
    for number, loop in enumerate(course.loops, 1):
        began = process_time()
        size = len(dump(loop.patch)) + 1
        written.take(size, number, process_time() - began)
    return written


def _records(course: Course) -> _Written:
    """One write for each event."""
    return _each_record(course, lambda record: record)


def _compressed(course: Course) -> _Written:
    return _each_record(course, _zstd)


def _each_record(course: Course, squeeze: Callable[[bytes], bytes]) -> _Written:
    written = _Written()
    for number, loop in enumerate(course.loops, 1):
        events = events_of(loop)
        began = process_time()
        written.sizes += [len(squeeze(ev.encode([event])[1:])) for event in events]
        written.cpu_s += process_time() - began
        written.saved.append(number)
    return written


def events_of(loop: Loop) -> list[ev.Event]:
    """The loop's records as events."""
    return [event for record in loop.records for event in ev.decode(b"\x91" + record, "a record")]


def _replacing(name: str, written: _Written) -> Encoded:
    return Encoded(name, Footprint.overwriting(written.sizes), written.cpu_s, tuple(written.saved))


def _appending(name: str, written: _Written) -> Encoded:
    return Encoded(name, Footprint.appending(written.sizes), written.cpu_s, tuple(written.saved), appends=True)


def _ours(course: Course) -> Encoded:
    """What Indelible wrote: the batches, and the snapshots, of which the newest two are kept."""
    kept = course.snapshots[-SNAPSHOTS_KEPT:]
    footprint = Footprint(
        Sizes.of((*course.batches, *course.snapshots)),
        kept=Sizes.of((*course.batches, *kept)),
        replaced=Sizes.of(course.snapshots[: len(course.snapshots) - len(kept)]),
    )
    return Encoded(OURS, footprint, course.sealing_s, tuple(range(1, len(course.loops) + 1)), appends=True)


def raw_bytes(course: Course) -> int:
    """The JSON text of everything the agent added to its state, each value once."""
    return _values(op for loop in course.loops for op in loop.patch)


def _values(patch: Iterable[dict[str, Any]]) -> int:
    return sum(len(dump(operation["value"])) for operation in patch if "value" in operation)
