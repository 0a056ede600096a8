"""The ways to compress a journal, beside one another: the same events under each, encoded for real.

Owns: the table by which the journal's stream is tuned.
Must never: compare rows that encode different events.
Invariant: every row can be read back with nothing but what it counts: digests, frames, a dictionary are in its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from time import process_time

import zstandard

from indelible.bill.course import Course
from indelible.bill.strategies import ZSTD_LEVEL, events_of
from indelible.core import events as ev
from indelible.core.journal import STREAM, Journal, seed

WINDOWS_KB = (8, 16, 32, 64, 128, 256, 512)
DICTIONARY_BYTES = 32 * 1024
TRAINED_ON = 0.25
"""The part of the events, from the first one, that a dictionary is trained on."""
_LARGEST_WINDOW_LOG = 27

Parameters = zstandard.ZstdCompressionParameters
Batches = list[list[ev.Event]]


@dataclass(frozen=True, slots=True)
class Row:
    """One way: the bytes it stores, the processor time for all of them in seconds, and the bytes of memory that it
    holds for each open run. `writes` is into how many pieces, each of which can be read once it is there."""

    name: str
    stored_bytes: int
    writes: int
    cpu_s: float
    memory_bytes: int

    @property
    def cpu_us(self) -> float:
        """Processor time of one write, in millionths of a second."""
        return self.cpu_s / self.writes * 1e6 if self.writes else 0.0


def table(course: Course, others: Iterable[tuple[str, Parameters]] = ()) -> list[Row]:
    """Plain, each record by itself, with a trained dictionary, as one flushed stream, and as stored, with windows of
    8 to 512 KB; `others` are more parameters to store with.

    The dictionary's row is missing where the events are too few to train one. Of a batch is made what was recorded in
    one loop.
    """
    batches = [events_of(loop) for loop in course.loops]
    rows = [plain(batches), by_itself(batches), *trained(batches), one_stream(batches)]
    for size in WINDOWS_KB:
        rows.append(stored(f"as stored, window {size} KB", batches, with_window(size * 1024)))
    return rows + [stored(f"as stored, {name}", batches, parameters) for name, parameters in others]


def with_window(size: int) -> Parameters:
    """The journal's own parameters with another window, of `size` bytes (a power of two)."""
    return Parameters(
        window_log=size.bit_length() - 1,
        hash_log=STREAM.hash_log,
        chain_log=STREAM.chain_log,
        min_match=STREAM.min_match,
        target_length=STREAM.target_length,
        strategy=STREAM.strategy,
    )


def stored(name: str, batches: Batches, parameters: Parameters = STREAM) -> Row:
    """As `core.journal` stores it: each batch a block of one stream, or a frame by itself if it is large."""
    journal, total = Journal(seed("run"), parameters=parameters), 0
    began = process_time()
    for batch in batches:
        for event in batch:
            journal.append(event)
        total += len(journal.seal().batch.data)
        journal.landed()
    return Row(name, total, len(batches), process_time() - began, memory_of(parameters))


def memory_of(parameters: Parameters) -> int:
    """The bytes that one open run's compressor holds, its buffers included."""
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    stream = compressor.compressobj()
    stream.compress(b"x")
    stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    return compressor.memory_size()


def plain(batches: Batches) -> Row:
    """Each event as it is."""
    return _each("plain", batches, lambda record: record, 0)


def by_itself(batches: Batches) -> Row:
    """Each event compressed by itself; nothing is held between two of them."""
    return _each("zstd, each record", batches, lambda r: zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(r), 0)


def trained(batches: Batches) -> list[Row]:
    """Each event with a dictionary that was trained on the first of them, which are stored without it; the dictionary
    and its training are counted. Nothing if there are too few events."""
    records = [ev.encode([event]) for event in chain(*batches)]
    first: list[bytes | bytearray | memoryview[int]] = [*records[: int(len(records) * TRAINED_ON)]]
    began = process_time()
    try:
        dictionary = zstandard.train_dictionary(min(DICTIONARY_BYTES, sum(map(len, first)) // 2), first)
    except (zstandard.ZstdError, ValueError):
        return []
    compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, dict_data=dictionary)
    cpu_s = process_time() - began
    row = _each("zstd, trained dictionary", batches, _until(len(first), compressor), 0)
    size = len(dictionary.as_bytes())
    return [Row(row.name, row.stored_bytes + size, row.writes, row.cpu_s + cpu_s, compressor.memory_size() + size)]


def _until(count: int, compressor: zstandard.ZstdCompressor) -> Callable[[bytes], bytes]:
    """Compress the first `count` records without the dictionary, which was not there yet."""
    plainly = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
    left = iter(range(count))
    return lambda record: (compressor if next(left, None) is None else plainly).compress(record)


def one_stream(batches: Batches) -> Row:
    """Each event a flushed block of one stream that remembers all of it."""
    total = sum(len(ev.encode(batch)) for batch in batches)
    log = min(max(total.bit_length(), 10), _LARGEST_WINDOW_LOG)
    parameters = Parameters.from_level(ZSTD_LEVEL, window_log=log)
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    stream = compressor.compressobj()

    def squeeze(record: bytes) -> bytes:
        return stream.compress(record) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)

    row = _each("zstd, one stream", batches, squeeze, 0)
    return Row(row.name, row.stored_bytes, row.writes, row.cpu_s, compressor.memory_size())


def _each(name: str, batches: Batches, squeeze: Callable[[bytes], bytes], memory: int) -> Row:
    total = writes = 0
    began = process_time()
    for event in chain(*batches):
        total += len(squeeze(ev.encode([event])[1:]))
        writes += 1
    return Row(name, total, writes, process_time() - began, memory)


def render(rows: list[Row]) -> str:
    """The table as text; the share is of the first row."""
    whole = rows[0].stored_bytes or 1
    lines = [f"{'':<30}{'bytes':>12}{'share':>8}{'writes':>8}{'CPU s':>8}{'µs a write':>12}{'KB a run':>10}"]
    for row in rows:
        lines.append(
            f"{row.name:<30}{row.stored_bytes:>12,}{row.stored_bytes / whole:>8.3f}{row.writes:>8,}{row.cpu_s:>8.3f}"
            f"{row.cpu_us:>12.1f}{row.memory_bytes / 1024:>10,.0f}"
        )
    return "\n".join(lines)
