"""The journal of one run in memory: events waiting to be sealed into chained batches.

Owns: the batch format, the digest chain, and the compressed stream.
Must never: do I/O, or change a batch once it is sealed; a batch that may already be in
the store is offered again byte for byte.
Invariant: `durable_seq <= sealed_seq <= seq`, and each batch's digest covers the chain
before it, its seqs and its whole payload.

A batch is `format | codec | digest(16) | payload`. The payload is the body (MessagePack
events) as the next block of one zstd stream, so that each batch is compressed with what
stands up to 256 KB before it, at the price of no dictionary. A stream begins anew at each
snapshot and each opening of the run, so that nothing before a snapshot is needed to read
what follows it. A large body is a frame by itself and leaves the stream as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

import zstandard

from indelible.core import events as ev
from indelible.errors import FormatTooNew, JournalDamaged, NotStorable

FORMAT = 1
MAX_BODY_BYTES = 512 * 1024 * 1024
"""A batch above this is refused before it is sealed: no store takes it."""

_RAW, _BEGINS, _GOES_ON, _ALONE, _CUT = 0, 1, 2, 3, 4
_HEAD = 18
_LEVEL = 1
# What level 1 does, with tables small enough for many open runs (1.1 MB each). `indelible bill --compression`
# shows what other windows would come to, in bytes and in processor time, on your own data.
STREAM = zstandard.ZstdCompressionParameters(
    window_log=18,
    hash_log=15,
    chain_log=12,
    min_match=5,
    target_length=1,
    strategy=zstandard.STRATEGY_FAST,
)
# Compressors and decompressors are never shared: two threads in one of them crash the process.


class Batch(NamedTuple):
    """Sealed events: seqs after_seq+1 to last_seq, and the bytes a store keeps."""

    after_seq: int
    last_seq: int
    data: bytes


class Sealed(NamedTuple):
    """A batch on its way to the store, with what the journal becomes when it lands."""

    batch: Batch
    raw_bytes: int
    events: list[ev.Event]


class Opened(NamedTuple):
    """A verified batch as events, the first with seq after_seq+1. `cuts`: it declares void what stands before it."""

    after_seq: int
    events: list[ev.Event]
    raw_bytes: int
    stored_bytes: int
    cuts: bool


def seed(run_id: str) -> bytes:
    """The chain before the first batch of a run."""
    return blake2b(run_id.encode(), digest_size=16, person=b"indelible-run").digest()


def link(chain: bytes, codec: int, after_seq: int, last_seq: int, payload: bytes) -> bytes:
    """The chain after a batch. Over the payload, so that nothing is decompressed that does not verify."""
    hasher = blake2b(chain, digest_size=16)
    hasher.update(codec.to_bytes(1, "big") + after_seq.to_bytes(8, "big") + last_seq.to_bytes(8, "big"))
    hasher.update(payload)
    return hasher.digest()


class Journal:
    """Events of one run on their way to the store. Not thread-safe; the feed guards it."""

    __slots__ = ("_chain", "_cut", "_parameters", "_pending", "_stream", "durable_seq", "in_flight", "raw_bytes",
                 "sealed_seq", "seq", "stored_bytes")  # fmt: skip

    def __init__(
        self, chain: bytes, seq: int = 0, *, cut_to: int = 0, parameters: zstandard.ZstdCompressionParameters = STREAM
    ) -> None:
        """Go on after `seq` with `chain`. If `cut_to` is above `seq`, the store holds a torn
        last batch up to `cut_to`, which the next batch declares void. `parameters` are those of
        the stream; a reader need not know them."""
        self._chain = chain
        self._parameters = parameters
        self._stream: zstandard.ZstdCompressionObj | None = None
        self._pending: list[ev.Event] = []
        self._cut = cut_to > seq
        self.seq = self.sealed_seq = self.durable_seq = max(seq, cut_to)
        self.in_flight: Sealed | None = None
        self.raw_bytes = 0
        self.stored_bytes = 0

    @property
    def chain(self) -> bytes:
        """The digest after everything sealed."""
        return self._chain

    def unwritten(self) -> list[ev.Event]:
        """The events that are not known to be in the store."""
        flying = self.in_flight
        return (flying.events if flying is not None else []) + self._pending

    def append(self, event: ev.Event) -> int:
        """Take an event into memory and return its seq. Nothing is durable yet."""
        self._pending.append(event)
        self.seq += 1
        return self.seq

    def seal(self) -> Sealed:
        """Everything waiting as one batch. A batch that did not land is offered again first."""
        if self.in_flight is not None:
            return self.in_flight
        after, last = self.sealed_seq, self.sealed_seq + len(self._pending)
        body = ev.encode(self._pending)
        if len(body) > MAX_BODY_BYTES:
            raise NotStorable(
                f"{len(body):,} bytes in one batch; the limit is {MAX_BODY_BYTES:,}",
                hint="store large values outside and keep their address",
            )
        # Until the end the journal has no stream: what was interrupted in the middle is not gone on with.
        stream, self._stream = self._stream, None
        codec, payload, stream = _compress(body, stream, self._parameters)
        if self._cut:
            codec |= _CUT
        chain = link(self._chain, codec, after, last, payload)
        sealed = Sealed(Batch(after, last, bytes((FORMAT, codec)) + chain + payload), len(body), self._pending)
        # Statements that call nothing: Ctrl-C finds all of it done, or nothing.
        self._chain, self._stream, self._pending, self._cut = chain, stream, [], False
        self.sealed_seq, self.in_flight = last, sealed
        return sealed

    def landed(self) -> None:
        """The batch in flight is in the store for good."""
        if self.in_flight is not None:
            self.durable_seq = self.in_flight.batch.last_seq
            self.raw_bytes += self.in_flight.raw_bytes
            self.stored_bytes += len(self.in_flight.batch.data)
            self.in_flight = None

    def restart_prefix(self) -> None:
        """Make the next batch readable without anything before it."""
        self._stream = None


def _compress(
    body: bytes, stream: zstandard.ZstdCompressionObj | None, parameters: zstandard.ZstdCompressionParameters
) -> tuple[int, bytes, zstandard.ZstdCompressionObj | None]:
    # A larger body goes alone: a result and the change that stores it would be too far apart for the stream's window.
    if len(body) > 1 << (parameters.window_log - 1):
        return _ALONE, zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True).compress(body), stream
    codec = _GOES_ON
    if stream is None:
        stream, codec = zstandard.ZstdCompressor(compression_params=parameters).compressobj(), _BEGINS
    return codec, stream.compress(body) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK), stream


class Reader:
    """Verifies and opens batches in order, and says where the journal stops being readable."""

    def __init__(self, run_id: str, chain: bytes | None = None, seq: int = 0) -> None:
        self.run_id = run_id
        self.chain = seed(run_id) if chain is None else chain
        self.seq = seq
        self._stream: zstandard.ZstdDecompressionObj | None = None

    def open(self, batch: tuple[int, int, bytes]) -> Opened:
        """The events of the next batch. Raises `JournalDamaged` or `FormatTooNew`."""
        # After damage the stream is not gone on with: the next batch that can be read begins one.
        stream, self._stream = self._stream, None
        after, last, data = batch
        where = f"run {self.run_id!a}: the batch of events {after + 1} to {last}"
        codec = _codec_of(data, where)
        if after != self.seq and not (codec & _CUT and after > self.seq):
            raise JournalDamaged(f"{where} does not follow event {self.seq}", hint="indelible verify RUN")
        payload, kind = data[_HEAD:], codec & ~_CUT
        if kind == _BEGINS:
            stream = zstandard.ZstdDecompressor().decompressobj()
        elif kind == _GOES_ON and stream is None:
            raise JournalDamaged(f"{where} needs what stands before it", hint="indelible verify RUN")
        chain = link(self.chain, codec, after, last, payload)
        if chain != data[2:_HEAD]:
            raise JournalDamaged(f"{where} does not verify: its digest differs", hint="indelible verify RUN")
        body = _body(payload, None if kind in (_RAW, _ALONE) else stream, kind, where)
        found = ev.decode(body, where)
        if len(found) != last - after:
            raise JournalDamaged(f"{where} holds {len(found)} events", hint="indelible verify RUN")
        self.chain, self.seq, self._stream = chain, last, stream
        return Opened(after, found, len(body), len(data), bool(codec & _CUT))


def _codec_of(data: bytes, where: str) -> int:
    if len(data) < _HEAD:
        raise JournalDamaged(f"{where} is {len(data)} bytes long", hint="indelible verify RUN")
    if data[0] > FORMAT:
        raise FormatTooNew(
            f"{where} has format {data[0]}; this release reads up to {FORMAT}", hint="pip install -U indelible"
        )
    if data[0] != FORMAT or data[1] & ~_CUT not in (_RAW, _BEGINS, _GOES_ON, _ALONE):
        raise JournalDamaged(f"{where} has no known format", hint="indelible verify RUN")
    return data[1]


def _body(payload: bytes, stream: zstandard.ZstdDecompressionObj | None, kind: int, where: str) -> bytes:
    if kind == _RAW:
        return payload
    try:
        if stream is not None:
            return stream.decompress(payload)
        size = zstandard.frame_content_size(payload)
        if size < 0 or size > MAX_BODY_BYTES:
            raise JournalDamaged(f"{where} claims an impossible size", hint="indelible verify RUN")
        return zstandard.ZstdDecompressor().decompress(payload)
    except zstandard.ZstdError as error:
        raise JournalDamaged(f"{where} does not decompress", hint="indelible verify RUN") from error


class Torn(NamedTuple):
    """The last batch of a journal does not verify; nothing readable is lost before it."""

    after_seq: int
    last_seq: int
    error: JournalDamaged


def read_all(reader: Reader, batches: Iterable[tuple[int, int, bytes]]) -> Iterator[Opened | Torn]:
    """Open batches one after another; if the very last one does not verify, end with a `Torn`.

    A batch that does not verify is passed over if the next one declares it void, which is how a
    writer cuts a torn tail without deleting anything. Raises `JournalDamaged` for any other
    damage, at its position; what came before has been yielded by then.
    """
    torn: Torn | None = None
    for batch in batches:
        try:
            opened = reader.open(batch)
        except JournalDamaged as error:
            if torn is not None:
                raise torn.error from None
            torn = Torn(reader.seq, batch[1], error)
            continue
        if torn is not None and not opened.cuts:
            raise torn.error from None
        torn = None
        yield opened
    if torn is not None:
        yield torn
