"""The compression table: the same events in every row, and bytes that can be read back."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import zstandard

from indelible.bill.compression import by_itself, memory_of, one_stream, plain, render, stored, table, with_window
from indelible.bill.course import Course, Loop
from indelible.bill.strategies import events_of
from indelible.bill.traces import read
from indelible.core import events as ev
from indelible.core.journal import STREAM

from .made_traces import HELLO, write


def course_of(count: int) -> Course:
    text = "The quick brown fox jumps over the lazy dog, and number {} is that it does so again. "
    loops = tuple(Loop((ev.encode([ev.RunFailed(float(n), text.format(n) * 20)])[1:],), ()) for n in range(count))
    return Course("c", "made", {}, loops, ())


def test_all_rows_encode_the_same_events(tmp_path: Path) -> None:
    course = read(write(tmp_path / "t.jsonl", HELLO))
    batches = [events_of(loop) for loop in course.loops]
    records = [record for loop in course.loops for record in loop.records]
    assert plain(batches).stored_bytes == sum(map(len, records))
    assert by_itself(batches).stored_bytes == sum(len(zstandard.compress(record, 3)) for record in records)
    assert (plain(batches).writes, stored("ours", batches).writes) == (12, 3)


def test_the_table_has_a_row_a_way() -> None:
    rows = table(course_of(400), others=[("one megabyte", with_window(1 << 20))])
    names = [row.name for row in rows]
    assert names == [
        "plain", "zstd, each record", "zstd, trained dictionary", "zstd, one stream",
        *(f"as stored, window {size} KB" for size in (8, 16, 32, 64, 128, 256, 512)), "as stored, one megabyte",
    ]  # fmt: skip
    by_name = {row.name: row for row in rows}
    assert by_name["zstd, one stream"].stored_bytes < by_name["zstd, each record"].stored_bytes
    assert by_name["zstd, each record"].stored_bytes < by_name["plain"].stored_bytes
    assert all(row.cpu_s > 0 and row.cpu_us > 0 for row in rows)
    assert [row.memory_bytes > 0 for row in rows] == [False, False] + [True] * 10
    assert len(render(rows).splitlines()) == 1 + len(rows)


def test_too_few_events_train_no_dictionary() -> None:
    assert "zstd, trained dictionary" not in [row.name for row in table(course_of(3))]


def test_a_stored_batch_is_its_block_and_18_bytes_of_head() -> None:
    batches = [events_of(loop) for loop in course_of(2).loops]
    stream = zstandard.ZstdCompressor(compression_params=STREAM).compressobj()
    blocks = [stream.compress(ev.encode(b)) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for b in batches]
    assert stored("ours", batches).stored_bytes == sum(18 + len(block) for block in blocks)


def test_a_window_remembers_what_fits_into_it() -> None:
    """A text of 4 KB that cannot be compressed comes again after 40 KB of others: 64 KB find it, 16 KB do not."""
    texts = [Random(n).randbytes(4096) for n in range(11)]
    batches: list[list[ev.Event]] = [[ev.ValueRecorded(0.0, 1, "x", text)] for text in [*texts, texts[0]]]
    near, far = stored("", batches, with_window(1 << 14)), stored("", batches, with_window(1 << 16))
    assert 3900 < near.stored_bytes - far.stored_bytes < 4200


def test_a_larger_window_takes_more_memory() -> None:
    sizes = [memory_of(with_window(1 << log)) for log in (13, 16, 19)]
    assert sizes == sorted(sizes)
    assert sizes[0] > 1 << 13


def test_one_stream_holds_all_of_it() -> None:
    batches = [events_of(loop) for loop in course_of(50).loops]
    assert one_stream(batches).memory_bytes > sum(len(ev.encode(batch)) for batch in batches)


@pytest.mark.parametrize("kilobytes", [8, 64, 512])
def test_a_window_is_as_large_as_it_says(kilobytes: int) -> None:
    parameters = with_window(kilobytes * 1024)
    assert 1 << parameters.window_log == kilobytes * 1024
    assert parameters.strategy == STREAM.strategy
