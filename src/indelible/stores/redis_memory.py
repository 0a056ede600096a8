"""What this process has written and had acknowledged: from it a suffix that a failover has lost is written again.

Owns: the claims of one store in this process, and the newest acknowledged batches of each.
Must never: do I/O, or hold more than its bounds; the oldest batches go first.
Invariant: the batches kept of a run follow one another without a gap, up to its head as acknowledged.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from indelible.stores.base import Batch, Label, Write

STORE_BYTES = 64 << 20
RUN_BYTES = 8 << 20
WITNESSED = 10_000


@dataclass
class Held:
    """A run that this process has claimed. `before` is the token that was there when it did."""

    run_id: str
    owner: str
    ttl_s: float
    epoch: int
    token: str
    before: str
    head: int
    kept_from: int
    label: Label | None = None
    batches: deque[Batch] = field(default_factory=deque)
    bytes: int = 0
    unsure: list[Write] = field(default_factory=list)
    """Sent, and no answer came."""

    def missing(self, head: int) -> list[Batch] | None:
        """The batches after `head`, or None if memory does not reach back so far."""
        if head < self.kept_from:
            return None
        return [batch for batch in self.batches if batch.after_seq >= head]

    def ending(self, head: int) -> Batch | None:
        """The batch that ends at `head`, if it is kept."""
        return next((batch for batch in self.batches if batch.last_seq == head), None)


class Memory:
    """The runs one store holds in this process. Safe from any thread."""

    def __init__(self, store_bytes: int = STORE_BYTES, run_bytes: int = RUN_BYTES) -> None:
        self._store_bytes = store_bytes
        self._run_bytes = run_bytes
        self.forget_all()

    def forget_all(self) -> None:
        """Start anew, as in a fork, which holds nothing."""
        self._lock = threading.Lock()
        self._held: OrderedDict[str, Held] = OrderedDict()
        self._heads: OrderedDict[str, int] = OrderedDict()
        self._bytes = 0

    def of(self, run_id: str) -> Held | None:
        """The claim this process has of a run."""
        return self._held.get(run_id)

    def witnessed(self, run_id: str) -> int:
        """The head of a run that this process held before, as it was acknowledged; 0 if it did not."""
        return self._heads.get(run_id, 0)

    def hold(self, held: Held) -> None:
        """Note a claim that was granted; what was kept under the same token stays."""
        with self._lock:
            old = self._held.get(held.run_id)
            if old is not None and old.token == held.token:
                old.ttl_s = held.ttl_s
                return
            self._let_go(held.run_id)
            self._held[held.run_id] = held

    def release(self, run_id: str, deleted: bool = False) -> None:
        """Drop what is kept of a run; its head is remembered, unless the run is deleted."""
        with self._lock:
            head = self._let_go(run_id)
            if deleted:
                self._heads.pop(run_id, None)
            elif head:
                self._heads[run_id] = head
                self._heads.move_to_end(run_id)
                while len(self._heads) > WITNESSED:
                    self._heads.popitem(last=False)

    def sent(self, write: Write) -> None:
        """Nobody knows whether this write has landed."""
        with self._lock:
            held = self._held.get(write.run_id)
            if held is None or held.epoch != write.epoch or write.batch.after_seq < held.head:
                return
            if write not in held.unsure:
                held.unsure.append(write)

    def landed(self, write: Write) -> None:
        """This write was acknowledged."""
        with self._lock:
            held = self._held.get(write.run_id)
            if held is None or held.epoch != write.epoch:
                return
            self._adopt(held, write)
            held.unsure.clear()
            self._keep(held, write)
            self._held.move_to_end(write.run_id)
            while self._bytes > self._store_bytes and self._shrink():
                pass

    def adopt(self, write: Write) -> bool:
        """Take what `write` stands on for landed; True if it then stands on our head."""
        with self._lock:
            held = self._held.get(write.run_id)
            if held is None or held.epoch != write.epoch:
                return False
            self._adopt(held, write)
            return held.head == write.batch.after_seq

    def _adopt(self, held: Held, write: Write) -> None:
        for unsure in held.unsure:
            if unsure.batch.after_seq == held.head and unsure.batch.last_seq <= write.batch.after_seq:
                self._keep(held, unsure)

    def _keep(self, held: Held, write: Write) -> None:
        batch = write.batch
        if batch.after_seq != held.head:  # another handle has written in between
            self._bytes -= held.bytes
            held.batches.clear()
            held.bytes, held.kept_from = 0, batch.after_seq
        held.batches.append(batch)
        held.head = batch.last_seq
        held.label = write.label or held.label
        held.bytes += len(batch.data)
        self._bytes += len(batch.data)
        while held.bytes > self._run_bytes:
            self._drop_oldest(held)

    def _shrink(self) -> bool:
        """Drop the oldest batch of the run that was written longest ago."""
        for held in self._held.values():
            if held.batches:
                self._drop_oldest(held)
                return True
        return False

    def _drop_oldest(self, held: Held) -> None:
        oldest = held.batches.popleft()
        held.bytes -= len(oldest.data)
        self._bytes -= len(oldest.data)
        held.kept_from = oldest.last_seq

    def _let_go(self, run_id: str) -> int:
        held = self._held.pop(run_id, None)
        if held is None:
            return 0
        self._bytes -= held.bytes
        return held.head
