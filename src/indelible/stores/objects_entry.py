"""What lies in object storage: the entries of a log, the packs they are merged into, and the names of all objects.

Owns: the encoding of an object, its check sum and version, and the path of everything.
Must never: do I/O; take an object for another's: each names its run and its place, and both are checked.
Invariant: an entry holds the whole standing of its run, so that the last one alone tells everything but the batches.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import msgspec

from indelible.errors import FormatTooNew, JournalDamaged
from indelible.stores.base import INBOX, Label, inbox_of
from indelible.stores.refusals import is_inbox

__all__ = ["CLOCK", "FORMAT", "INDEX", "PLACEHOLDER", "Entry", "Format", "Lease", "Names", "Pack", "Standing"]

VERSION = 1
_MAGIC = b"indelible\x00"
_DIGEST = 16
_HEADER = len(_MAGIC) + 1 + _DIGEST

FORMAT = "format"
"""The object that says that what lies beside it is ours; also the one that put-if-absent is tried on."""
CLOCK = "clock"
"""The object that is written to learn the time on the server's clock."""
INDEX = "index"
RUNS = "runs"
INBOXES = "inboxes"
PLACEHOLDER = b""
"""What a slot holds that may not be empty yet, and whose entry is no longer of use."""

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_RESERVED = frozenset({"con", "prn", "aux", "nul"} | {f"{port}{n}" for port in ("com", "lpt") for n in range(10)})
_LONGEST = 120
"""Of an encoded id, in characters: a file name has at most 255 bytes, an object's whole key 1024."""


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """All that is known of a run at one entry of its log. Times are epoch seconds on the store's clock.

    `nonce` tells this entry from every other, `before` is the nonce of the entry before it. `touched` orders
    listings, `begins` is the seq the journal begins after; entries up to index `floor` hold nothing
    above it, and entries up to index `packed` are also in packs.
    """

    run_id: str
    index: int
    nonce: bytes
    before: bytes
    at: float
    head: int = 0
    epoch: int = 0
    owner: str = ""
    ttl_s: float = 0.0
    label: Label | None = None
    created_at: float = 0.0
    updated_at: float = 0.0
    touched: int = 0
    stored_bytes: int = 0
    begins: int = 0
    floor: int = 0
    packed: int = 0
    deleted: bool = False


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One slot of a log. `kind` is claim, release, batch, begins or deleted; a batch holds the seqs above `after_seq`
    up to the standing's head."""

    kind: str
    now: Standing
    after_seq: int = 0
    data: bytes = b""


class Packed(NamedTuple):
    """A batch in a pack, with the index of its entry."""

    slot: int
    after_seq: int
    last_seq: int
    data: bytes


class Pack(msgspec.Struct, frozen=True, array_like=True):
    """The batches of the entries `first` to `last`, and the nonces by which it joins on to what is around it."""

    run_id: str
    first: int
    last: int
    before: bytes
    nonce: bytes
    batches: list[Packed]


class Index(msgspec.Struct, frozen=True, array_like=True):
    """What a listing starts from: the standing at some entry. `settled`: nobody holds the run, so it is exact."""

    now: Standing
    settled: bool


class Lease(msgspec.Struct, frozen=True, array_like=True):
    """A lease that was renewed without a batch; it runs from when the object was written."""

    epoch: int
    ttl_s: float
    at: float


class Format(msgspec.Struct, frozen=True, array_like=True):
    """The mark of a store."""

    what: str


T = TypeVar("T")
_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type, Any] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in (Entry, Pack, Index, Lease, Format)
}  # fmt: skip


def encode(value: Entry | Pack | Index | Lease | Format) -> bytes:
    """The bytes of an object."""
    body = _encoder.encode(value)
    return b"".join((_MAGIC, bytes([VERSION]), blake2b(body, digest_size=_DIGEST).digest(), body))


