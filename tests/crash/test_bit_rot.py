"""A byte of a store's file changes by itself: what is served is what was written, or nothing.

Tried are all bytes that SQLite uses in the pages of tables and indexes, and every forty-first of
the schema and of unused space; INDELIBLE_FULL_SWEEPS=1 tries all bytes with several flips each.
The log (-wal) is another matter: SQLite takes damage there for the end of what was written.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec
import pytest

from indelible.core import events as ev
from indelible.core import snapshots
from indelible.core.record import Record, fold
from indelible.drive.clock import seeded
from indelible.errors import FormatTooNew, JournalDamaged, Misuse, RunBusy, StoreUnavailable, UnknownRun
from indelible.runtime.labels import about_of
from indelible.runtime.runstore import RunStore
from indelible.stores.sqlite import SqliteStore
from indelible.testing.powerloss import Hasty, Outside
from indelible.testing.vfs import Disk
from tests.crash.charging_agent import FULL, RUN_ID, to_the_end
from tests.figures import tell

OWNER = "an owner who is still there"
LOUD = (JournalDamaged, FormatTooNew, Misuse, StoreUnavailable, UnknownRun)
Events = list[tuple[int, ev.Event]]


class Rotting:
    """A store's file with one finished run that is held, and all that is true of it."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self.path, self._disk = str(folder / "agent.db"), disk
        with self.opened() as runs:
            to_the_end(runs, Outside())
            runs.store.claim(RUN_ID, OWNER, 300.0)
            self.record = bare(runs.recover(RUN_ID).record)
            self.events: Events = list(runs.events(RUN_ID))
            self.batches = list(runs.store.read(RUN_ID))
        self.content = Path(self.path).read_bytes()
        self.prefixes = list(_prefixes(self.events))

    def opened(self) -> RunStore:
        return RunStore(SqliteStore(self.path, vfs=self._disk.name), Hasty())

    def write(self, content: bytes) -> None:
        """Put other bytes in the place of the file's, which stays the same file."""
        with open(self.path, "r+b") as file:
            file.write(content)
            file.truncate()

    def flipped(self, offset: int, mask: int) -> bytes:
        return self.content[:offset] + bytes([self.content[offset] ^ mask]) + self.content[offset + 1 :]

    def probe(self, offset: int, mask: int) -> str:
        """Damage one byte, read everything in every way, and say what came of it."""
        self.write(self.flipped(offset, mask))
        try:
            with self.opened() as runs:
                verdict = self._recover(runs)
                self._events(runs)
                self._others(runs)
        except LOUD as error:
            return type(error).__name__
        return verdict

    def _recover(self, runs: RunStore) -> str:
        try:
            found = runs.recover(RUN_ID)
        except LOUD as error:
            return type(error).__name__
        record = bare(found.record)
        if record == self.record:
            return "passed over" if found.notices else "no difference"
        assert found.notices, "another record was served without a word"
        assert record in self.prefixes, "what was served was never written"
        assert found.cut_to == self.record.seq
        return "torn tail"

    def _events(self, runs: RunStore) -> None:
        """What can be read of the journal is the journal."""
        got: Events = []
        try:
            for numbered in runs.events(RUN_ID):
                got.append(numbered)
        except LOUD:
            pass
        assert got == self.events[: len(got)], "an event was served that was never written"

    def _others(self, runs: RunStore) -> None:
        """Listing and claiming answer, or say what is wrong."""
        for ask in (lambda: [about_of(e.label) for e in runs.entries()], lambda: runs.store.claim(RUN_ID, OWNER, 9.0)):
            try:
                ask()
            except (*LOUD, RunBusy):
                pass


def bare(record: Record) -> Record:
    """Without the digest that only a record from a snapshot carries."""
    return msgspec.structs.replace(record, chain=b"")


def _prefixes(events: Events) -> Iterator[Record]:
    record = Record(RUN_ID)
    for seq, event in events:
        fold(record, seq, event)
        yield snapshots.decode(snapshots.encode(record), RUN_ID, seq)


