"""A store that remembers what it was asked to write and what it said was durable.

Owns: the list of acknowledged writes, claims and snapshots, and their comparison with what is found later.
Must never: change an answer of the store behind it.
Invariant: what it lists as acknowledged has been answered to the caller, in that order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from indelible.core import events as ev
from indelible.core.journal import Reader, Torn, read_all
from indelible.errors import IndelibleError
from indelible.stores.base import Batch, Page, Query, Store, Write


class Witness:
    """A `Store` in front of another one. For one thread that writes at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.url, self.durable, self.shared = store.url, store.durable, store.shared
        self.offered: dict[str, list[Batch]] = {}
        self.acknowledged: list[Write] = []
        self.epochs: dict[str, int] = {}
        self.snapshots: dict[str, dict[int, bytes]] = {}
        self.refused: list[IndelibleError] = []
        """What the store raised."""

    def goes_on_with(self, store: Store) -> None:
        """The store behind was closed, and is open again as `store`."""
        self._store = store

    def append(self, writes: Sequence[Write]) -> list[IndelibleError | None]:
        """See `Store.append`."""
        for write in writes:
            self.offered.setdefault(write.run_id, []).append(write.batch)
        try:
            answers = self._store.append(writes)
        except IndelibleError as error:
            self.refused.append(error)
            raise
        self.acknowledged += [write for write, answer in zip(writes, answers, strict=True) if answer is None]
        return answers

    def read(self, run_id: str, after_seq: int = 0) -> Iterator[Batch]:
        """See `Store.read`. What was read counts as acknowledged: a writer that finds its batch so relies on it."""
        known = {(write.run_id, write.batch) for write in self.acknowledged}
        for batch in self._store.read(run_id, after_seq):
            if (run_id, batch) not in known:
                self.acknowledged.append(Write(run_id, 0, batch))
            yield batch

    def list_runs(self, query: Query, cursor: str | None = None) -> Page:
        """See `Store.list_runs`."""
        return self._store.list_runs(query, cursor)

    def claim(self, run_id: str, owner: str, ttl_s: float) -> int:
        """See `Store.claim`."""
        epoch = self._store.claim(run_id, owner, ttl_s)
        self.epochs[run_id] = epoch
        return epoch

    def put_snapshot(self, run_id: str, seq: int, data: bytes, begins: bool = False) -> None:
        """See `Store.put_snapshot`."""
        self._store.put_snapshot(run_id, seq, data, begins)
        self.snapshots.setdefault(run_id, {})[seq] = data

    def get_snapshot(self, run_id: str, at_most_seq: int) -> tuple[int, bytes] | None:
        """See `Store.get_snapshot`."""
        return self._store.get_snapshot(run_id, at_most_seq)

    def delete(self, run_id: str) -> None:
        """See `Store.delete`."""
        self._store.delete(run_id)

    def close(self) -> None:
        """See `Store.close`."""
        self._store.close()

    def intents(self, run_id: str) -> set[str]:
        """The idempotency keys of all deeds whose intent was acknowledged."""
        batches = sorted(write.batch for write in self.acknowledged if write.run_id == run_id)
        return {
            event.key
            for opened in read_all(Reader(run_id), batches)
            if not isinstance(opened, Torn)
            for event in opened.events
            if isinstance(event, ev.ActionIntended)
        }

    def found_in(self, store: Store) -> list[bool]:
        """For each acknowledged write, in their order: is it in that store, byte for byte?"""
        there = {(run_id, batch) for run_id in self.offered for batch in store.read(run_id)}
        return [(write.run_id, write.batch) in there for write in self.acknowledged]

    def invented(self, store: Store) -> Iterator[str]:
        """What that store serves though nobody wrote it, or what it serves in pieces."""
        for run_id, offered in self.offered.items():
            reader = Reader(run_id)
            for batch in store.read(run_id):
                if batch not in offered:
                    yield f"served: events {batch.after_seq + 1} to {batch.last_seq} of {run_id}, which nobody wrote"
                reader.open(batch)

    def forgotten(self, store: Store) -> Iterator[str]:
        """Acknowledged writes, claims and snapshots that are not in that store."""
        for write, there in zip(self.acknowledged, self.found_in(store), strict=True):
            if not there:
                yield f"lost: events {write.batch.after_seq + 1} to {write.batch.last_seq} of {write.run_id}"
        for entry in store.list_runs(Query(run_ids=tuple(self.epochs))).runs:
            if entry.epoch < self.epochs[entry.run_id]:
                yield f"lost: the claim of {entry.run_id} with epoch {self.epochs[entry.run_id]}"
        for run_id, snapshots in self.snapshots.items():
            newest = max(snapshots)
            found = store.get_snapshot(run_id, 2**62)
            if found is None or found[0] < newest or (found[0] == newest and found[1] != snapshots[newest]):
                yield f"lost: the snapshot of {run_id} at event {newest}"
