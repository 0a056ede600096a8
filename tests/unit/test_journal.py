"""Batches, the digest chain, and what is found when a byte is wrong."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
import zstandard

from indelible.core import events as ev
from indelible.core import journal as journal_module
from indelible.core import snapshots
from indelible.core.codec import pack
from indelible.core.journal import Batch, Journal, Opened, Reader, Torn, link, read_all, seed
from indelible.errors import FormatTooNew, JournalDamaged, NotStorable


def note(n: int) -> ev.Event:
    return ev.ValueRecorded(float(n), 1, f"now:{n}", pack("x" * n))


def write(count: int, per_batch: int = 3, run_id: str = "r") -> list[Batch]:
    journal, batches = Journal(seed(run_id)), []
    for n in range(count):
        for k in range(per_batch):
            journal.append(note(n * per_batch + k))
        batches.append(journal.seal().batch)
        journal.landed()
    return batches


def opened(batches: list[Batch], run_id: str = "r") -> list[Opened | Torn]:
    return list(read_all(Reader(run_id), batches))


def test_what_is_written_is_read_back_in_order() -> None:
    batches = write(5)
    events = [event for batch in opened(batches) if isinstance(batch, Opened) for event in batch.events]
    assert events == [note(n) for n in range(15)]
    assert [(batch.after_seq, batch.last_seq) for batch in batches] == [(3 * n, 3 * n + 3) for n in range(5)]


def test_a_batch_that_did_not_land_is_offered_again_byte_for_byte() -> None:
    journal = Journal(seed("r"))
    journal.append(note(1))
    first = journal.seal()
    journal.append(note(2))
    assert journal.seal() is first
    journal.landed()
    assert journal.durable_seq == 1
    second = journal.seal()
    journal.landed()
    assert second.batch.after_seq == 1
    assert journal.durable_seq == journal.seq == 2
    assert len(opened([first.batch, second.batch])) == 2


def test_every_byte_of_every_batch_is_covered() -> None:
    """B89: a flipped byte anywhere is found, and nothing after it is served."""
    batches = write(4)
    for index, batch in enumerate(batches):
        for offset in range(len(batch.data)):
            data = bytearray(batch.data)
            data[offset] ^= 0x41
            damaged = [*batches[:index], batch._replace(data=bytes(data)), *batches[index + 1 :]]
            got: list[Opened | Torn] = []
            try:
                for each in read_all(Reader("r"), damaged):
                    got.append(each)
            except (JournalDamaged, FormatTooNew):
                assert len(got) == index
            else:
                assert index == len(batches) - 1
                assert isinstance(got[-1], Torn)
                assert got[-1].after_seq == batch.after_seq


def test_the_last_batch_cut_at_every_offset_is_a_torn_tail() -> None:
    """B89: everything before the torn batch is served, and the tear is reported."""
    batches = write(3)
    for length in range(len(batches[-1].data)):
        got = opened([*batches[:-1], batches[-1]._replace(data=batches[-1].data[:length])])
        assert [type(each) for each in got] == [Opened, Opened, Torn]


def test_a_cut_tail_is_declared_void_and_kept() -> None:
    """B29: cutting deletes nothing, and no seq is ever used twice."""
    batches = write(3)
    torn = batches[-1]._replace(data=batches[-1].data[:-1])
    reader = Reader("r")
    got = list(read_all(reader, [*batches[:-1], torn]))
    assert isinstance(got[-1], Torn)
    journal = Journal(reader.chain, reader.seq, cut_to=torn.last_seq)
    assert journal.append(note(7)) == torn.last_seq + 1
    after = journal.seal().batch
    events = [e for each in opened([*batches[:-1], torn, after]) if isinstance(each, Opened) for e in each.events]
    assert events == [*[note(n) for n in range(6)], note(7)]


def test_a_missing_batch_is_a_gap_not_a_shorter_history() -> None:
    """B90: a gap in the middle is said, with its position."""
    batches = write(4)
    with pytest.raises(JournalDamaged, match="events 7 to 9 does not follow event 3"):
        opened([batches[0], *batches[2:]])


def test_batches_in_another_order_or_of_another_run_do_not_verify() -> None:
    batches = write(3)
    with pytest.raises(JournalDamaged):
        opened([batches[1], batches[0], batches[2]])
    with pytest.raises(JournalDamaged):
        opened(batches, run_id="other")


def test_a_newer_format_is_refused_as_such() -> None:
    batch = write(1)[0]
    with pytest.raises(FormatTooNew, match="format 9"):
        Reader("r").open(batch._replace(data=b"\x09" + batch.data[1:]))


def test_an_event_of_an_unknown_kind_is_kept_and_keeps_its_place() -> None:
    """B91: unknown record types are preserved, ordinals never reused."""
    import msgspec

    known = ev.encode([note(1)])[1:]
    alien = msgspec.msgpack.encode({"e": "from.the.future", "at": 4.5, "stuff": [1, 2]})
    events = ev.decode(b"\x92" + known + alien, "here")
    assert events[0] == note(1)
    assert isinstance(events[1], ev.Unknown)
    assert (events[1].kind, events[1].at, events[1].raw) == ("from.the.future", 4.5, alien)


def test_a_known_event_that_lacks_a_field_is_damage() -> None:
    import msgspec

    with pytest.raises(JournalDamaged, match="holds no valid event"):
        ev.decode(msgspec.msgpack.encode([{"e": "run.finished", "at": 1.0}]), "here")


def test_the_prefix_starts_anew_where_it_is_told_to() -> None:
    journal = Journal(seed("r"))
    batches = []
    for n in range(4):
        if n == 2:
            journal.restart_prefix()
        journal.append(note(n))
        batches.append(journal.seal().batch)
        journal.landed()
    chain = seed("r")
    for batch, each in zip(batches[:2], opened(batches)[:2], strict=True):
        assert isinstance(each, Opened)
        chain = link(chain, batch.data[1], batch.after_seq, batch.last_seq, batch.data[18:])
    fresh = Reader("r", chain, batches[1].last_seq)
    assert fresh.open(batches[2]).events == [note(2)]
    with pytest.raises(JournalDamaged, match="needs what stands before it"):
        Reader("r", seed("r"), 1).open(batches[1])


def test_a_batch_no_store_can_take_is_refused_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """B37, B47: the size is checked before anything is confirmed."""
    monkeypatch.setattr("indelible.core.journal.MAX_BODY_BYTES", 100)
    journal = Journal(seed("r"))
    journal.append(note(200))
    with pytest.raises(NotStorable, match="the limit is 100"):
        journal.seal()
    assert journal.durable_seq == 0
    monkeypatch.undo()
    assert journal.seal().batch.last_seq == 1


def test_journals_are_sealed_in_many_threads_at_once() -> None:
    """Class fork & threads: a zstd context that two threads share crashes the process."""
    shared = (zstandard.ZstdCompressor, zstandard.ZstdDecompressor)
    for module in (journal_module, snapshots):
        assert [name for name, value in vars(module).items() if isinstance(value, shared)] == []

    def one(n: int) -> int:
        batches = write(60, per_batch=20, run_id=f"r{n}")
        return sum(len(found.events) for found in opened(batches, f"r{n}") if isinstance(found, Opened))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(8))) == [1200] * 8


@pytest.mark.parametrize("size", [100, 5_000, 12_000, 100_000, 140_000, 600_000])
def test_batches_of_any_size_beside_the_prefix_and_the_window_come_back(size: int) -> None:
    journal, batches = Journal(seed("r")), []
    letters = Random(size)
    for n in range(4):
        journal.append(ev.ValueRecorded(float(n), 1, "slot", letters.randbytes(size // 2) + b"again " * (size // 12)))
        batches.append(journal.seal().batch)
        journal.landed()
    again = [event for found in opened(batches) if isinstance(found, Opened) for event in found.events]
    letters = Random(size)
    assert [event.value for event in again if isinstance(event, ev.ValueRecorded)] == [
        letters.randbytes(size // 2) + b"again " * (size // 12) for _ in range(4)
    ]


def test_a_large_batch_in_between_leaves_the_stream_as_it_was() -> None:
    journal, batches = Journal(seed("r")), []
    for n, size in enumerate((10, 200_000, 10, 200_000, 10)):
        journal.append(ev.ValueRecorded(float(n), 1, "slot", b"x" * size))
        batches.append(journal.seal().batch)
        journal.landed()
    got = [each.events[0] for each in opened(batches) if isinstance(each, Opened)]
    assert [len(event.value) for event in got if isinstance(event, ev.ValueRecorded)] == [10, 200_000, 10, 200_000, 10]


def test_an_interrupted_seal_is_made_again_and_loses_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """B101: Ctrl-C while a batch is compressed; the stream it was in is not gone on with."""
    batches = []
    journal = Journal(seed("r"))
    journal.append(note(0))
    batches.append(journal.seal().batch)
    journal.landed()
    journal.append(note(1))

    def interrupt(*_: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(journal_module, "link", interrupt)
        with pytest.raises(KeyboardInterrupt):
            journal.seal()
    journal.append(note(2))
    batches.append(journal.seal().batch)
    assert [each.events for each in opened(batches) if isinstance(each, Opened)] == [[note(0)], [note(1), note(2)]]