def used_bytes(content: bytes) -> Iterator[tuple[int, bool]]:
    """Every offset of a database, and whether SQLite uses the byte there (the schema's page left out)."""
    size = int.from_bytes(content[16:18], "big")
    for start in range(0, len(content), size):
        kind = content[start]
        header = 12 if kind in (2, 5) else 8
        cells = int.from_bytes(content[start + 3 : start + 5], "big")
        filled = int.from_bytes(content[start + 5 : start + 7], "big")
        for offset in range(size):
            free = header + 2 * cells <= offset < filled
            yield start + offset, start > 0 and not free


@pytest.fixture
def disk() -> Iterator[Disk]:
    with Disk() as made:
        yield made


def sweep(rotting: Rotting, *, used: int, unused: int) -> Counter[str]:
    """Damage every `used`-th of the used bytes and every `unused`-th of the others."""
    counts: Counter[str] = Counter()
    for offset, in_use in used_bytes(rotting.content):
        if not FULL and offset % (used if in_use else unused):
            continue
        rng = seeded(f"rot {offset}".encode())
        for _ in range(4 if FULL else 1):
            mask = rng.randrange(1, 256)
            try:
                counts[rotting.probe(offset, mask)] += 1
            except Exception as error:
                raise AssertionError(f"byte {offset} of {len(rotting.content)} ^ {mask:#x}") from error
    tell(f"{counts.total()} of {len(rotting.content)} bytes flipped: {dict(counts)}")
    return counts


def test_every_byte_of_a_journal(tmp_path: Path, disk: Disk) -> None:
    """B89, B93: damage is told, or makes no difference; never is another record served."""
    counts = sweep(Rotting(tmp_path, disk), used=1, unused=41)
    assert counts["JournalDamaged"] > 1000
    assert counts["torn tail"] > 50
    assert counts["no difference"] > 300, "unused space was to be among what is tried"


def test_every_byte_beside_snapshots(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """B89: a damaged snapshot is passed over, and a damaged journal is not hidden by one."""
    monkeypatch.setattr(snapshots, "FIRST_AFTER_BYTES", 900)
    rotting = Rotting(tmp_path, disk)
    with rotting.opened() as runs:
        kept = runs.store.get_snapshot(RUN_ID, 2**62)
        assert kept is not None
        assert kept[0] < rotting.record.seq, "something must come after the snapshot"
    counts = sweep(rotting, used=9, unused=97)
    assert counts["passed over"] > 10
    assert counts["JournalDamaged"] > 30


def test_what_stands_before_the_damage_can_be_exported(tmp_path: Path, disk: Disk) -> None:
    """B89, B93: every batch before the damaged one is read, every time, and reading changes nothing."""
    rotting = Rotting(tmp_path, disk)
    for number, batch in enumerate(rotting.batches[:-1]):
        digest = batch.data[2:18]  # everywhere: a page that was split holds an old copy in its free space
        damaged = rotting.content.replace(digest, digest[:-1] + bytes([digest[-1] ^ 0xFF]))
        rotting.write(damaged)
        for _ in range(5):
            got: Events = []
            with rotting.opened() as runs, pytest.raises(JournalDamaged) as caught:
                for numbered in runs.events(RUN_ID):
                    got.append(numbered)
            assert f"events {batch.after_seq + 1} to {batch.last_seq}" in caught.value.what, number
            assert len(got) == batch.after_seq
            assert got == rotting.events[: batch.after_seq]
            assert Path(rotting.path).read_bytes() == damaged


def test_a_head_that_points_before_the_end(tmp_path: Path, disk: Disk) -> None:
    """B89: a run's row says that its journal ends earlier, just between two batches."""
    rotting = Rotting(tmp_path, disk)
    con = apsw.Connection(rotting.path)
    con.execute("UPDATE runs SET head = ?, owner = '' WHERE run_id = ?", (rotting.batches[-1].after_seq, RUN_ID))
    con.close()
    with rotting.opened() as runs:
        with pytest.raises(JournalDamaged, match="head"):
            runs.recover(RUN_ID)
        with pytest.raises(JournalDamaged, match="head"):
            to_the_end(runs, Outside())


def test_text_that_is_no_text(tmp_path: Path, disk: Disk) -> None:
    """B89: SQLite hands out damaged text as it is."""
    rotting = Rotting(tmp_path, disk)
    rotting.write(rotting.content.replace(b"finished", b"\xfeinished"))
    with rotting.opened() as runs:
        with pytest.raises(JournalDamaged, match="damaged page"):
            list(runs.entries())
        assert bare(runs.recover(RUN_ID).record) == rotting.record


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE batches SET data = 7 WHERE after_seq > 5",
        "UPDATE batches SET after_seq = -after_seq WHERE after_seq > 5",
        "UPDATE batches SET after_seq = x'00' WHERE after_seq > 5",
        "UPDATE runs SET head = x'00'",
        "UPDATE runs SET epoch = x'00'",
        "UPDATE runs SET owner = x'00'",
        "UPDATE runs SET lease_until = 'soon'",
        "UPDATE runs SET updated_at = x'00'",
    ],
)
def test_a_value_of_another_type(tmp_path: Path, disk: Disk, change: str) -> None:
    """B89: SQLite keeps the type of a value beside it, so damage can change it."""
    rotting = Rotting(tmp_path, disk)
    con = apsw.Connection(rotting.path)
    con.execute(change)
    con.close()
    with rotting.opened() as runs, pytest.raises(JournalDamaged, match="another form"):
        list(runs.entries())
        runs.recover(RUN_ID)
        runs.store.claim(RUN_ID, OWNER, 9.0)


