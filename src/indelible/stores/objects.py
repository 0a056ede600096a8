"""Journals in object storage (S3, Google Cloud Storage, Azure Blob Storage) or in a folder of files.

Owns: the eight methods of a `Store`; an append is one request.
Must never: rewrite what is stored; order anything by time; go by this machine's clock.
Invariant: a method returns when what it acknowledges is in the log of the run, where `objects_log` tells how it grows.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from indelible.errors import IndelibleError, StaleWriter
from indelible.stores import refusals
from indelible.stores.base import Batch, Fact, Page, Query, Write
from indelible.stores.objects_bucket import Bucket, Remote
from indelible.stores.objects_clock import ServerClock, steady
from indelible.stores.objects_entry import Entry, Lease, Names, encode
from indelible.stores.objects_listing import Listing, lease_end, renewed_until
from indelible.stores.objects_log import Log, Logs, Tail
from indelible.stores.objects_opening import Opened, opened, prepared, usd_per_put
from indelible.stores.objects_reading import Reading
from indelible.stores.objects_tidying import Tidying
from indelible.stores.objects_upkeep import facts, reclaim

_TRIES = 100
"""So many times in a row somebody else may be first before a write is given up."""

_open_stores: weakref.WeakSet[ObjectStore] = weakref.WeakSet()


class ObjectStore:
    """A `Store` at `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or `file:///folder`.

    Credentials come from the environment, as the provider's own tools take them, never from the URL; of an S3
    server `?endpoint=http://host:port&region=...` tells where it is. An acknowledged append is as durable as the
    provider keeps an object. In a folder `durability="full"` syncs every file and its folder to the disk; "os"
    leaves that to the operating system, and says so with `durable=False`. `clock` replaces the server's
    clock, and `since` the steady one, for tests. With `readonly=True` nothing is written.
    """

    shared = True
    usd_per_write: float
    """What the provider charges for one write, in dollars; 0 where that is not known."""

    def __init__(
        self,
        url: str,
        *,
        durability: str = "full",
        readonly: bool = False,
        clock: Callable[[], float] | None = None,
        since: Callable[[], float] = steady,
    ) -> None:
        """Raises `StoreUnavailable`, `Misuse`, `FormatTooNew` or `JournalDamaged` before anything is promised."""
        self._open(opened(url, durability, readonly), readonly, clock, since)

    @classmethod
    def over(
        cls,
        store: Any,
        url: str,
        *,
        clock: Callable[[], float] | None = None,
        since: Callable[[], float] = steady,
        readonly: bool = False,
        background: bool = True,
    ) -> ObjectStore:
        """Over a store of `obstore`, or a `Bucket`. Without `background` an append itself merges old entries."""
        self = cls.__new__(cls)
        bucket: Bucket = store if hasattr(store, "create") else Remote(store, url)
        self._open(Opened(bucket, url, True), readonly, clock, since, background)
        return self

    def _open(
        self,
        found: Opened,
        readonly: bool,
        clock: Callable[[], float] | None,
        since: Callable[[], float],
        background: bool = True,
    ) -> None:
        prepared(found.bucket, readonly)
        self.url, self.durable = found.url, found.durable
        self.usd_per_write = usd_per_put(found.url)
        self._bucket = found.bucket
        self._readonly = readonly
        self._closed = False
        self._logs = Logs(found.bucket, ServerClock(found.bucket, since, clock, readonly), since)
        self._listing = Listing(self._logs)
        self._tidying = Tidying(self._logs, background)
        _open_stores.add(self)

    def append(self, writes: Sequence[Write]) -> list[IndelibleError | None]:
        """See `Store.append`. One request for each write; those of different runs are made at once."""
        self._check_open(writing=True)
        by_run: dict[str, list[tuple[int, Write, int]]] = {}
        now = self._logs.clock.now()
        for number, write in enumerate(writes):
            by_run.setdefault(write.run_id, []).append((number, write, self._logs.touch(now)))
        answers: list[IndelibleError | None] = [None] * len(writes)
        failed: list[Exception] = []

        def run(group: list[tuple[int, Write, int]]) -> None:
            for number, write, touched in group:
                try:
                    answers[number] = self._write(write, touched)
                except IndelibleError as error:
                    failed.append(error)
                    return

        for _ in self._logs.each(run, by_run.values()):
            pass
        if failed:
            raise failed[0]
        return answers

    def read(self, run_id: str, after_seq: int = 0) -> Iterator[Batch]:
        """See `Store.read`. What is appended meanwhile is left out.

        Raises `UnknownRun` if the run is deleted meanwhile, `StoreUnavailable` if its journal is shortened beyond what
        was read, and `JournalDamaged` if an object is missing or does not fit.
        """
        self._check_open()
        return self._batches(run_id, after_seq)

    def list_runs(self, query: Query, cursor: str | None = None) -> Page:
        """See `Store.list_runs`. A run that changes while pages are turned moves to the front."""
        self._check_open()
        return self._listing.page(query, cursor)

    def claim(self, run_id: str, owner: str, ttl_s: float) -> int:
        """See `Store.claim`. Lease times are the server's, to the second in favour of the holder.

        While the lease that the present owner has taken or renewed through this handle, be it by writing, has more
        than half of its time to run, renewing it again asks nothing of the server.
        """
        refusals.check_claim(run_id, owner, ttl_s)
        self._check_open(writing=True)
        log = self._logs.of(run_id)
        with log.lock:
            if log.tail is not None and self._holds(log, log.tail, owner, ttl_s):
                return log.tail.now.epoch
            for _ in range(_TRIES):
                tail = self._logs.refresh(log)
                epoch = self._claim(log, tail, owner, ttl_s)
                if epoch is not None:
                    return epoch
        raise _crowded(run_id)

    def put_snapshot(self, run_id: str, seq: int, data: bytes, begins: bool = False) -> None:
        """See `Store.put_snapshot`; raises `UnknownRun` for a run that is not there. Durable."""
        refusals.check_snapshot(run_id, seq, data)
        self._check_open(writing=True)
        log = self._logs.of(run_id)
        with log.lock:
            tail = self._known(log)
            if not begins:
                self._tidying.snapshot(log, tail, seq, data)
                return
            for _ in range(_TRIES):
                if self._tidying.begin(log, tail, seq, data):
                    return
                tail = self._known(log)
        raise _crowded(run_id)

    def get_snapshot(self, run_id: str, at_most_seq: int) -> tuple[int, bytes] | None:
        """See `Store.get_snapshot`."""
        self._check_open()
        log = self._logs.of(run_id)
        tail = self._logs.peek(log)
        if tail is None or tail.now.deleted:
            return None
        return self._tidying.newest_snapshot(log.names, at_most_seq)

    def delete(self, run_id: str) -> None:
        """See `Store.delete`. Durable; if it ends half-way the run is deleted, and `reclaim` removes the rest."""
        self._check_open(writing=True)
        log, inbox = self._logs.of(run_id), self._logs.of(Names.of(run_id).inbox.run_id)
        with log.lock, inbox.lock:
            tail = self._logs.refresh(log)
            if tail is None or tail.now.deleted or refusals.is_inbox(run_id):
                orphan = self._logs.refresh(inbox) if tail is None else None
                if orphan is None or orphan.now.deleted:
                    raise refusals.unknown(run_id, deleted=tail is not None and tail.now.deleted)
            self._tidying.bury(log)
            self._tidying.bury(inbox)

    def close(self) -> None:
        """See `Store.close`."""
        self._closed = True
        _open_stores.discard(self)
        self._tidying.close()
        self._logs.close()

    def now(self) -> float:
        """See `Upkeep.now`."""
        self._check_open()
        return self._logs.clock.ask()

    @property
    def lags(self) -> bool:
        """True if `now` may be behind: a read-only store knows the time only by what it has seen written."""
        return self._readonly and self._logs.clock.given is None

    def facts(self) -> Iterator[Fact]:
        """See `Upkeep.facts`."""
        self._check_open()
        return facts(self._logs, durable=self.durable, readonly=self._readonly)

    def reclaim(self) -> int:
        """See `Upkeep.reclaim`. Also writes index objects that are missing."""
        self._check_open(writing=True)
        return reclaim(self._logs, self._tidying)

    def _write(self, write: Write, touched: int) -> IndelibleError | None:
        wrong = refusals.bad_write(write)
        if wrong is not None:
            return wrong
        log = self._logs.of(write.run_id)
        with log.lock:
            tail, fresh = log.tail, False
            for _ in range(_TRIES):
                refused = _refused(write, tail)
                if refused is not None and fresh:
                    return refused
                # A slot is taken for empty only by who has looked: that of a deleted inbox is empty as well.
                if refused is None and (tail is not None or fresh):
                    added = self._batch(log, tail or self._logs.begin(write.run_id), write, touched)
                    if added is not None:
                        self._tidying.after(log, added)
                        return None
                tail, fresh = self._logs.refresh(log), True
            return _crowded(write.run_id)

    def _batch(self, log: Log, tail: Tail, write: Write, touched: int) -> Tail | None:
        batch, at = write.batch, self._logs.clock.now()
        changes: dict[str, object] = {"at": at, "updated_at": at, "head": batch.last_seq, "touched": touched}
        changes["stored_bytes"] = tail.now.stored_bytes + len(batch.data)
        if write.label is not None:
            changes["label"] = write.label
        if not tail.now.index:
            changes["created_at"] = at
        return self._logs.add(log, tail, Entry("batch", self._logs.next(tail, **changes), batch.after_seq, batch.data))

    def _claim(self, log: Log, tail: Tail | None, owner: str, ttl_s: float) -> int | None:
        """The epoch, or None if somebody else was first and all is to be looked at again."""
        run_id = log.names.run_id
        if tail is None and ttl_s == 0:
            raise refusals.unknown(run_id)
        now = self._logs.begin(run_id).now if tail is None else tail.now
        if now.deleted:
            raise refusals.unknown(run_id, deleted=True)
        if ttl_s == 0:
            return now.epoch if tail is None or now.owner != owner else self._release(log, tail)
        if now.owner == owner:
            started = self._logs.clock.now()
            self._bucket.put(log.names.lease(now.epoch), encode(Lease(now.epoch, ttl_s, started)))
            log.renewed = started
            return now.epoch
        epoch = self._epoch(log.names, tail, owner)
        at = self._logs.clock.now()
        changes: dict[str, object] = {"at": at, "owner": owner, "ttl_s": ttl_s, "epoch": epoch}
        if tail is None:
            changes |= {"created_at": at, "updated_at": at, "touched": self._logs.touch(at)}
            tail = self._logs.begin(run_id)
        # First, so that no run is missing from listings, and none is shown as its former owner left it.
        standing = self._logs.next(tail, **changes)
        self._logs.put_index(log, tail.now if tail.now.index else standing)
        return None if self._logs.add(log, tail, Entry("claim", standing)) is None else epoch

    def _holds(self, log: Log, tail: Tail, owner: str, ttl_s: float) -> bool:
        """Whether that owner has been at the end of the log too recently for anybody to have taken over."""
        now = tail.now
        if tail.modified is not None or now.owner != owner or now.ttl_s != ttl_s or not ttl_s:
            return False
        return max(now.at, log.renewed) + ttl_s / 2 > self._logs.clock.now()

    def _epoch(self, names: Names, tail: Tail | None, owner: str) -> int:
        if tail is None:
            return 1
        now = tail.now
        if not refusals.is_live(now.owner, 1.0, 0.0):
            return now.epoch + 1
        written = tail.modified
        if written is None:
            written = self._bucket.modified(names.entry(now.index)) or now.at
        asked = self._logs.clock.ask()
        until = max(lease_end(self._logs, now, written, asked), renewed_until(self._logs, now))
        return refusals.epoch_for(
            names.run_id, owner, epoch=now.epoch, holder=now.owner, lease_until=until, now=asked
        )  # fmt: skip

    def _release(self, log: Log, tail: Tail) -> int | None:
        standing = self._logs.next(tail, owner="", ttl_s=0.0)
        # Before the entry: once that is there the next owner may come, whose mark must not be written over.
        self._logs.put_index(log, standing, settled=True)
        log.moving = True
        try:
            added = self._logs.add(log, tail, Entry("release", standing))
        finally:
            log.moving = False
        if added is None:
            self._logs.put_index(log, tail.now)
            return None
        return standing.epoch

    def _batches(self, run_id: str, after_seq: int) -> Iterator[Batch]:
        log = self._logs.of(run_id)
        tail = self._logs.peek(log)
        if tail is None or tail.now.deleted or tail.now.head <= after_seq:
            return
        yield from Reading(self._logs, log.names, tail, after_seq).batches()

    def _known(self, log: Log) -> Tail:
        tail = self._logs.refresh(log)
        if tail is None or tail.now.deleted or refusals.is_inbox(log.names.run_id):
            raise refusals.unknown(log.names.run_id, deleted=tail is not None and tail.now.deleted)
        return tail

    def _check_open(self, writing: bool = False) -> None:
        if self._closed:
            raise refusals.closed(self.url)
        if writing and self._readonly:
            raise refusals.read_only(self.url)


def _refused(write: Write, tail: Tail | None) -> IndelibleError | None:
    """Why a write does not fit behind this end; None if it does."""
    if tail is None:
        inbox = refusals.is_inbox(write.run_id)
        if not inbox or write.epoch != 0 or write.batch.after_seq != 0:
            return refusals.stale(write, head=0 if inbox else None)
        try:
            refusals.check_journal_id(write.run_id)
        except IndelibleError as error:
            return error
        return None
    now = tail.now
    if now.deleted or now.head != write.batch.after_seq or now.epoch != write.epoch:
        return refusals.stale(write, head=now.head, epoch=now.epoch, deleted=now.deleted)
    return None


def _crowded(run_id: str) -> StaleWriter:
    return StaleWriter(f"run {run_id!r} is written to by too many at once", hint="try again", run_id=run_id)


def _after_fork_in_child() -> None:
    for store in list(_open_stores):
        store._logs.after_fork()
        store._tidying.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
