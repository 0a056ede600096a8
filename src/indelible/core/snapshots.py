"""Snapshots: a verified record at a seq, so that recovery need not fold the whole journal.

Owns: the snapshot format and the rule when one is due.
Must never: be taken for the truth. One that does not verify is passed over.
Invariant: the sum of all snapshot bytes written is at most `1 + 1/GROWTH` times the
journal bytes plus a constant, since each is taken only after the journal has grown by
GROWTH times the size of the last one.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec
import zstandard

from indelible.core.record import Record
from indelible.errors import JournalDamaged

FORMAT = 1
FIRST_AFTER_BYTES = 256 * 1024
GROWTH = 0.5

_MAGIC = b"is"
_HEAD = 3 + 16
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)
_LEVEL = 1


def due(stored_since: int, last_size: int) -> bool:
    """True if the journal has grown enough since the last snapshot (sizes in stored bytes)."""
    return stored_since >= max(FIRST_AFTER_BYTES, GROWTH * last_size)


def encode(record: Record) -> bytes:
    """The snapshot of a record, self-verifying."""
    # A compressor is never shared: two threads in one of them crash the process.
    body = zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True).compress(_encoder.encode(record))
    return _MAGIC + bytes((FORMAT,)) + _digest(body) + body


def decode(data: bytes, run_id: str, seq: int) -> Record:
    """The record in a snapshot. Raises `JournalDamaged` if it does not verify or fit."""
    where = f"run {run_id!a}: the snapshot at event {seq}"
    if len(data) < _HEAD or data[:2] != _MAGIC or data[2] != FORMAT:
        raise JournalDamaged(f"{where} has no known format")
    body = data[_HEAD:]
    if _digest(body) != data[3:_HEAD]:
        raise JournalDamaged(f"{where} does not verify")
    try:
        record = _decoder.decode(zstandard.ZstdDecompressor().decompress(body))
    except (msgspec.DecodeError, zstandard.ZstdError, RecursionError) as error:
        raise JournalDamaged(f"{where} does not decode") from error
    if record.run_id != run_id or record.seq != seq:
        raise JournalDamaged(f"{where} belongs to run {record.run_id!a} at event {record.seq}")
    return record


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16, person=b"indelible-snap").digest()
