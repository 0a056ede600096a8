"""What a store answers when it must refuse, and the rule for who may claim.

Owns: the checks and the wording that all stores share, so that they refuse alike.
Must never: do I/O, or change anything.
Invariant: a refused write or claim has left no trace.
"""

from __future__ import annotations

import math

from indelible.errors import IndelibleError, LeaseLost, Misuse, RunBusy, StaleWriter, StoreUnavailable, UnknownRun
from indelible.stores.base import INBOX, Query, Write, check_run_id
from indelible.stores.owner import describe, is_gone

MAX_SEQ = 2**62
MAX_BLOB_BYTES = 900_000_000
"""The largest batch, snapshot or `about` in bytes; SQLite's own limit is 1 GB for a row."""


def bad_write(write: Write) -> IndelibleError | None:
    """What is wrong with a write in itself, whatever the store holds; None if nothing."""
    batch, label = write.batch, write.label
    if not 0 <= batch.after_seq < batch.last_seq <= MAX_SEQ:
        return Misuse(
            f"a batch for run {write.run_id!r} spans no events: after {batch.after_seq}, up to {batch.last_seq}",
            hint="Batch(after_seq=head, last_seq=head + len(events), data=...)",
            run_id=write.run_id,
        )
    blobs: tuple[object, ...] = (batch.data,) if label is None else (batch.data, label.about)
    for blob in blobs:
        if not isinstance(blob, bytes):
            return Misuse(
                f"run {write.run_id!r}: stores keep bytes, not {type(blob).__name__}",
                hint="Batch(..., data=bytes(data))",
                run_id=write.run_id,
            )
        if len(blob) > MAX_BLOB_BYTES:
            return Misuse(
                f"run {write.run_id!r}: {len(blob)} bytes in one batch, the limit is {MAX_BLOB_BYTES}",
                hint="keep large data in a file, and its path and digest in the state",
                run_id=write.run_id,
            )
    return None


def is_inbox(run_id: str) -> bool:
    """True for the name of an inbox: the one kind of journal that is never claimed."""
    return run_id.endswith(INBOX)


def check_journal_id(run_id: str) -> None:
    """Raise `Misuse` if no run or inbox may bear this name."""
    check_run_id(run_id[: -len(INBOX)] if is_inbox(run_id) else run_id)


def check_claim(run_id: str, owner: str, ttl_s: float) -> None:
    """Raise `Misuse` if a claim is wrong in itself."""
    if is_inbox(run_id):
        raise Misuse(f"{run_id!r} is an inbox, which nobody claims", hint="store.append([Write(inbox, 0, batch)])")
    check_run_id(run_id)
    if not owner:
        raise Misuse(f"run {run_id!r} is claimed by nobody", hint="store.claim(run_id, Owner.here(nonce), 30.0)")
    if not math.isfinite(ttl_s) or ttl_s < 0:
        raise Misuse(f"a lease of {ttl_s} s on run {run_id!r}", hint="ttl_s=30.0 (seconds; 0 releases)")


def check_query(query: Query, cursor: str | None) -> tuple[int, int]:
    """The position below which a page begins; raises `Misuse` for a cursor that no page gave."""
    if query.limit < 1:
        raise Misuse(f"a page of {query.limit} runs", hint="Query(limit=500)")
    if cursor is None:
        return MAX_SEQ, 0
    touched, dot, number = cursor.partition(".")
    if not (dot and all(part.isascii() and part.isdigit() and len(part) < 19 for part in (touched, number))):
        raise Misuse("that cursor was not given by list_runs", hint="store.list_runs(query, page.cursor)")
    return int(touched), int(number)


def cursor_at(position: tuple[int, int]) -> str:
    """The cursor of the page that begins below this position: (when last written, number of the run)."""
    return f"{position[0]}.{position[1]}"


def check_snapshot(run_id: str, seq: int, data: bytes) -> None:
    """Raise `Misuse` if a snapshot is wrong in itself."""
    if not isinstance(data, bytes) or not 0 < seq <= MAX_SEQ or len(data) > MAX_BLOB_BYTES:
        raise Misuse(
            f"run {run_id!r}: a snapshot is at most {MAX_BLOB_BYTES} bytes at a seq above 0, not "
            f"{type(data).__name__} at {seq}",
            hint="store.put_snapshot(run_id, head, data)",
            run_id=run_id,
        )


def no_batch_ends(run_id: str, seq: int) -> Misuse:
    """A journal can begin only between two of its batches."""
    return Misuse(
        f"run {run_id!r}: its journal cannot begin at event {seq}, where no batch ends",
        hint="store.put_snapshot(run_id, batch.last_seq, data, begins=True)",
        run_id=run_id,
        seq=seq,
    )


def trimmed_meanwhile(run_id: str, url: str) -> StoreUnavailable:
    """The batches that a reader wanted next were dropped while it read."""
    return StoreUnavailable(
        f"the past of run {run_id!r} was pruned while it was read", hint="run again", run_id=run_id, store=url
    )


def is_live(owner: str, lease_until: float, now: float) -> bool:
    """True while a holder's lease runs and its process is not known to be gone."""
    return bool(owner) and lease_until > now and not is_gone(owner)


def epoch_for(run_id: str, owner: str, *, epoch: int, holder: str, lease_until: float, now: float) -> int:
    """The epoch that `owner` writes under after a claim; raises `RunBusy` while another is alive."""
    if holder == owner:
        return epoch
    if not is_live(holder, lease_until, now):
        return epoch + 1
    left = lease_until - now
    raise RunBusy(
        f"run {run_id!r} is held by {describe(holder)}, whose lease runs for another {left:.1f} s",
        hint="wait for that process, or end it: a run whose process is gone is taken over at once",
        run_id=run_id,
        holder=describe(holder),
        expires_in_s=round(left, 3),
    )


def stale(write: Write, *, head: int | None, epoch: int = 0, deleted: bool = False) -> StaleWriter:
    """Why a write is behind the store; `head` is None for a run the store does not know."""
    run_id = write.run_id
    if deleted:
        return StaleWriter(
            f"run {run_id!r} was deleted; this write was refused and changed nothing",
            hint="start it under another run_id",
            run_id=run_id,
        )
    if head is None:
        return StaleWriter(
            f"run {run_id!r} is not in this store; a run is claimed before it is written",
            hint="store.claim(run_id, owner, 30.0)",
            run_id=run_id,
        )
    if write.epoch != epoch:
        lost = LeaseLost if write.epoch < epoch else StaleWriter
        return lost(
            f"run {run_id!r} was taken over: this writer has epoch {write.epoch}, the run is at {epoch}",
            hint="stop here; the new owner carries on from the journal",
            run_id=run_id,
            epoch=epoch,
            head=head,
        )
    return StaleWriter(
        f"run {run_id!r} is at event {head}, this write expected {write.batch.after_seq}",
        hint="read the journal from that event on, and append after its head",
        run_id=run_id,
        epoch=epoch,
        head=head,
    )


def unknown(run_id: str, *, deleted: bool = False) -> UnknownRun:
    """No such run, or no longer."""
    fate = "was deleted from" if deleted else "is not in"
    return UnknownRun(f"run {run_id!r} {fate} this store", hint="indelible ls", run_id=run_id)


def closed(url: str) -> Misuse:
    """The store was closed before this call."""
    return Misuse(f"the store {url} is closed", hint="open it again: indelible.open(...)", store=url)


def read_only(url: str) -> Misuse:
    """The store was opened for reading."""
    return Misuse(f"the store {url} was opened read-only", hint="open it with readonly=False", store=url)
