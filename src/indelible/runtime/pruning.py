"""Retention: which runs may go, and how they, or only their past, go for good.

Owns: the choice of runs, their deletion in groups, and the dropping of a past that a verified snapshot stands for.
Must never: delete a run that is running, held, or not what it was when it was chosen; drop anything before what stands
for it was rebuilt from the journal, compared with it, and read back from the store.
Invariant: each run is deleted, or loses its past, as a whole or not at all; whatever ends the work in the middle, doing
it again finishes it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from indelible.core import snapshots
from indelible.core.arriving import ARRIVING
from indelible.core.inbox import inbox_of
from indelible.core.journal import Torn, read_all
from indelible.core.record import FAILED, FINISHED, MOVED, PARKED, Record, fold
from indelible.errors import IndelibleError, JournalDamaged, Misuse, RunBusy, StoreUnavailable, UnknownRun
from indelible.runtime.beginnings import beginning
from indelible.runtime.leases import TTL_S
from indelible.runtime.runstore import RunStore
from indelible.stores.base import Query, RunEntry, Store, Sweeping, Upkeep, check_run_id
from indelible.stores.owner import Owner, describe, enter, leave
from indelible.stores.patience import lags

GROUP = 500
"""So many runs are deleted in one transaction."""
AT_ONCE = 8
"""So many are deleted at once where a store takes them one by one."""
HELD = 100
"""So many are held meanwhile: none for so long that its lease could run out before its turn comes."""
ENDED = frozenset({FINISHED, FAILED})
_RENEW_EVERY = 256


@dataclass(frozen=True, slots=True)
class Wish:
    """Which runs: all that match every part that is given. At least one part, or `run_ids`, must be given."""

    older_than_s: float | None = None
    """Last written to longer ago than this, in seconds on the store's clock."""
    keep_last: int | None = None
    """Not the newest so many of those that would go otherwise."""
    run_ids: tuple[str, ...] = ()
    agent: str | None = None
    parked: bool = False
    """Parked ones too: they wait, and will never be answered."""


class Went(NamedTuple):
    """What became of one run: `bytes` of journal went, or it was passed over for the reason in `kept`."""

    run_id: str
    bytes: int
    kept: str = ""
    events: int = 0


def chosen(runs: RunStore, wish: Wish, history: bool = False) -> Iterator[RunEntry]:
    """The runs that the wish is about, newest first; found page by page, so that it is safe to delete them meanwhile.

    With `history` unfinished ones too, if nobody holds them. Raises `Misuse` for a wish that cannot be, or a run named
    in it that may not go, and `UnknownRun`.
    """
    if wish.run_ids:
        if (wish.older_than_s, wish.keep_last, wish.agent) != (None, None, None):
            raise Misuse("runs that are named are not looked for", hint="indelible prune --run ID --run ID")
        yield from [_named(runs, run_id, wish, history) for run_id in dict.fromkeys(wish.run_ids)]
        return
    if wish.older_than_s is None and wish.keep_last is None:
        raise Misuse("say which runs", hint="indelible prune --older-than 30d    (or --keep-last 100, or --run ID)")
    if wish.keep_last is not None and wish.keep_last < 0:
        raise Misuse(f"--keep-last {wish.keep_last} is no number of runs", hint="--keep-last 100")
    now, kept = time_of(runs), 0
    statuses = None if history else set(ENDED | {PARKED} if wish.parked else ENDED)
    for entry in runs.entries(statuses=statuses, agent=wish.agent):
        if entry.live or _status(entry) in (MOVED, ARRIVING):
            continue
        if kept < (wish.keep_last or 0):
            kept += 1
            continue
        if wish.older_than_s is None or now - entry.updated_at > wish.older_than_s:
            yield entry


def time_of(runs: RunStore) -> float:
    """The time on the store's clock, if it has one, else on this machine's; the later of both if the store's lags."""
    if not isinstance(runs.store, Upkeep):
        return runs.clock.now()
    return max(runs.store.now(), runs.clock.now() if lags(runs.store) else 0.0)


def delete_all(runs: RunStore, entries: Iterator[RunEntry], tell: Callable[[int, int], None]) -> list[Went]:
    """Delete them group by group, durably; `tell` is called with the runs and bytes that have gone so far.

    Returns those that were passed over, and why.
    """
    passed_over: list[Went] = []
    gone = size = 0
    with _owner(runs) as owner:
        while group := list(islice(entries, GROUP)):
            for entry, went in zip(group, _delete(runs, group, owner), strict=True):
                if went:
                    gone, size = gone + 1, size + entry.stored_bytes
                else:
                    passed_over.append(Went(entry.run_id, 0, "it is held, or has changed, since it was looked at"))
            tell(gone, size)
    return passed_over


def drop_past(runs: RunStore, entry: RunEntry) -> Went:
    """Drop a run's past, down to a snapshot at its head that was verified. Nobody else holds the run meanwhile.

    A run whose past may not go, or is not worth it, is passed over, and told why. Raises `StoreUnavailable`.
    """
    with _owner(runs) as owner:
        try:
            runs.store.claim(entry.run_id, owner, TTL_S)
        except (RunBusy, UnknownRun) as error:
            return Went(entry.run_id, 0, error.what)
        try:
            return _drop(runs, _entry(runs, entry.run_id), owner)
        except StoreUnavailable:
            raise
        except IndelibleError as error:
            return Went(entry.run_id, 0, error.what)
        finally:
            with suppress(UnknownRun):  # deleted meanwhile
                runs.store.claim(entry.run_id, owner, 0.0)


