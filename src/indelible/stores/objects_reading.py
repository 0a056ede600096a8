"""Reading a journal from object storage: packs first, then the entries behind them.

Owns: which objects hold which batches, and the proof that none is missing.
Must never: lock anything while the caller works; pass over a gap.
Invariant: what is yielded is contiguous from where it begins up to the head that was found at the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator

from indelible.errors import IndelibleError, StoreUnavailable, UnknownRun
from indelible.stores.base import Batch
from indelible.stores.objects_entry import Entry, Names, Pack, Span, damaged, decode, span_of
from indelible.stores.objects_log import Logs, Tail

_WINDOW = 32
_WINDOW_BYTES = 4 << 20
"""So many entries, or about so many bytes, are fetched ahead of the reader."""


class Reading:
    """One pass over a journal from `after_seq` on, up to the end that `tail` tells."""

    def __init__(self, logs: Logs, names: Names, tail: Tail, after_seq: int) -> None:
        self._logs = logs
        self._names = names
        self._tail = tail
        self._seq = max(after_seq, tail.now.begins)
        self._at = tail.now.floor
        """The index read last."""
        self._nonce: bytes | None = tail.now.before if tail.now.floor + 1 == tail.now.index else None
        """The nonce that the next entry must name; None where it is not known."""
        self._reached = tail.now.begins
        """The seq up to which the entries read so far go."""
        self._spans: list[Span] = []
        self._again = False
        self.sizes: list[tuple[int, int, int]] = []
        """(index, last seq, bytes) of each batch that was passed, for whoever trims."""

    def batches(self) -> Iterator[Batch]:
        """All of them. Raises `UnknownRun` if the run is deleted meanwhile, `JournalDamaged`, `FormatTooNew`."""
        if self._tail.now.packed > self._at:
            self._spans = self._packs()
        self._skip()
        window = 2
        while self._at < self._tail.now.index:
            span = self._span()
            if span is not None:
                yield from self._unpack(span)
                continue
            until = min(self._at + window, self._tail.now.index)
            size = 0
            for index, entry in zip(range(self._at + 1, until + 1), self._fetch(until), strict=True):
                if entry is None or (self._nonce is not None and entry.now.before != self._nonce):
                    self._replan(index)
                    break
                batch = self._take(entry)
                if batch is not None:
                    size += len(batch.data)
                    yield batch
            else:
                window = min(window * 2, _WINDOW) if size < _WINDOW_BYTES else max(2, window // 2)

    def _fetch(self, until: int) -> Iterator[Entry | None]:
        def fetch(index: int) -> Entry | None:
            if index == self._tail.now.index and self._reached == self._tail.now.head:
                return Entry("claim", self._tail.now)  # it adds nothing
            return self._logs.entry(self._names, index)

        return self._logs.each(fetch, range(self._at + 1, until + 1))

    def _take(self, entry: Entry) -> Batch | None:
        """Step over an entry; its batch, if it has one that is wanted."""
        self._at, self._nonce = entry.now.index, entry.now.nonce
        if entry.kind != "batch":
            return None
        return self._follow(Batch(entry.after_seq, entry.now.head, entry.data))

    def _follow(self, batch: Batch) -> Batch | None:
        if batch.last_seq <= self._tail.now.begins:
            return None
        if batch.after_seq != self._reached:
            raise self._damaged(f"continues after event {batch.after_seq}, not after {self._reached}")
        self._reached = batch.last_seq
        self.sizes.append((self._at, batch.last_seq, len(batch.data)))
        self._again = False
        return batch if batch.last_seq > self._seq else None

    def _unpack(self, span: Span) -> Iterator[Batch]:
        path = self._names.pack(span)
        found = self._logs.bucket.get(path)
        if found is None:
            self._replan(span.first)
            return
        pack = decode(Pack, found.data, f"{self._logs.bucket.where}: {path}")
        if (pack.run_id, pack.first, pack.last) != (self._names.run_id, span.first, span.last):
            raise self._damaged("is a pack that belongs to another place")
        for packed in pack.batches:
            if packed.slot <= self._at:
                continue
            self._at = packed.slot
            batch = self._follow(Batch(packed.after_seq, packed.last_seq, packed.data))
            if batch is not None:
                yield batch
        self._at, self._nonce = span.last, pack.nonce

    def _skip(self) -> None:
        """Pass over what lies before the wanted seq without reading it: entries tell how far they go."""
        if self._seq <= self._reached:
            return
        for span in sorted(self._spans, key=lambda span: (span.first, -span.last)):
            if span.first <= self._at + 1 <= span.last and span.last_seq <= self._seq:
                self._at, self._reached = span.last, span.last_seq
        if self._span() is not None:
            return
        low, high = self._at, self._tail.now.index  # what is wanted lies in ]low, high]
        step = 1
        while high - low > 1:
            probe = max(low + 1, high - step) if step else (low + high) // 2
            entry = self._logs.entry(self._names, probe)
            if entry is None:
                return  # it is read from the beginning, and will be found to be missing or packed
            if entry.now.head <= self._seq:
                low, step = probe, 0
                self._at, self._nonce, self._reached = probe, entry.now.nonce, entry.now.head
            else:
                high, step = probe, step * 2

    def _packs(self) -> list[Span]:
        chunks = self._logs.bucket.list(self._names.packs)
        return [span for chunk in chunks for item in chunk if (span := span_of(item.path)) is not None]

    def _span(self) -> Span | None:
        """The pack that reaches furthest from here."""
        there = [span for span in self._spans if span.first <= self._at + 1 <= span.last]
        return max(there, key=lambda span: span.last, default=None)

    def _replan(self, index: int) -> None:
        """An object is missing or another's: has it been packed, trimmed or deleted meanwhile?"""
        tail = self._logs.look(self._names)
        if tail is None or tail.now.deleted:
            raise UnknownRun(
                f"run {self._names.run_id!r} was deleted while it was read", hint="indelible ls",
                run_id=self._names.run_id,
            )  # fmt: skip
        if tail.now.begins > self._reached:
            raise StoreUnavailable(
                f"run {self._names.run_id!r}: its journal was shortened while it was read",
                hint="read it again", run_id=self._names.run_id,
            )  # fmt: skip
        self._spans = self._packs()
        if self._again or self._span() is None:
            raise self._damaged("is missing" if index > self._at else "does not follow", index)
        self._again = True

    def _damaged(self, what: str, index: int | None = None) -> IndelibleError:
        at = self._at if index is None else index
        path = f"{self._logs.bucket.where}: {self._names.entry(at)}"
        return damaged(path, f"{what}; the journal of run {self._names.run_id!r} is whole up to event {self._reached}",
                       run_id=self._names.run_id, at=self._reached, head=self._tail.now.head)  # fmt: skip
