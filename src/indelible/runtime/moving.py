"""Bringing runs from one store into another.

Owns: what becomes of a run by how it stands. One that has ended is copied, and both stay. One that has not is moved:
its journal tells that it went, and where to; what has arrived tells that it came.
Must never: leave a run in two stores where it can be gone on with; write anything before the source is read to its end.
Invariant: whenever this is interrupted, the same command finishes it, and at most one of both stores lets it go on.
"""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from typing import NamedTuple

from indelible.core import events as ev
from indelible.core.arriving import must_be_here, must_not_be_elsewhere
from indelible.core.record import FAILED, FINISHED, MOVED, PARKED, RUNNING
from indelible.core.recovery import NEWEST
from indelible.drive.clock import Clock
from indelible.errors import JournalDamaged, Misuse, RunBusy, RunMismatch, UnknownRun
from indelible.runtime.landing import (
    Claimed,
    Landing,
    Presence,
    Told,
    add,
    entry_of,
    is_ahead,
    missing_of_inbox,
    must_be_prefix,
    untold,
)
from indelible.runtime.surveys import Origin, Survey, survey
from indelible.stores.base import RunEntry, Store, check_run_id
from indelible.version import __version__

ENDED = (FINISHED, FAILED)
COPIED, MOVED_THERE, ALREADY = "copied", "moved", "already there"


class Transfer(NamedTuple):
    """What became of one run: `copied`, `moved` or `already there`; bytes that were written for it now."""

    run_id: str
    became: str
    status: str
    """How the run stands in the target."""
    events: int
    stored_bytes: int
    written_bytes: int


def transfer(source: Store, target: Store, run_id: str, clock: Clock, told: Told = untold) -> Transfer:
    """Copy a run that has ended, move one that has not; durable and verified when it returns.

    Nothing is written if it cannot be. Raises `RunBusy` if a live process holds it, `RunMoved` if it lives elsewhere,
    `RunMismatch` if another run of that id is in the target, `UnknownRun` if there is none, or if it was deleted from
    the target; `JournalDamaged` with the position; `StoreUnavailable`, and then the same call finishes it.
    """
    check_run_id(run_id)
    must_be_two(source, target)
    entry = entry_of(source, run_id)
    if entry is None:
        raise UnknownRun(f"there is no run {run_id!r} in {source.url}", hint="indelible ls", run=run_id)
    if _is_settled(source, target, entry):
        return Transfer(run_id, ALREADY, entry.label.status if entry.label else "", entry.head, entry.stored_bytes, 0)
    with ExitStack() as held:
        found, claimed = _at_source(source, target, entry, clock, held)
        return _carried(found, source, target, claimed, clock, told, held)


def must_be_two(source: Origin, target: Store) -> None:
    """Raise `Misuse` if both are one store."""
    if source is target or (source.url == target.url and target.shared):
        raise Misuse(f"{target.url} is both the source and the destination", hint="indelible copy SRC DST")


def _at_source(
    source: Store, target: Store, entry: RunEntry, clock: Clock, held: ExitStack
) -> tuple[Survey, Claimed | None]:
    """The run as the source holds it; claimed if it can still go on."""
    run_id = entry.run_id
    claimed: Claimed | None = None
    if entry.label is None or entry.label.status not in (*ENDED, MOVED):
        claimed = held.enter_context(Claimed(source, run_id, clock))
    newest = source.get_snapshot(run_id, NEWEST)
    if newest is not None:
        must_be_here(run_id, newest[1])
    beat = claimed.renew if claimed is not None else lambda: None
    found = survey(source, run_id, at=Presence.of(target, run_id).head, beat=beat)
    if not found.record.agent:
        raise JournalDamaged(
            f"run {run_id!r}: nothing of its journal can be read",
            hint=f"indelible verify {shlex.quote(run_id)}",
            run=run_id,
        )
    if claimed is None and found.record.status in (RUNNING, PARKED):
        raise RunBusy(f"run {run_id!r} was taken up again meanwhile", hint="run the same command again", run=run_id)
    return found, claimed


