"""The receiving end of a run that is brought into a store.

Owns: what is compared before anything is written, the order of the writes, and the last word, which makes it visible.
Must never: write to a run that is not a prefix of what comes, or end with less than the whole of it.
Invariant: from the first write to the last there is a mark, and nobody can go on with the run in this store.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from indelible.core import events as ev
from indelible.core import snapshots
from indelible.core.arriving import ARRIVING, BEGINS_LATER, mark, marked
from indelible.core.inbox import inbox_of, open_inbox
from indelible.core.journal import Journal
from indelible.core.record import Record, fold
from indelible.core.recovery import NEWEST
from indelible.drive.clock import Clock
from indelible.errors import IndelibleError, JournalDamaged, RunMismatch, StaleWriter, StoreUnavailable
from indelible.runtime.labels import label_of
from indelible.runtime.leases import TTL_S
from indelible.runtime.surveys import Origin, Survey, survey
from indelible.stores.base import Batch, Label, Query, RunEntry, Store, Write
from indelible.stores.owner import Owner, enter, leave
from indelible.stores.patience import patience_of, pauses
from indelible.version import __version__

GROUP_BYTES = 4 << 20
GROUP_BATCHES = 256

Told = Callable[[int], object]
"""Is told of so many bytes that were brought."""


def untold(_: int) -> None:
    """Tell nobody."""


class Claimed:
    """A run that this process holds while it is moved; used by `with`."""

    def __init__(self, store: Store, run_id: str, clock: Clock) -> None:
        self.store, self.run_id, self._clock = store, run_id, clock
        self.epoch = 0
        self._nonce = clock.entropy(8).hex()
        self._owner = ""
        self._until = 0.0

    def __enter__(self) -> Claimed:
        enter(self._nonce)
        try:
            self._owner = Owner.here(self._nonce)
            self.epoch = self.store.claim(self.run_id, self._owner, TTL_S)
            self._until = self._clock.now() + TTL_S / 3
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        leave(self._nonce)
        if self._owner:
            try:
                self.store.claim(self.run_id, self._owner, 0)
            except (IndelibleError, StoreUnavailable):
                pass  # not ours any more, deleted, or out of reach: the lease runs out by itself

    def renew(self) -> None:
        """Keep hold of it. Raises `RunBusy` if another process has taken it over."""
        if self._clock.now() >= self._until:
            self.store.claim(self.run_id, self._owner, TTL_S)
            self._until = self._clock.now() + TTL_S / 3


def entry_of(store: Store, run_id: str) -> RunEntry | None:
    """The run as the store lists it; None if it is not there, was deleted, or was never accepted."""
    found = store.list_runs(Query(run_ids=(run_id,))).runs
    return found[0] if found and found[0].head else None


def write_all(store: Store, writes: Sequence[Write], clock: Clock) -> None:
    """Append them in order, durably. What an interruption left open is read back before anything is tried again."""
    left = pauses(patience_of(store))
    todo = list(writes)
    while todo:
        try:
            refused = next((answer for answer in store.append(todo) if answer is not None), None)
        except StoreUnavailable as error:
            refused = error
        if refused is None:
            return
        there = {batch.last_seq: batch for batch in store.read(todo[0].run_id, todo[0].batch.after_seq)}
        todo = [write for write in todo if there.get(write.batch.last_seq) != write.batch]
        if not todo:
            return
        pause = next(left, None) if isinstance(refused, StoreUnavailable) else None
        if pause is None:
            raise refused
        clock.sleep(pause)


@dataclass
class Presence:
    """What a store holds of a run that is to be brought there."""

    head: int = 0
    last: Batch | None = None
    marked: bool = False

    @classmethod
    def of(cls, store: Store, run_id: str) -> Presence:
        """As it is now."""
        entry = entry_of(store, run_id)
        newest = store.get_snapshot(run_id, NEWEST)
        found = cls(marked=newest is not None and marked(newest[1]) is not None)
        if entry is not None:
            found.head = entry.head
            found.last = next(iter(store.read(run_id, entry.head - 1)), None)
        return found


def must_be_prefix(target: Store, there: Presence, coming: Survey) -> None:
    """Raise `RunMismatch` unless what is there is the beginning of what comes, or all of it."""
    run_id = coming.record.run_id
    if there.head == 0 or (there.last is not None and there.last.data == BEGINS_LATER and coming.begins):
        return
    if there.head <= coming.head and there.last is not None and there.last == coming.at:
        return
    if coming.begins and there.head < coming.begins:
        what = f"the journal of run {run_id!r} begins after event {coming.begins}, and {target.url} holds it up to " \
            f"event {there.head} only"  # fmt: skip
    elif coming.begins == there.head:  # both are told apart by the chain up to there
        if survey(target, run_id).record.chain == coming.chain_at_beginning:
            return
        what = f"another run of the id {run_id!r} is in {target.url}, or one that went another way"
    else:
        what = f"another run of the id {run_id!r} is in {target.url}, or one that went another way: it is at event " \
            f"{there.head}, this one at {coming.head}"  # fmt: skip
    raise RunMismatch(
        what,
        hint=f"indelible log {shlex.quote(run_id)} --store {shlex.quote(target.url)}   # or choose another store",
        run=run_id,
    )


def is_ahead(target: Store, there: Presence, coming: Survey) -> bool:
    """True if the store holds all that comes, and more. Raises `RunMismatch` if it holds something else."""
    run_id = coming.record.run_id
    if there.head <= coming.head:
        return False
    batch = next(iter(target.read(run_id, max(0, coming.head - 1))), None)
    if batch is not None and batch == coming.last:
        return True
    held = survey(target, run_id)
    same = ("agent", "objective", "started_at")
    if held.begins >= coming.head and all(getattr(held.record, n) == getattr(coming.record, n) for n in same):
        return True  # its beginning was pruned, so that no more can be compared
    raise RunMismatch(
        f"another run of the id {run_id!r} is in {target.url}, or one that went another way: it is at event "
        f"{there.head}, this one at {coming.head}",
        hint=f"indelible log {shlex.quote(run_id)} --store {shlex.quote(target.url)}   # or choose another store",
        run=run_id,
    )


class Landing:
    """One run on its way into `target`, which this process has claimed."""

    def __init__(self, claimed: Claimed, origin: Origin, clock: Clock, told: Told = untold) -> None:
        self.claimed, self.target, self.run_id = claimed, claimed.store, claimed.run_id
        self.origin, self._clock, self._told = origin, clock, told
        self.written = 0

    def announce(self, seq: int) -> None:
        """Put the mark. From here on nobody takes the run up in the target, whatever else is there of it."""
        self.target.put_snapshot(self.run_id, seq, mark(self.origin.url, seq))

    def bring(self, coming: Survey) -> None:
        """Bring what is missing, batch by batch, then what people have said to the run. Durable."""
        there = Presence.of(self.target, self.run_id)
        if coming.begins and (there.head == 0 or (there.last is not None and there.last.data == BEGINS_LATER)):
            there.head = self._begin(coming, there.head)
        on_the_way = label_of(coming.record)._replace(status=ARRIVING, wake_at=None)
        for group in _grouped(self.origin.read(self.run_id, there.head), coming.head):
            last = group[-1]
            label = label_of(coming.record) if last.last_seq == coming.head else on_the_way
            self._write(self.run_id, self.claimed.epoch, group, label)
            self.claimed.renew()
        self._bring_inbox()

    def _begin(self, coming: Survey, head: int) -> int:
        """Let the journal begin at the same snapshot: in the place of what stood before goes a batch that says so."""
        found = self.origin.get_snapshot(self.run_id, coming.begins)
        if found is None or found[0] != coming.begins:
            raise JournalDamaged(f"run {self.run_id!r}: the snapshot at event {coming.begins} is gone", run=self.run_id)
        if head < coming.begins:
            label = label_of(coming.record)._replace(status=ARRIVING, wake_at=None)
            self._write(self.run_id, self.claimed.epoch, [Batch(head, coming.begins, BEGINS_LATER)], label)
        self.target.put_snapshot(self.run_id, coming.begins, found[1], begins=True)
        return coming.begins

    def _bring_inbox(self) -> None:
        inbox = inbox_of(self.run_id)
        missing = missing_of_inbox(self.origin, self.target, self.run_id)
        for group in _grouped(iter(missing), NEWEST):
            self._write(inbox, 0, group, None)

    def _write(self, name: str, epoch: int, group: Sequence[Batch], label: Label | None) -> None:
        last = group[-1]
        write_all(
            self.target, [Write(name, epoch, batch, label if batch is last else None) for batch in group], self._clock
        )
        size = sum(len(batch.data) for batch in group)
        self.written += size
        self._told(size)

    def verify(self, coming: Survey) -> Survey:
        """Read back what the target holds, and compare all of it. Raises `JournalDamaged` if it differs.

        `coming` is a survey from event 0 on, of an origin that may have begun earlier or later than the target's.
        """
        found = survey(self.target, self.run_id, since=coming.begins, upto=coming.head, beat=self.claimed.renew)
        compared = coming
        if found.begins > coming.begins:
            compared = survey(self.origin, self.run_id, since=found.begins, upto=coming.head, beat=self.claimed.renew)
        for what in ("head", "fold", "digest"):
            if getattr(found, what) != getattr(compared, what):
                raise JournalDamaged(
                    f"run {self.run_id!r}: what {self.target.url} gives back differs in its {what} from what "
                    f"{self.origin.url} holds",
                    hint=f"indelible verify {shlex.quote(self.run_id)} --store {shlex.quote(self.target.url)}",
                    run=self.run_id,
                )
        return found

    def reveal(self, arrived: Survey) -> None:
        """Replace the mark by a snapshot of what was verified: the run is there."""
        self.target.put_snapshot(self.run_id, arrived.record.seq, snapshots.encode(arrived.record))
        newest = self.target.get_snapshot(self.run_id, NEWEST)
        if newest is None or marked(newest[1]) is not None:
            raise StaleWriter(f"run {self.run_id!r} is being brought to {self.target.url} by another process as well",
                              hint="run the same command again", run=self.run_id)  # fmt: skip

    def arrive(self, arrived: Survey) -> None:
        """The last word of a move: from here on the run lives in the target, as it stood before."""
        record = arrived.record
        event = ev.RunArrived(self._clock.now(), self.origin.url, record.move, __version__)
        add(self.claimed, arrived, event, self._clock)


def add(claimed: Claimed, at: Survey, event: ev.Event, clock: Clock) -> None:
    """Append one event to a run that is held, with its label, durably; `at` is left as it is."""
    journal = Journal(at.record.chain, at.record.seq, cut_to=at.head if at.torn else 0)
    record: Record = snapshots.decode(at.fold, claimed.run_id, at.record.seq)
    fold(record, journal.append(event), event)
    write_all(claimed.store, [Write(claimed.run_id, claimed.epoch, journal.seal().batch, label_of(record))], clock)


def missing_of_inbox(origin: Origin, target: Store, run_id: str) -> list[Batch]:
    """What people have said to the run that the target does not know. Raises `RunMismatch` if it knows other things."""
    inbox = inbox_of(run_id)
    coming, there = list(origin.read(inbox)), list(target.read(inbox))
    open_inbox(run_id, coming)  # damage is to be found before anything is written
    if coming[: len(there)] != there[: len(coming)]:
        raise RunMismatch(
            f"run {run_id!r}: in {target.url} something was said to it that {origin.url} does not know",
            hint=f"indelible show {shlex.quote(run_id)} --store {shlex.quote(target.url)}",
            run=run_id,
        )
    return coming[len(there) :]


def _grouped(batches: Iterator[Batch], upto: int) -> Iterator[list[Batch]]:
    """As many at once as make one write worth its while, and never more than fits into memory."""
    group: list[Batch] = []
    size = 0
    for batch in batches:
        if batch.last_seq > upto:
            break
        group.append(batch)
        size += len(batch.data)
        if size >= GROUP_BYTES or len(group) >= GROUP_BATCHES:
            yield group
            group, size = [], 0
    if group:
        yield group
