"""What a store is: eight blocking methods over opaque bytes.

Owns: the `Store` protocol, the values that pass through it, and what a store may offer to whoever keeps it in order.
Must never: decode an event, or look inside a batch, a snapshot or an `about`.
Invariant: a run's journal only grows, one contiguous batch at a time, written by
the holder of the newest epoch.

A run's inbox is the journal named `inbox_of(run_id)`. It is never claimed, its epoch
stays 0, and anyone may append to it by compare-and-set on its head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from indelible.core.inbox import INBOX, inbox_of
from indelible.core.journal import Batch
from indelible.errors import IndelibleError, Misuse

__all__ = [
    "INBOX",
    "Batch",
    "Fact",
    "Label",
    "Page",
    "Query",
    "RunEntry",
    "Store",
    "Sweeping",
    "Upkeep",
    "Write",
    "check_run_id",
    "inbox_of",
]

MAX_RUN_ID_BYTES = 512


class Label(NamedTuple):
    """What a listing shows of a run, written in the same transaction as the batch it describes.

    `status` and `agent` are plain words a store may index; `wake_at` is epoch seconds
    (a parked run whose time comes then); `about` is opaque to the store.
    """

    agent: str
    status: str
    wake_at: float | None
    about: bytes


class Write(NamedTuple):
    """One batch for one run, fenced by `epoch`; `label` replaces the run's label if given."""

    run_id: str
    epoch: int
    batch: Batch
    label: Label | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """Which runs to list: all that match every part that is given."""

    statuses: frozenset[str] | None = None
    agent: str | None = None
    run_ids: tuple[str, ...] | None = None
    limit: int = 500


@dataclass(frozen=True, slots=True)
class RunEntry:
    """One run as the store knows it. Times are epoch seconds on the store's clock.

    `stored_bytes` counts the batches as stored; `owner` is "" when nobody holds the run,
    and `live` says whether the holder's lease is unexpired and its process not known to be gone.
    """

    run_id: str
    head: int
    epoch: int
    label: Label | None
    owner: str
    live: bool
    created_at: float
    updated_at: float
    stored_bytes: int


class Page(NamedTuple):
    """Runs, and the cursor of the next page (None at the end)."""

    runs: list[RunEntry]
    cursor: str | None


class Store(Protocol):
    """Where journals live. Safe to call from any thread; see each method for durability."""

    url: str
    """How to open this store again (an absolute path or URL). A password in it is left out."""
    durable: bool
    """True if an acknowledged append survives the death of this process and the machine."""
    shared: bool
    """True if other processes can open the same store."""

    def append(self, writes: Sequence[Write]) -> list[IndelibleError | None]:
        """Append several batches in one durable transaction; answer each by itself.

        Each write is all or nothing. A write whose `after_seq` is not the run's head, or
        whose epoch is not the run's newest, or whose run was deleted, is refused with a
        `StaleWriter` in its place, and the other writes still commit. An answer of None
        means: durable. Raises `StoreUnavailable` if the transaction as a whole failed;
        then it is unknown to the caller whether it was applied.
        """
        ...

    def read(self, run_id: str, after_seq: int = 0) -> Iterator[Batch]:
        """Batches holding seqs above `after_seq`, in order, lazily. Unknown runs yield nothing."""
        ...

    def list_runs(self, query: Query, cursor: str | None = None) -> Page:
        """Runs that match, newest update first, inboxes and deleted runs left out."""
        ...

    def claim(self, run_id: str, owner: str, ttl_s: float) -> int:
        """Become the run's one writer for `ttl_s` seconds, and return the epoch. Durable.

        Creates the run if it is unknown (head 0). A new owner gets a new, higher epoch; the
        present owner renews and keeps its epoch; `ttl_s=0` by the present owner releases.
        An owner whose process is known to be gone, or whose lease has run out on the
        store's clock, is taken over. Raises `RunBusy` if a live owner holds it, `UnknownRun`
        if it was deleted.
        """
        ...

    def put_snapshot(self, run_id: str, seq: int, data: bytes, begins: bool = False) -> None:
        """Keep `data` as the snapshot at `seq`; only the newest two are kept, and the one the journal begins at.

        With `begins` the journal begins at this snapshot from now on: the batches up to `seq` and all older
        snapshots go, all or nothing, and reading from 0 yields the batches after `seq`. Raises
        `Misuse` if no batch ends at `seq`.
        """
        ...

    def get_snapshot(self, run_id: str, at_most_seq: int) -> tuple[int, bytes] | None:
        """The newest snapshot with seq <= at_most_seq, or None."""
        ...

    def delete(self, run_id: str) -> None:
        """Remove a run, its snapshots and its inbox, all or nothing, leaving a tombstone
        so that a late write is refused. Raises `UnknownRun`."""
        ...

    def close(self) -> None:
        """Release everything; idempotent. What was acknowledged stays."""
        ...


class Fact(NamedTuple):
    """One thing that is so of a store or its server: "fsync policy", "everysec", "bad", and what would mend it."""

    name: str
    value: str
    verdict: Literal["ok", "note", "bad"] = "ok"
    hint: str = ""


@runtime_checkable
class Upkeep(Protocol):
    """What a store may offer besides, to `indelible doctor` and `indelible prune`. No run needs it."""

    def now(self) -> float:
        """The time on the store's clock, in epoch seconds."""
        ...

    def facts(self) -> Iterator[Fact]:
        """What this store and its server are and guarantee, and whether what they hold is whole. Changes nothing."""
        ...

    def reclaim(self) -> int:
        """Give the space of what was deleted back to the system, and return how many bytes that was."""
        ...


@runtime_checkable
class Sweeping(Protocol):
    """What a store may offer besides: to delete many runs at the price of one."""

    def delete_idle(self, runs: Sequence[tuple[str, int]]) -> list[bool]:
        """Delete, in one durable transaction, each run that is still at this head and that nobody holds.

        Each as `Store.delete` does; the answers say which have gone.
        """
        ...


def check_run_id(run_id: str) -> str:
    """Return `run_id` if it can name a run; raise `Misuse` saying what is wrong with it."""
    if not isinstance(run_id, str) or not run_id.strip():
        raise Misuse("a run id must be a non-empty text", hint="run_id='suppliers'")
    shown = ascii(run_id[:60])
    try:
        size = len(run_id.encode("utf-8"))
    except UnicodeEncodeError:
        raise Misuse(f"run id {shown} holds half of a character pair", hint="run_id='suppliers'") from None
    if size > MAX_RUN_ID_BYTES:
        raise Misuse(f"run id {shown}… is {size} bytes, the limit is {MAX_RUN_ID_BYTES}", hint="run_id='suppliers'")
    if "/" in run_id or "\\" in run_id or run_id.strip(". ") == "":
        raise Misuse(f"run id {shown} looks like a path", hint="run_id='suppliers' (no slashes; ':' is fine)")
    if any(ord(ch) < 32 or 127 <= ord(ch) < 160 for ch in run_id):
        raise Misuse(f"run id {shown} holds control characters", hint="run_id='suppliers'")
    return run_id