def _is_settled(source: Store, target: Store, entry: RunEntry) -> bool:
    """True if an ended run is in the target as it is in the source, told from the ends of both journals."""
    if entry.label is None or entry.label.status not in ENDED:
        return False
    there = Presence.of(target, entry.run_id)
    if there.marked or there.head != entry.head or there.last is None:
        return False
    if there.last != next(iter(source.read(entry.run_id, entry.head - 1)), None):
        return False
    return not missing_of_inbox(source, target, entry.run_id)


def _carried(
    coming: Survey, source: Store, target: Store, claimed: Claimed | None, clock: Clock, told: Told, held: ExitStack
) -> Transfer:
    record, run_id = coming.record, coming.record.run_id
    there = Presence.of(target, run_id)
    if is_ahead(target, there, coming):
        return _went_on(coming, source, target)
    must_be_prefix(target, there, coming)
    missing_of_inbox(source, target, run_id)
    if record.status == MOVED and record.moved_to != target.url:
        must_not_be_elsewhere(record, source.url)
    landing = Landing(held.enter_context(claim_target(target, run_id, clock)), source, clock, told)
    if Presence.of(target, run_id).last != there.last:
        raise RunBusy(
            f"run {run_id!r} in {target.url} changed meanwhile", hint="run the same command again", run=run_id
        )
    if claimed is not None:
        landing.announce(coming.head + 1)  # nobody else may take the place while the run is between both
        moved = ev.RunMoved(clock.now(), target.url, clock.entropy(8).hex(), __version__)
        add(claimed, coming, moved, clock)
        coming = survey(source, run_id, at=there.head, beat=claimed.renew)
    elif record.status in (RUNNING, PARKED):
        raise RunBusy(f"run {run_id!r} can go on, and is not held", hint="run the same command again", run=run_id)
    return landed(landing, coming)


def claim_target(target: Store, run_id: str, clock: Clock) -> Claimed:
    """Hold of the run in the target. Entering raises `UnknownRun` if it was deleted there, saying what that means."""
    return _Destination(target, run_id, clock)


class _Destination(Claimed):
    def __enter__(self) -> Claimed:
        try:
            return super().__enter__()
        except UnknownRun as error:
            raise UnknownRun(
                f"run {self.run_id!r} was deleted from {self.store.url}; what was deleted does not come back there",
                hint="choose another store, or leave the run out",
                run=self.run_id,
            ) from error


def landed(landing: Landing, coming: Survey) -> Transfer:
    """Mark, bring, verify, reveal; and the last word of a move. What was done before is done again, or found done."""
    record = coming.record
    landing.announce(record.seq)
    landing.bring(coming)
    arrived = landing.verify(coming)
    landing.reveal(arrived)
    if record.status != MOVED or record.moved_to != landing.target.url:
        return Transfer(record.run_id, COPIED, record.status, coming.head, coming.stored_bytes, landing.written)
    landing.arrive(arrived)
    return Transfer(record.run_id, MOVED_THERE, record.stood, coming.head + 1, coming.stored_bytes, landing.written)


def _went_on(coming: Survey, source: Origin, target: Store) -> Transfer:
    """The target has all that is in the source, and more."""
    record = coming.record
    entry = entry_of(target, record.run_id)
    if record.status in (RUNNING, PARKED):
        raise RunMismatch(
            f"run {record.run_id!r} is at event {coming.head} in {source.url} and further in {target.url}, and can go "
            f"on in both: one of them is an old copy",
            hint=f"indelible delete {shlex.quote(record.run_id)} --store {shlex.quote(source.url)}   # if it is old",
            run=record.run_id,
        )
    status = entry.label.status if entry is not None and entry.label is not None else ""
    events, size = (entry.head, entry.stored_bytes) if entry is not None else (coming.head, coming.stored_bytes)
    return Transfer(record.run_id, ALREADY, status, events, size, 0)
