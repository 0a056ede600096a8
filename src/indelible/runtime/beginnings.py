"""Where a run's journal begins: at its first event, or at the snapshot that stands for what was pruned.

Owns: the way from a store to the record that the first batch is folded into.
Must never: take a journal whose first batches are missing for a pruned one: a snapshot stands where it begins, and
verifies, or it is damaged.
Invariant: the fold of `batches` into `record` is the run, whatever was dropped.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from indelible.core import snapshots
from indelible.core.arriving import BEGINS_LATER, marked
from indelible.core.journal import Batch, Reader, seed
from indelible.core.record import Record
from indelible.core.recovery import NEWEST
from indelible.errors import JournalDamaged


class Source(Protocol):
    """What a journal is read from: a store, or what holds runs as one does."""

    def read(self, run_id: str, after_seq: int = 0) -> Iterator[Batch]:
        """See `Store.read`."""
        ...

    def get_snapshot(self, run_id: str, at_most_seq: int) -> tuple[int, bytes] | None:
        """See `Store.get_snapshot`."""
        ...


@dataclass(slots=True)
class Beginning:
    """A journal from its beginning on. `seq` is 0 unless the events up to it were pruned."""

    record: Record
    """As it stands there; it is the reader's to fold into."""
    batches: Iterable[Batch]
    snapshot_size: int = 0
    seq: int = field(init=False)
    """The last event that was pruned."""

    def __post_init__(self) -> None:
        self.seq = self.record.seq

    def reader(self) -> Reader:
        """What opens the batches; to be made before the record is folded into."""
        return Reader(self.record.run_id, self.record.chain or seed(self.record.run_id), self.seq)


def beginning(store: Source, run_id: str) -> Beginning:
    """A run's journal from its beginning on; nothing but the first batch is read yet.

    Raises `JournalDamaged` if what stands for a pruned past is not there, or does not verify. A run that is not in the
    store has an empty journal.
    """
    batches: Iterator[Batch] = iter(store.read(run_id))
    first = next(batches, None)
    after = NEWEST if first is None else first.after_seq
    if after == 0 or (first is not None and first.data == BEGINS_LATER):
        return Beginning(Record(run_id), batches if first is None else chain((first,), batches))
    found = store.get_snapshot(run_id, after)
    while found is not None and marked(found[1]) is not None:
        found = store.get_snapshot(run_id, found[0] - 1)
    if first is None:
        if found is None:
            return Beginning(Record(run_id), ())
        return Beginning(snapshots.decode(found[1], run_id, found[0]), (), len(found[1]))
    if found is None or found[0] != after:
        raise JournalDamaged(
            f"run {run_id!r}: the journal begins after event {after}, and no snapshot stands there",
            hint=f"indelible verify {shlex.quote(run_id)}",
            run=run_id,
        )
    return Beginning(snapshots.decode(found[1], run_id, after), chain((first,), batches), len(found[1]))
