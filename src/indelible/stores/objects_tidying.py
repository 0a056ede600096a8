"""What object storage is rid of: entries that were merged, journals that begin later, runs that were deleted.

Owns: merging, snapshots, trimming and burying.
Must never: empty a slot of a log that was filled less than `KEEP_S` ago; remove what readers may still need.
Invariant: what is removed had become dispensable by one put before: of a pack, of an entry `begins` or `deleted`.

A crash half-way leaves only what no reader looks at; `sweep` removes it the next time.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import msgspec

from indelible.errors import IndelibleError
from indelible.stores import refusals
from indelible.stores.objects_bucket import Item
from indelible.stores.objects_entry import (
    PLACEHOLDER,
    Entry,
    Names,
    Pack,
    Packed,
    Span,
    Standing,
    encode,
    number_of,
    span_of,
)
from indelible.stores.objects_log import KEEP_S, PROOF_S, Log, Logs, Tail
from indelible.stores.objects_reading import Reading

MERGE = 256
"""So many entries become one pack."""
PACK_BYTES = 32 << 20
_PART = 32
SNAPSHOTS = 2


class Holding(NamedTuple):
    """What lies below a run's prefix, by kind."""

    entries: list[Item]
    packs: list[tuple[Span, Item]]
    snapshots: list[Item]
    others: list[Item]


