"""Surveying a run: everything that a store holds of it, read once, verified and folded.

Owns: what two stores that hold the same run must agree on.
Must never: claim or change a run; hold more than one batch in memory.
Invariant: two surveys that agree are of journals that are the same, byte for byte, as far back as both go.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

from indelible.core import snapshots
from indelible.core.arriving import BEGINS_LATER, marked
from indelible.core.failures import text_of
from indelible.core.journal import Reader, Torn, read_all, seed
from indelible.core.record import Record, fold
from indelible.core.recovery import NEWEST
from indelible.errors import IndelibleError, JournalDamaged
from indelible.stores.base import Batch


class Origin(Protocol):
    """What a run can be read from: a store, or a file that holds one run."""

    url: str

    def read(self, run_id: str, after_seq: int = 0) -> Iterator[Batch]:
        """See `Store.read`."""
        ...

    def get_snapshot(self, run_id: str, at_most_seq: int) -> tuple[int, bytes] | None:
        """See `Store.get_snapshot`."""
        ...


@dataclass
class Survey:
    """A run as it was found. `record` is the fold of everything that verifies."""

    record: Record
    begins: int = 0
    """The journal begins after this event; a snapshot stands there if it is not 0."""
    chain_at_beginning: bytes = b""
    head: int = 0
    batches: int = 0
    stored_bytes: int = 0
    digest: bytes = b""
    """Over every batch from `since` on, with those that a later one declared void."""
    at: Batch | None = None
    """The batch that ends at the event that was asked for."""
    last: Batch | None = None
    torn: bool = False

    @property
    def fold(self) -> bytes:
        """The folded state, with the chain of digests that leads to it."""
        return snapshots.encode(self.record)


def survey(
    origin: Origin,
    run_id: str,
    *,
    at: int = 0,
    since: int = 0,
    upto: int = NEWEST,
    beat: Callable[[], object] = lambda: None,
) -> Survey:
    """Read a run from its beginning to its head, or up to the batch that ends at `upto`; `beat` is called now and then.

    Raises `JournalDamaged` with the position, and `FormatTooNew`. A torn last batch is told, not raised.
    """
    batches = iter(origin.read(run_id))
    first = next(batches, None)
    found = Survey(_beginning(origin, run_id, first))
    record = found.record
    found.begins = found.head = record.seq
    found.chain_at_beginning = record.chain
    hasher = blake2b(digest_size=16)

    def counted() -> Iterator[Batch]:
        for batch in _again(first, batches):
            if batch.last_seq > upto:
                return
            if batch.after_seq >= since:
                hasher.update(b"%d %d %d " % (batch.after_seq, batch.last_seq, len(batch.data)))
                hasher.update(batch.data)
            found.batches += 1
            found.stored_bytes += len(batch.data)
            found.head, found.last = batch.last_seq, batch
            if batch.last_seq == at:
                found.at = batch
            beat()
            yield batch

    reader = Reader(run_id, record.chain or seed(run_id), record.seq)
    for opened in read_all(reader, counted()):
        if isinstance(opened, Torn):
            found.torn = True
            break
        for offset, event in enumerate(opened.events):
            _fold(record, opened.after_seq + 1 + offset, event)
        record.chain = reader.chain
    found.digest = hasher.digest()
    return found


def _again(first: Batch | None, others: Iterable[Batch]) -> Iterator[Batch]:
    if first is not None:
        yield first
        yield from others


def _beginning(origin: Origin, run_id: str, first: Batch | None) -> Record:
    """The record that the first batch is folded into: an empty one, or the snapshot that the journal begins at."""
    if first is not None and first.data == BEGINS_LATER:
        raise JournalDamaged(f"run {run_id!r}: the snapshot that the journal begins at is missing")
    begins = NEWEST if first is None else first.after_seq
    if begins == 0:
        return Record(run_id)
    found = origin.get_snapshot(run_id, begins)
    while found is not None and marked(found[1]) is not None:
        found = origin.get_snapshot(run_id, found[0] - 1)
    if first is not None and (found is None or found[0] != begins):
        raise JournalDamaged(
            f"run {run_id!r}: the journal begins after event {begins}, and no snapshot stands there",
            hint=f"indelible verify {shlex.quote(run_id)}",
            run=run_id,
        )
    return Record(run_id) if found is None else snapshots.decode(found[1], run_id, found[0])


def _fold(record: Record, seq: int, event: Any) -> None:
    try:
        fold(record, seq, event)
    except IndelibleError:
        raise
    except Exception as error:
        raise JournalDamaged(
            f"run {record.run_id!r}: event {seq} has no meaning: {text_of(error)}",
            hint=f"indelible verify {shlex.quote(record.run_id)}",
            run=record.run_id,
        ) from error