def test_a_snapshot_of_another_type(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """B89: such a snapshot is passed over like any other that does not verify."""
    monkeypatch.setattr(snapshots, "FIRST_AFTER_BYTES", 900)
    rotting = Rotting(tmp_path, disk)
    for change in ("UPDATE snapshots SET data = 7", "UPDATE snapshots SET seq = 1e17 + at * 100"):
        con = apsw.Connection(rotting.path)
        con.execute(change)
        con.close()
        with rotting.opened() as runs:
            found = runs.recover(RUN_ID)
            assert found.snapshot_size == 0
            assert bare(found.record) == rotting.record


@pytest.mark.parametrize("value", [1, 7, b"\0\0"])
def test_a_run_whose_row_says_that_it_is_deleted(
    value: int | bytes, tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B89: its journal is not read any more, so a snapshot must not pass for the whole of it."""
    monkeypatch.setattr(snapshots, "FIRST_AFTER_BYTES", 900)
    rotting = Rotting(tmp_path, disk)
    con = apsw.Connection(rotting.path)
    con.execute("UPDATE runs SET deleted = ?", (value,))
    con.close()
    with rotting.opened() as runs:
        with pytest.raises(UnknownRun):
            runs.recover(RUN_ID)
        with pytest.raises((UnknownRun, JournalDamaged)):
            to_the_end(runs, Outside())


def test_every_byte_of_the_log(tmp_path: Path, disk: Disk) -> None:
    """B89: damage in a log that was not yet checkpointed takes the last commits away, and never mixes two."""
    path, images = str(tmp_path / "agent.db"), tmp_path / "images"
    images.mkdir()
    with RunStore(SqliteStore(path, vfs=disk.name), Hasty()) as runs:
        to_the_end(runs, Outside())
        whole = bare(runs.recover(RUN_ID).record)
        prefixes = [Record(RUN_ID), *_prefixes(list(runs.events(RUN_ID)))]
        shutil.copy(path, images / "agent.db")
        log = Path(path + "-wal").read_bytes()
    database = (images / "agent.db").read_bytes()
    counts: Counter[str] = Counter()
    for offset in range(0, len(log), 17 if FULL else 307):
        for name in os.listdir(images):
            os.unlink(images / name)
        (images / "agent.db").write_bytes(database)
        (images / "agent.db-wal").write_bytes(log[:offset] + bytes([log[offset] ^ 0x55]) + log[offset + 1 :])
        try:
            with RunStore(SqliteStore(str(images / "agent.db"), vfs=disk.name), Hasty()) as runs:
                record = bare(runs.recover(RUN_ID).record)
        except UnknownRun:
            counts["before the first commit"] += 1
            continue
        assert record in prefixes
        counts["all there" if record == whole else "a prefix"] += 1
    tell(f"{counts.total()} of {len(log)} bytes of the log flipped: {dict(counts)}")
    assert counts["a prefix"] > 20
