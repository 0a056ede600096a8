"""Journals in this process's memory: for tests, simulations and runs that may be lost.

Owns: nothing outlives the process, and no other process sees it.
Must never: read a clock of its own, or hold its lock while the caller's code runs.
Invariant: it answers every call as the SQLite store would.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from indelible.errors import IndelibleError
from indelible.stores import refusals
from indelible.stores.base import Batch, Fact, Label, Page, Query, RunEntry, Write, inbox_of


class _Journal:
    """One run or inbox; a deleted one stays as its own tombstone."""

    __slots__ = (
        "batches", "begins", "created_at", "deleted", "epoch", "head", "label", "lease_until",
        "owner", "snapshots", "stored_bytes", "touched", "ttl_s", "updated_at",
    )  # fmt: skip

    def __init__(self, now: float) -> None:
        self.head = 0
        self.begins = 0
        self.epoch = 0
        self.owner = ""
        self.ttl_s = 0.0
        self.lease_until = 0.0
        self.label: Label | None = None
        self.batches: list[Batch] = []
        self.snapshots: list[tuple[int, bytes]] = []
        self.created_at = now
        self.updated_at = now
        self.stored_bytes = 0
        self.touched = 0
        self.deleted = False

    def copy(self) -> _Journal:
        twin = _Journal.__new__(_Journal)
        twin.head, twin.begins, twin.epoch, twin.owner = self.head, self.begins, self.epoch, self.owner
        twin.ttl_s, twin.lease_until, twin.label = self.ttl_s, self.lease_until, self.label
        twin.batches, twin.snapshots = self.batches.copy(), self.snapshots.copy()
        twin.created_at, twin.updated_at = self.created_at, self.updated_at
        twin.stored_bytes, twin.touched, twin.deleted = self.stored_bytes, self.touched, self.deleted
        return twin


class MemoryStore:
    """A `Store` in memory. `clock` gives epoch seconds and may be replaced at any time."""

    url = "memory:"
    durable = False
    shared = False

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._journals: dict[str, _Journal] = {}
        self._touched = 0
        self._closed = False
        self._lock = threading.Lock()

    def copy(self) -> MemoryStore:
        """An independent store with the same content, sharing only the (immutable) bytes."""
        twin = MemoryStore(self.clock)
        with self._lock:
            twin._journals = {run_id: journal.copy() for run_id, journal in self._journals.items()}
            twin._touched = self._touched
        return twin

    def append(self, writes: Sequence[Write]) -> list[IndelibleError | None]:
        """See `Store.append`; nothing is durable."""
        with self._lock:
            self._check_open()
            now = self.clock()
            return [self._write(write, now) for write in writes]

    def read(self, run_id: str, after_seq: int = 0) -> Iterator[Batch]:
        """See `Store.read`; what is appended during the read is not part of it."""
        with self._lock:
            self._check_open()
            journal = self._journals.get(run_id)
            if journal is None:
                return iter(())
            return iter(journal.batches[bisect_right(journal.batches, after_seq, key=_last_seq) :])

    def list_runs(self, query: Query, cursor: str | None = None) -> Page:
        """See `Store.list_runs`."""
        below = refusals.check_query(query, cursor)
        wanted = None if query.run_ids is None else frozenset(query.run_ids)
        with self._lock:
            self._check_open()
            now = self.clock()
            found = sorted(
                (
                    (journal.touched, run_id, journal)
                    for run_id, journal in self._journals.items()
                    if not journal.deleted
                    and not refusals.is_inbox(run_id)
                    and (journal.touched, 0) < below
                    and (wanted is None or run_id in wanted)
                    and _matches(journal.label, query)
                ),
                reverse=True,
                key=_by_touch,
            )
            page = [_entry(run_id, journal, now) for _, run_id, journal in found[: query.limit]]
        more = len(found) > query.limit
        return Page(page, refusals.cursor_at((found[query.limit - 1][0], 0)) if more else None)

    def claim(self, run_id: str, owner: str, ttl_s: float) -> int:
        """See `Store.claim`."""
        refusals.check_claim(run_id, owner, ttl_s)
        with self._lock:
            self._check_open()
            now = self.clock()
            journal = self._journals.get(run_id)
            if journal is None:
                if ttl_s == 0:
                    raise refusals.unknown(run_id)
                journal = self._journals[run_id] = _Journal(now)
                self._touch(journal)
            if journal.deleted:
                raise refusals.unknown(run_id, deleted=True)
            if ttl_s == 0:
                if journal.owner == owner:
                    journal.owner, journal.ttl_s, journal.lease_until = "", 0.0, 0.0
                return journal.epoch
            journal.epoch = refusals.epoch_for(
                run_id, owner, epoch=journal.epoch, holder=journal.owner, lease_until=journal.lease_until, now=now
            )
            journal.owner, journal.ttl_s, journal.lease_until = owner, ttl_s, now + ttl_s
            return journal.epoch

    def put_snapshot(self, run_id: str, seq: int, data: bytes, begins: bool = False) -> None:
        """See `Store.put_snapshot`; raises `UnknownRun` for a run that is not there."""
        refusals.check_snapshot(run_id, seq, data)
        with self._lock:
            self._check_open()
            journal = self._known(run_id)
            if begins and seq != journal.begins:
                if not any(batch.last_seq == seq for batch in journal.batches):
                    raise refusals.no_batch_ends(run_id, seq)
                journal.batches = [batch for batch in journal.batches if batch.last_seq > seq]
                journal.stored_bytes = sum(len(batch.data) for batch in journal.batches)
                journal.begins = seq
            kept = sorted({**dict(journal.snapshots), seq: data}.items())
            newest = kept[-2:]
            journal.snapshots = [
                one for one in kept if one[0] == journal.begins or (one in newest and one[0] > journal.begins)
            ]

    def get_snapshot(self, run_id: str, at_most_seq: int) -> tuple[int, bytes] | None:
        """See `Store.get_snapshot`."""
        with self._lock:
            self._check_open()
            journal = self._journals.get(run_id)
            kept = journal.snapshots if journal is not None else []
            return next((found for found in reversed(kept) if found[0] <= at_most_seq), None)

    def delete(self, run_id: str) -> None:
        """See `Store.delete`."""
        with self._lock:
            self._check_open()
            if run_id in self._journals or inbox_of(run_id) not in self._journals:
                self._known(run_id)
            self._bury(run_id)

    def delete_idle(self, runs: Sequence[tuple[str, int]]) -> list[bool]:
        """See `Sweeping.delete_idle`."""
        with self._lock:
            self._check_open()
            gone = []
            for run_id, head in runs:
                found = self._journals.get(run_id)
                here = found is not None and not found.deleted and found.head == head
                gone.append(
                    here and found is not None and not refusals.is_live(found.owner, found.lease_until, self.clock())
                )
                if gone[-1]:
                    self._bury(run_id)
            return gone

    def _bury(self, run_id: str) -> None:
        for name in (run_id, inbox_of(run_id)):
            tombstone = self._journals[name] = _Journal(self.clock())
            tombstone.deleted = True

    def now(self) -> float:
        """See `Upkeep.now`."""
        return self.clock()

    def facts(self) -> Iterator[Fact]:
        """See `Upkeep.facts`."""
        yield Fact("durability", "none: in memory", "note", "a store that lasts: --store agent.db")

    def reclaim(self) -> int:
        """See `Upkeep.reclaim`; what is deleted is gone at once."""
        return 0

    def close(self) -> None:
        """See `Store.close`; the content goes with the last reference to the store."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise refusals.closed(self.url)

    def _known(self, run_id: str) -> _Journal:
        journal = self._journals.get(run_id)
        if journal is None or journal.deleted or refusals.is_inbox(run_id):
            raise refusals.unknown(run_id, deleted=journal is not None and journal.deleted)
        return journal

    def _touch(self, journal: _Journal) -> None:
        self._touched += 1
        journal.touched = self._touched

    def _write(self, write: Write, now: float) -> IndelibleError | None:
        wrong = refusals.bad_write(write)
        if wrong is not None:
            return wrong
        run_id, epoch, batch, label = write
        journal = self._journals.get(run_id)
        if journal is None:
            if epoch != 0 or batch.after_seq != 0 or not refusals.is_inbox(run_id):
                return refusals.stale(write, head=0 if refusals.is_inbox(run_id) else None)
            try:
                refusals.check_journal_id(run_id)
            except IndelibleError as error:
                return error
            journal = self._journals[run_id] = _Journal(now)
        if journal.deleted or journal.head != batch.after_seq or journal.epoch != epoch:
            return refusals.stale(write, head=journal.head, epoch=journal.epoch, deleted=journal.deleted)
        journal.batches.append(batch)
        journal.head = batch.last_seq
        journal.stored_bytes += len(batch.data)
        journal.updated_at = now
        journal.lease_until = now + journal.ttl_s
        if label is not None:
            journal.label = label
        self._touch(journal)
        return None


def _last_seq(batch: Batch) -> int:
    return batch.last_seq


def _by_touch(found: tuple[int, str, _Journal]) -> int:
    return found[0]


def _matches(label: Label | None, query: Query) -> bool:
    if query.statuses is not None and (label is None or label.status not in query.statuses):
        return False
    return query.agent is None or (label is not None and label.agent == query.agent)


def _entry(run_id: str, journal: _Journal, now: float) -> RunEntry:
    return RunEntry(
        run_id=run_id,
        head=journal.head,
        epoch=journal.epoch,
        label=journal.label,
        owner=journal.owner,
        live=refusals.is_live(journal.owner, journal.lease_until, now),
        created_at=journal.created_at,
        updated_at=journal.updated_at,
        stored_bytes=journal.stored_bytes,
    )