def _drop(runs: RunStore, entry: RunEntry, owner: str) -> Went:
    store, run_id, head = runs.store, entry.run_id, entry.head
    if not entry.stored_bytes:
        return Went(run_id, 0, "nothing of it is left")
    record = _folded(runs, run_id, owner)
    if record is None or record.seq != head:
        return Went(run_id, 0, "its last batch is torn; it can be pruned once the run has gone on")
    data = snapshots.encode(record)
    if len(data) >= entry.stored_bytes:
        return Went(run_id, 0, f"its state takes {len(data):,} bytes, its past {entry.stored_bytes:,}")
    found = runs.recover(run_id)
    found.record.chain = record.chain
    if snapshots.encode(found.record) != data or snapshots.encode(snapshots.decode(data, run_id, head)) != data:
        raise JournalDamaged(
            f"run {run_id!r}: a snapshot made anew differs from the fold of the journal; nothing was dropped",
            hint=f"indelible verify {shlex.quote(run_id)}",
        )
    store.put_snapshot(run_id, head, data)
    if store.get_snapshot(run_id, head) != (head, data):
        raise JournalDamaged(
            f"run {run_id!r}: the store gave another snapshot back than it was given; nothing was dropped",
            hint=f"indelible verify {shlex.quote(run_id)}",
        )
    store.put_snapshot(run_id, head, data, True)
    return Went(run_id, entry.stored_bytes - _entry(runs, run_id).stored_bytes, events=head)


def _folded(runs: RunStore, run_id: str, owner: str) -> Record | None:
    """The run by the fold of its whole journal, every digest checked; None if its last batch is torn."""
    begun = beginning(runs.store, run_id)
    reader, record = begun.reader(), begun.record
    for number, opened in enumerate(read_all(reader, begun.batches)):
        if isinstance(opened, Torn):
            return None
        for offset, event in enumerate(opened.events):
            fold(record, opened.after_seq + 1 + offset, event)
        if number % _RENEW_EVERY == _RENEW_EVERY - 1:
            runs.store.claim(run_id, owner, TTL_S)
    record.chain = reader.chain
    return record


def _delete(runs: RunStore, group: Sequence[RunEntry], owner: str) -> list[bool]:
    store = runs.store
    for entry in group:
        if entry.head == 0:  # only an inbox is there
            store.delete(entry.run_id)
    real = [entry for entry in group if entry.head]
    if isinstance(store, Sweeping):
        gone = iter(store.delete_idle([(entry.run_id, entry.head) for entry in real]))
    else:
        held = (real[at : at + HELD] for at in range(0, len(real), HELD))
        gone = (went for some in held for went in _one_by_one(store, some, owner))
    return [next(gone) if entry.head else True for entry in group]


def _one_by_one(store: Store, group: Sequence[RunEntry], owner: str) -> list[bool]:
    """Hold each, look once more, and delete what is still as it was."""

    def hold(entry: RunEntry) -> int:
        try:
            return store.claim(entry.run_id, owner, TTL_S)
        except (RunBusy, UnknownRun):
            return 0

    def remove(entry: RunEntry) -> bool:
        # Held once more, and under the same epoch: nobody can have taken it up since it was looked at.
        if entry.run_id not in mine or hold(entry) != mine[entry.run_id]:
            return False
        if heads.get(entry.run_id) != entry.head:
            store.claim(entry.run_id, owner, 0.0)
            return False
        try:
            store.delete(entry.run_id)
        except UnknownRun:
            pass  # somebody else has deleted it
        return True

    with ThreadPoolExecutor(AT_ONCE) as pool:
        held = list(pool.map(hold, group))
        mine = {entry.run_id: epoch for entry, epoch in zip(group, held, strict=True) if epoch}
        query = Query(run_ids=tuple(sorted(mine)), limit=len(group))
        heads = {entry.run_id: entry.head for entry in store.list_runs(query).runs} if mine else {}
        return list(pool.map(remove, group))


def _named(runs: RunStore, run_id: str, wish: Wish, history: bool) -> RunEntry:
    try:
        entry = _entry(runs, check_run_id(run_id))
    except UnknownRun:
        being_made = runs.store.list_runs(Query(run_ids=(run_id,))).runs
        if history or being_made or not any(True for _ in runs.store.read(inbox_of(run_id))):
            raise
        return RunEntry(run_id, 0, 0, None, "", False, 0.0, 0.0, 0)
    if entry.live:
        raise RunBusy(
            f"run {run_id!r} is held by {describe(entry.owner)}",
            hint="stop that process (Ctrl-C or SIGTERM), then try again",
            run_id=run_id,
        )
    status = _status(entry)
    if not history and status not in ENDED | {MOVED} and not (wish.parked and status == PARKED):
        word = shlex.quote(run_id)
        hint = f"indelible prune --run {word} --include-parked" if status == PARKED else f"indelible delete {word}"
        raise Misuse(f"run {run_id!r} has not ended: it is {status or 'not accepted yet'}", hint=hint, run=run_id)
    return entry


def _entry(runs: RunStore, run_id: str) -> RunEntry:
    found = runs.store.list_runs(Query(run_ids=(run_id,))).runs
    if not found or not found[0].head:
        raise UnknownRun(f"there is no run {run_id!r} in {runs.url}", hint="indelible ls", run=run_id)
    return found[0]


def _status(entry: RunEntry) -> str:
    return entry.label.status if entry.label else ""


@contextmanager
def _owner(runs: RunStore) -> Iterator[str]:
    nonce = runs.clock.entropy(8).hex()
    enter(nonce)
    try:
        yield Owner.here(nonce)
    finally:
        leave(nonce)
