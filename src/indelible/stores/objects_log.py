"""The log of a run in object storage: one object for each entry, the next slot taken by whoever puts it there first.

Owns: where a log ends, and the one way in which it grows.
Must never: take an entry for durable that readers would pass over.
Invariant: entry n + 1 names the nonce of entry n; a writer that was overtaken finds its slot taken.

**Slots that are empty again.** Entries that were merged into packs, or that the journal no longer begins with, are
removed. A former owner that was away long enough could then put its entry into such a slot, find that it succeeds,
and take it for durable. Against that: (a) readers and owners go by the last entry, which is never removed, and ignore
slots that are packed or given up, so that nothing is ever mixed up; (b) a slot is emptied only `KEEP_S` after it was
filled, by the server's clock, and one that has to go sooner is overwritten with a placeholder; (c) a writer whose last
proof of its position (its own entry, or a listing) is more than `PROOF_S` old when a put returns looks, with one
listing, whether anything lies behind it, and only then believes it. For proof at time t means: the slot behind was
empty then; it can only have been filled since, so until t + KEEP_S it cannot have been emptied. Time is measured by a
clock that goes on while the machine is suspended; a virtual machine that is put back to an image of itself twenty
minutes old is not covered.

An answer that was lost (a put that timed out, or that the library repeated, so that it met its own first try) is
resolved by reading the slot: its nonce tells whose it is.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import msgspec

from indelible.errors import IndelibleError, StoreUnavailable
from indelible.stores.objects_bucket import Bucket
from indelible.stores.objects_clock import ServerClock
from indelible.stores.objects_entry import (
    PLACEHOLDER,
    Entry,
    Index,
    Names,
    Standing,
    damaged,
    decode,
    encode,
    number_of,
)

PROOF_S = 600.0
KEEP_S = 1200.0
THREADS = 16
_KEPT = 20_000
"""How many logs a handle remembers the end of."""

A = TypeVar("A")
B = TypeVar("B")


class Tail(NamedTuple):
    """The end of a log as seen last: the entry there, when it was written (None: by us, and the server was not
    asked), and until when the slot behind it is known to have been empty, in steady seconds."""

    now: Standing
    modified: float | None
    proof: float


class Log:
    """What this handle knows of one log. Hold `lock` to let it grow."""

    def __init__(self, run_id: str) -> None:
        self.names = Names.of(run_id)
        self.lock = threading.Lock()
        self.tail: Tail | None = None
        self.moving = not self.names.listed
        """This handle has seen to it that no listing takes the index object for exact."""
        self.compacting = False
        self.renewed = 0.0
        """When this handle renewed the lease of the present owner last, at least, on the store's clock."""
        self.seen: Tail | None = None
        """The end that was seen without the lock: a place to begin looking from."""
        self.empty: float | None = None
        """When it was seen last that there is no entry, in steady seconds."""