class Tidying:
    """Keeps the logs of a store short. With `background` merging is done in a thread of its own."""

    def __init__(self, logs: Logs, background: bool) -> None:
        self._logs = logs
        self._background = background
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def after(self, log: Log, tail: Tail) -> None:
        """An entry was added: merge, if it is time; under the lock of the log."""
        if tail.now.index - max(tail.now.packed, tail.now.floor) <= MERGE or log.compacting or self._closed:
            return
        log.compacting = True
        if not self._background:
            self._merge_quietly(log, tail)
            return
        thread = threading.Thread(target=self._serve, args=(log, tail), name="indelible-merging", daemon=True)
        self._threads.add(thread)
        thread.start()

    def close(self) -> None:
        """Wait for what is being merged."""
        self._closed = True
        for thread in list(self._threads):
            thread.join()

    def after_fork(self) -> None:
        """Nothing is being merged here."""
        self._threads = set()

    def snapshot(self, log: Log, tail: Tail, seq: int, data: bytes) -> None:
        """Keep a snapshot, and remove those that are too many."""
        self._logs.bucket.put(log.names.snapshot(seq), data)
        kept = sorted(self._snapshots(log.names), reverse=True)
        begins = tail.now.begins
        gone = [old for number, old in enumerate(kept) if old != begins and (number >= SNAPSHOTS or old < begins)]
        self._logs.bucket.remove([log.names.snapshot(old) for old in gone])

    def newest_snapshot(self, names: Names, at_most: int) -> tuple[int, bytes] | None:
        """The newest with seq <= at_most; one that goes meanwhile is passed over for an older one."""
        for seq in sorted(self._snapshots(names), reverse=True):
            if seq <= at_most:
                found = self._logs.bucket.get(names.snapshot(seq))
                if found is not None:
                    return seq, found.data
        return None

    def begin(self, log: Log, tail: Tail, seq: int, data: bytes) -> bool:
        """Have the journal begin at a snapshot; False if somebody else wrote meanwhile. Under the lock of the log."""
        now = tail.now
        floor, left = self._floor(log.names, tail, seq)
        self._logs.bucket.put(log.names.snapshot(seq), data)
        if seq > now.begins:
            standing = self._logs.next(tail, begins=seq, floor=floor, stored_bytes=left, at=now.at)
            added = self._logs.add(log, tail, Entry("begins", standing))
            if added is None:
                return False
            self._logs.put_index(log, standing)
            tail = added
        self.sweep(log.names, tail.now, self._logs.clock.now())
        return True

    def bury(self, log: Log) -> None:
        """Put a tombstone and remove the rest; under the lock of the log. What is not there gets a tombstone, too."""
        while True:
            tail = self._logs.refresh(log)
            if tail is not None and tail.now.deleted:
                break
            behind = tail or self._logs.begin(log.names.run_id)
            gone = Standing(log.names.run_id, 0, b"", b"", 0.0, deleted=True, epoch=behind.now.epoch)
            fresh = self._logs.next(behind)
            standing = Standing(
                gone.run_id, fresh.index, fresh.nonce, fresh.before, fresh.at, deleted=True, epoch=gone.epoch,
                floor=behind.now.index, created_at=behind.now.created_at, updated_at=fresh.at,
            )  # fmt: skip
            log.moving = log.moving or tail is None
            tail = self._logs.add(log, behind, Entry("deleted", standing))
            if tail is not None:
                break
        self.clear(log.names, tail.now)

    def clear(self, names: Names, tombstone: Standing) -> int:
        """Remove what a deleted run or inbox has left, and say how many bytes that was."""
        bucket, now = self._logs.bucket, self._logs.clock.now()
        held = self.held(names)
        old = [item for item in held.entries if (number_of(item.path) or 0) < tombstone.index]
        overdue = [item for item in old if self._is_old(item, now)]
        young = [item for item in old if item.size and not self._is_old(item, now)]
        gone = [*(item for _, item in held.packs), *held.snapshots, *held.others, *overdue]
        if names.listed:
            bucket.remove([names.listed])
        bucket.remove([item.path for item in gone])
        for _ in self._logs.each(lambda item: bucket.put(item.path, PLACEHOLDER), young):
            pass
        return sum(item.size for item in (*gone, *young))

    def sweep(self, names: Names, standing: Standing, now: float) -> int:
        """Remove what a run that goes on no longer needs: the bytes that gives back."""
        held = self.held(names)
        spans = [span for span, _ in held.packs]
        needed = sorted((number_of(item.path) or 0 for item in held.snapshots), reverse=True)[:SNAPSHOTS]
        gone = [item for span, item in held.packs if span.last <= standing.floor]
        for item in held.entries:
            index = number_of(item.path)
            if index is None or index >= standing.index or not self._is_old(item, now):
                continue
            if index <= standing.floor or any(span.first <= index <= span.last for span in spans):
                gone.append(item)
        for item in held.snapshots:
            seq = number_of(item.path) or 0
            if seq < standing.begins or (seq not in needed and seq != standing.begins):
                gone.append(item)
        for item in held.others:
            if "/lease/" in item.path and (number_of(item.path) or 0) < standing.epoch:
                gone.append(item)
        self._logs.bucket.remove([item.path for item in gone])
        return sum(item.size for item in gone)

    def held(self, names: Names) -> Holding:
        """All that lies below the prefix of a run or inbox."""
        held = Holding([], [], [], [])
        for chunk in self._logs.bucket.list(f"{names.base}/"):
            for item in chunk:
                sort(held, names.base, item)
        return held

    def _serve(self, log: Log, tail: Tail) -> None:
        try:
            self._merge_quietly(log, tail)
        finally:
            self._threads.discard(threading.current_thread())

    def _merge_quietly(self, log: Log, tail: Tail) -> None:
        """Merge; if it fails, the next entry but a few tries again: nothing is lost but time."""
        try:
            self._merge(log, tail)
        except IndelibleError:
            pass
        finally:
            log.compacting = False

    def _merge(self, log: Log, tail: Tail) -> None:
        """Make a pack of all entries but the last, and remove the old ones that it and others before hold."""
        first = max(tail.now.packed, tail.now.floor) + 1
        pack = self._pack(log.names, first, tail.now.index - 1)
        if pack is None or self._logs.since() - tail.proof > PROOF_S:
            return  # somebody else is at it, or has been
        batches = pack.batches
        span = Span(
            pack.first, pack.last, batches[0].after_seq if batches else 0, batches[-1].last_seq if batches else 0
        )
        self._logs.bucket.create(log.names.pack(span), encode(pack))
        now = self._said(log, pack.last)
        if now is not None:
            self.sweep(log.names, now, self._logs.clock.now())

    def _said(self, log: Log, packed: int) -> Standing | None:
        """Let the entries to come, and the index, tell of the pack."""
        if self._background:
            with log.lock:
                return self._say(log, packed)
        return self._say(log, packed)

    def _say(self, log: Log, packed: int) -> Standing | None:
        tail = log.tail
        if tail is None or tail.now.deleted or not log.moving:
            return None
        now = tail.now
        packed = max(packed, now.packed)
        told = msgspec.structs.replace(now, packed=packed)
        log.tail = tail._replace(now=told)
        self._logs.put_index(log, told)
        return told

    def _pack(self, names: Names, first: int, last: int) -> Pack | None:
        """The entries first to last, or as many as make a pack; None if they are not a chain without a gap."""
        batches: list[Packed] = []
        before = nonce = None
        size, reached = 0, first - 1
        for at in range(first, last + 1, _PART):
            part = range(at, min(at + _PART, last + 1))
            for entry in self._logs.each(lambda index: self._logs.entry(names, index), part):
                if entry is None or (nonce is not None and entry.now.before != nonce):
                    return None
                before = entry.now.before if before is None else before
                nonce, reached = entry.now.nonce, entry.now.index
                if entry.kind == "batch":
                    batches.append(Packed(reached, entry.after_seq, entry.now.head, entry.data))
                    size += len(entry.data)
            if size > PACK_BYTES:
                break
        if before is None or nonce is None:
            return None
        return Pack(names.run_id, first, reached, before, nonce, batches)

    def _floor(self, names: Names, tail: Tail, seq: int) -> tuple[int, int]:
        """Up to which entry nothing is above `seq`, and the bytes of the batches above it. Raises `Misuse`."""
        now = tail.now
        if seq == now.head:
            return now.index, 0
        if seq <= now.begins:
            if seq == now.begins:
                return now.floor, now.stored_bytes
            raise refusals.no_batch_ends(names.run_id, seq)
        reading = Reading(self._logs, names, tail, now.begins)
        for _ in reading.batches():
            pass
        floor = next((index for index, last_seq, _ in reading.sizes if last_seq == seq), None)
        if floor is None:
            raise refusals.no_batch_ends(names.run_id, seq)
        return floor, sum(size for _, last_seq, size in reading.sizes if last_seq > seq)

    def _snapshots(self, names: Names) -> list[int]:
        chunks = self._logs.bucket.list(names.snapshots)
        return [seq for chunk in chunks for item in chunk if (seq := number_of(item.path)) is not None]

    def _is_old(self, item: Item, now: float) -> bool:
        return item.modified + self._logs.bucket.grain_s + KEEP_S < now


def sort(held: Holding, base: str, item: Item) -> None:
    """Put an object that lies below `base` where it belongs."""
    kind = item.path[len(base) + 1 :].partition("/")[0]
    span = span_of(item.path) if kind == "packs" else None
    if span is not None:
        held.packs.append((span, item))
    elif kind == "log" and number_of(item.path) is not None:
        held.entries.append(item)
    elif kind == "snap" and number_of(item.path) is not None:
        held.snapshots.append(item)
    else:
        held.others.append(item)