def decode(kind: type[T], data: bytes, path: str) -> T:
    """The object behind these bytes, which were found at `path`. Raises `FormatTooNew`, `JournalDamaged`."""
    if data[: len(_MAGIC)] != _MAGIC or len(data) < _HEADER:
        raise damaged(path, "was not written by Indelible, or is cut short")
    version = data[len(_MAGIC)]
    if version > VERSION:
        raise FormatTooNew(
            f"{path} has format {version}, this release reads up to {VERSION}",
            hint="pip install -U 'indelible[objects]'",
            path=path,
        )
    body = memoryview(data)[_HEADER:]
    if blake2b(body, digest_size=_DIGEST).digest() != data[len(_MAGIC) + 1 : _HEADER]:
        raise damaged(path, "does not fit its check sum")
    try:
        found: T = _decoders[kind].decode(body)
    except msgspec.DecodeError as error:
        raise damaged(path, "holds something else than its place says") from error
    return found


def damaged(path: str, what: str, **ids: str | int) -> JournalDamaged:
    """The object at `path` cannot be used."""
    return JournalDamaged(f"{path} {what}", hint="indelible doctor --store URL", path=path, **ids)


class Names(NamedTuple):
    """Where the objects of one run or inbox lie."""

    run_id: str
    base: str
    listed: str
    """The index object; "" for an inbox, which no listing shows."""

    @classmethod
    def of(cls, run_id: str) -> Names:
        """For a run or an inbox."""
        if is_inbox(run_id):
            return cls(run_id, f"{INBOXES}/{segment(run_id[: -len(INBOX)])}", "")
        name = segment(run_id)
        return cls(run_id, f"{RUNS}/{name}", f"{INDEX}/{name}")

    @property
    def inbox(self) -> Names:
        """Those of the run's inbox."""
        return Names.of(inbox_of(self.run_id))

    @property
    def log(self) -> str:
        """The prefix of the entries."""
        return f"{self.base}/log/"

    @property
    def packs(self) -> str:
        """The prefix of the packs."""
        return f"{self.base}/packs/"

    @property
    def snapshots(self) -> str:
        """The prefix of the snapshots."""
        return f"{self.base}/snap/"

    def entry(self, index: int) -> str:
        """The slot of that index."""
        return f"{self.base}/log/{index:016d}"

    def pack(self, span: Span) -> str:
        """The pack of that span."""
        return f"{self.base}/packs/{'-'.join(f'{number:016d}' for number in span)}"

    def snapshot(self, seq: int) -> str:
        """The snapshot at that seq."""
        return f"{self.base}/snap/{seq:019d}"

    def lease(self, epoch: int) -> str:
        """The renewals of the holder of that epoch: another's would not be overwritten by a former holder."""
        return f"{self.base}/lease/{epoch:016d}"


class Span(NamedTuple):
    """What a pack holds, as its name says: entries first to last, seqs above after_seq up to last_seq."""

    first: int
    last: int
    after_seq: int
    last_seq: int


def segment(run_id: str) -> str:
    """A run id as one part of a path, the same for no other id, on every file system.

    Lower-case letters, digits and "-" stand for themselves, any other byte is "_" and two hexadecimal digits, so that
    neither case nor accents nor dots can be folded; what would be too long is "_h" and a digest.
    """
    name = "".join(chr(b) if chr(b) in _PLAIN else f"_{b:02x}" for b in run_id.encode())
    if len(name) > _LONGEST:
        return "_h" + blake2b(run_id.encode(), digest_size=24).hexdigest()
    return f"_{ord(name[0]):02x}{name[1:]}" if name in _RESERVED else name


def number_of(path: str) -> int | None:
    """The index or seq that ends a path; None if it ends otherwise."""
    last = path.rpartition("/")[2]
    return int(last) if last.isascii() and last.isdigit() else None


def span_of(path: str) -> Span | None:
    """The span that a pack's path tells; None if it is no pack's."""
    parts = path.rpartition("/")[2].split("-")
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    return Span(*map(int, parts))
