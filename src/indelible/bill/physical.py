"""What a run's writes come to on a disk: bytes, syncs and seconds, measured by writing them again.

Owns: the disk that counts, and the replay of batches and snapshots into a store of its own.
Must never: touch the store that the run is in, or leave anything behind.
Invariant: what SQLite writes is counted where it leaves SQLite, and is written and synced for real.

The store's own page size, log and checkpoints are at work, so that what is counted is what a run by itself causes.
Where several runs share a store, they share transactions, and each causes less than this. Lease renewals, one small
write every few seconds, are not among it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from time import perf_counter
from types import TracebackType
from typing import Self

import apsw

from indelible.core.journal import Batch
from indelible.runtime.runstore import RunStore
from indelible.stores.base import Label, Query, Write
from indelible.stores.sqlite import SqliteStore

_TTL_S = 3600.0
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Physical:
    """What was written. `log_bytes` went to the write-ahead log, `file_bytes` to the file itself, at checkpoints.

    `seconds` are those of the writes, as this machine's disk took them in the directory for temporary files.
    """

    writes: int
    snapshots: int
    log_bytes: int
    file_bytes: int
    syncs: int
    seconds: float

    @property
    def bytes(self) -> int:
        """All that was written."""
        return self.log_bytes + self.file_bytes


def physical(runs: RunStore, run_id: str, *, durability: str = "full") -> Physical:
    """What the durable writes of a run come to in a SQLite store. Raises `UnknownRun`, and `StoreUnavailable`.

    Takes about as long as the writes took the run.
    """
    meter = runs.meter(run_id)
    page = runs.store.list_runs(Query(run_ids=(run_id,)))
    label = page.runs[0].label if page.runs else None
    return written(run_id, runs.store.read(run_id), meter.snapshots, label=label, durability=durability)


def written(
    run_id: str,
    batches: Iterable[Batch],
    snapshots: Iterable[tuple[int, int]] = (),
    *,
    label: Label | None = None,
    durability: str = "full",
) -> Physical:
    """As `physical`, for these batches. `snapshots` are pairs of how many batches stand before one, and its size."""
    due: dict[int, int] = dict(snapshots)
    with TemporaryDirectory(prefix="indelible-") as folder, _CountingDisk() as disk:
        store = SqliteStore(os.path.join(folder, "run.db"), durability=durability, vfs=disk.name)
        try:
            epoch = store.claim(run_id, "bill", _TTL_S)
            source = iter(batches)
            first = next(source, None)
            if first is not None and first.after_seq:  # what stood before it was pruned, and is not part of this
                store.append([Write(run_id, epoch, Batch(0, first.after_seq, b""))])
            disk.reset()
            began, writes, kept = perf_counter(), 0, 0
            for batch in source if first is None else itertools.chain((first,), source):
                for refused in store.append([Write(run_id, epoch, batch, label)]):
                    if refused is not None:
                        raise refused
                writes += 1
                if writes in due:
                    store.put_snapshot(run_id, batch.last_seq, bytes(due[writes]))
                    kept += 1
            seconds = perf_counter() - began
        finally:
            store.close()
        return Physical(writes, kept, disk.log_bytes, disk.file_bytes, disk.syncs, seconds)


class _CountingDisk(apsw.VFS):
    """The disk as it is, with what goes to it counted."""

    def __init__(self) -> None:
        self.name = f"indelible-count-{os.getpid()}-{next(_numbers)}"
        self.reset()
        super().__init__(self.name, "", iVersion=2)

    def reset(self) -> None:
        """Count from nothing."""
        self.log_bytes = self.file_bytes = self.syncs = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.unregister()

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        """Open a file."""
        return _CountedFile(self, name, flags)


class _CountedFile(apsw.VFSFile):
    def __init__(self, disk: _CountingDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        self._is_file = bool(flags[0] & apsw.SQLITE_OPEN_MAIN_DB)
        super().__init__("", name, flags)

    def xWrite(self, data: object, offset: int) -> None:
        size = len(memoryview(data))  # type: ignore[arg-type]
        if self._is_file:
            self._disk.file_bytes += size
        else:
            self._disk.log_bytes += size
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._disk.syncs += 1
        super().xSync(flags)