class Logs:
    """All logs of a store, and what every part of it works with."""

    def __init__(self, bucket: Bucket, clock: ServerClock, since: Callable[[], float]) -> None:
        self.bucket = bucket
        self.clock = clock
        self.since = since
        self._logs: dict[str, Log] = {}
        self._touched = 0
        self._pool: ThreadPoolExecutor | None = None
        self._mutex = threading.Lock()

    def of(self, run_id: str) -> Log:
        """The one log of that name in this handle."""
        with self._mutex:
            log = self._logs.get(run_id)
            if log is None:
                if len(self._logs) >= _KEPT:
                    for name in [name for name, old in self._logs.items() if not old.lock.locked()][: _KEPT // 2]:
                        del self._logs[name]
                log = self._logs[run_id] = Log(run_id)
            return log

    def each(self, ask: Callable[[A], B], those: Iterable[A]) -> Iterator[B]:
        """The answers for each, in order, several being asked at once."""
        items = list(those)
        if len(items) < 2:
            return map(ask, items)
        with self._mutex:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="indelible-objects")
            pool = self._pool
        return pool.map(ask, items)

    def close(self) -> None:
        """End the threads."""
        with self._mutex:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def after_fork(self) -> None:
        """The child has none of its parent's threads, and perhaps locks that nobody will let go."""
        self._mutex = threading.Lock()
        self._pool = None
        self._logs = {}

    def touch(self, now: float) -> int:
        """The place of an update in listings: by the clock, and behind everything this handle has seen."""
        with self._mutex:
            self._touched = max(int(now * 1e6), self._touched + 1)
            return self._touched

    def look(self, names: Names, known: Tail | None = None) -> Tail | None:
        """Where a log ends now, or None if there is none. That takes one read if `known` is still the end, and else a
        listing and a read."""
        if known is not None and self.since() - known.proof < PROOF_S:
            proof = self.since()  # a read of what is not there costs a tenth of a listing
            if self.bucket.get(names.entry(known.now.index + 1)) is None:
                return known._replace(proof=proof)
        after = known.now.index if known is not None else self._indexed(names)
        while True:
            proof = self.since()
            last, modified = after, 0.0
            for chunk in self.bucket.list(names.log, names.entry(after) if after else ""):
                for item in chunk:
                    number = number_of(item.path)
                    if number is not None and number > last:
                        last, modified = number, item.modified
            if last > after:
                return self._tail(names, last, modified, proof)
            if known is not None:
                return known._replace(proof=proof)
            if not after:
                return None
            after = 0  # the index object tells of an entry that is not there: the log is the truth

    def peek(self, log: Log) -> Tail | None:
        """Look without the lock of the log. That there is nothing is remembered, too: an inbox is often asked."""
        empty, log.empty = log.empty, None
        if log.tail is None and empty is not None and self.since() - empty < PROOF_S:
            proof = self.since()
            if self.bucket.get(log.names.entry(1)) is None:
                log.empty = proof
                return None
        started = self.since()
        found = self.look(log.names, log.tail or log.seen)
        log.empty = started if found is None else None
        log.seen = found
        return found

    def refresh(self, log: Log) -> Tail | None:
        """Look, and remember it; under the lock of the log."""
        known = log.tail
        log.tail = found = self.look(log.names, known)
        if found is not None and (known is None or found.now.nonce != known.now.nonce):
            log.moving = not log.names.listed
            self.bucket.keep(log.names.entry(found.now.index))
        return found

    def entry(self, names: Names, index: int) -> Entry | None:
        """The entry in a slot; None if it is empty or holds a placeholder. Raises `JournalDamaged`, `FormatTooNew`."""
        path = names.entry(index)
        found = self.bucket.get(path)
        if found is None or found.data == PLACEHOLDER:
            return None
        entry = decode(Entry, found.data, f"{self.bucket.where}: {path}")
        if (entry.now.run_id, entry.now.index) != (names.run_id, index):
            raise damaged(f"{self.bucket.where}: {path}", "belongs to another place", run_id=names.run_id)
        return entry

    def index(self, names: Names) -> Index | None:
        """The index object of a run, or None if it is not there or cannot be used: the log is the truth."""
        found = self.bucket.get(names.listed) if names.listed else None
        if found is None:
            return None
        try:
            index = decode(Index, found.data, names.listed)
        except IndelibleError:
            return None
        return index if index.now.run_id == names.run_id else None

    def put_index(self, log: Log, now: Standing, *, settled: bool = False) -> None:
        """Say in the index how a run stands; nothing for an inbox."""
        if log.names.listed:
            log.moving = False
            self.bucket.put(log.names.listed, encode(Index(now, settled)))
            log.moving = not settled

    def begin(self, run_id: str) -> Tail:
        """The end of a log that has no entry yet; its slots have just been found to be empty."""
        return Tail(Standing(run_id, 0, b"", b"", 0.0), None, self.since())

    def add(self, log: Log, tail: Tail, entry: Entry) -> Tail | None:
        """Put the entry behind `tail`; under the lock of the log. None if somebody else was there first.

        What is returned is durable. Raises `StoreUnavailable` if its fate is unknown.
        """
        if not log.moving:
            self.put_index(log, tail.now)
        path = log.names.entry(entry.now.index)
        started = self.since()
        if not self.bucket.create(path, encode(entry)):
            there = self.entry(log.names, entry.now.index)
            if there is None or there.now.nonce != entry.now.nonce:
                return None
        proof = started
        if self.since() - tail.proof > PROOF_S:
            proof = self.since()
            if any(self.bucket.list(log.names.log, path)):
                return None
        log.tail = Tail(entry.now, None, proof)
        return log.tail

    def next(self, tail: Tail, **changes: object) -> Standing:
        """The standing of the entry behind `tail`."""
        now = tail.now
        changes.setdefault("at", self.clock.now())
        fresh = {"index": now.index + 1, "nonce": os.urandom(12), "before": now.nonce}
        return msgspec.structs.replace(now, **fresh, **changes)

    def _indexed(self, names: Names) -> int:
        """The index up to which the log is known to go, less one."""
        index = self.index(names)
        return 0 if index is None else max(0, index.now.index - 1)

    def _tail(self, names: Names, index: int, modified: float, proof: float) -> Tail:
        entry = self.entry(names, index)
        if entry is None:
            raise StoreUnavailable(
                f"{self.bucket.where}: {names.entry(index)} was listed, and is not there",
                hint="use a server whose listings are strongly consistent",
            )
        self.clock.saw(modified)
        with self._mutex:
            self._touched = max(self._touched, entry.now.touched)
        return Tail(entry.now, modified, proof)
