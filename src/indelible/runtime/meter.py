"""What a run has written and what its calls have cost, read from its journal.

Owns: `Meter` and the one pass over a journal that fills it.
Must never: claim or change a run; count a call again because its cycle was entered again, its run was taken up or
tried again, or its journal was read again.
Invariant: a call counts where the fold of `core.record` counts it, when its outcome or its cost is recorded; so the
sums over all actions are what `Record.usage` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from indelible.core import events as ev
from indelible.core import snapshots
from indelible.core.changes import MAP_ENTRIES, Doc
from indelible.core.codec import pack, unpack
from indelible.core.journal import Batch, Torn, read_all
from indelible.core.record import Usage, fold
from indelible.core.recovery import NEWEST
from indelible.errors import IndelibleError
from indelible.runtime.beginnings import Beginning, beginning
from indelible.stores.base import Store


@dataclass(slots=True)
class FieldUse:
    """What one field of the state has cost in changes. Sizes are bytes before compression."""

    kind: str = ""
    """`plain`, `log`, `map` or `queue`."""
    changes: int = 0
    bytes: int = 0
    rewrites: int = 0
    """How often a value was replaced as a whole: a plain field set, a key of a map put again, an item of a log set."""
    rewritten_bytes: int = 0
    largest: int = 0
    """The largest value that replaced another one, and `last`, the latest."""
    last: int = 0
    held_bytes: int = 0
    """What the field holds now."""


@dataclass(slots=True)
class ActionUse:
    """What the calls of one action have cost, and what the journal has saved by answering them again.

    `usd` is the sum of the known prices; `unpriced` calls reported a use whose price is not known. `seconds` are of
    calls that returned, with those of actions called in them. The same holds for what was saved.
    """

    effect: str = ""
    calls: int = 0
    failed: int = 0
    recalled: int = 0
    """Calls that were answered from the journal."""
    args_bytes: int = 0
    """Of deeds; a repeatable action's arguments are not kept."""
    result_bytes: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0
    unpriced: int = 0
    seconds: float = 0.0
    saved_tokens: int = 0
    saved_usd: float = 0.0
    saved_unpriced: int = 0
    saved_seconds: float = 0.0


PRUNED = "(pruned)"
"""Stands for all actions before the beginning of a journal."""
_ADDED = tuple(name for name in ActionUse.__slots__ if name != "effect")


@dataclass(slots=True)
class Meter:
    """What a run, or several, have written and what their calls have cost. Sizes in bytes, times in seconds."""

    run_id: str
    agent: str = ""
    runs: int = 1
    events: int = 0
    cycles: int = 0
    """Those that were committed."""
    raw_bytes: int = 0
    """The events before compression."""
    batches: list[int] = field(default_factory=list)
    """The stored size of every durable write of events, in order."""
    snapshots: list[tuple[int, int]] = field(default_factory=list)
    """Every snapshot that was due: how many batches stood before it, and its size, by making it again."""
    kept_snapshot_bytes: int = 0
    """Of those that are in the store now."""
    waited_s: float = 0.0
    """In which a durable write was under way, up to the last commit of each process."""
    fields: dict[str, FieldUse] = field(default_factory=dict)
    actions: dict[str, ActionUse] = field(default_factory=dict)
    pruned: int = 0
    """The events that are no longer there; of what they cost, the sums are kept, under the action `PRUNED`."""
    notices: list[str] = field(default_factory=list)
    """What could not be read, and where; the rest is counted."""

    @property
    def writes(self) -> int:
        """Durable writes of events, each a transaction of its own or a part of one."""
        return len(self.batches)

    @property
    def stored_bytes(self) -> int:
        """The batches as the store keeps them."""
        return sum(self.batches)

    @property
    def snapshot_bytes(self) -> int:
        """Of all snapshots that were due."""
        return sum(size for _, size in self.snapshots)

    @property
    def calls(self) -> ActionUse:
        """The sum over all actions."""
        return _sum(self.actions.values())


def measured(store: Store, run_id: str) -> Meter:
    """The meter of a run that is in the store. Of a damaged journal what can be read is counted, and `notices` tell."""
    try:
        begun = beginning(store, run_id)
    except IndelibleError as error:
        return Meter(run_id, notices=[f"{error.what}; nothing of the run is counted"])
    reading = _Reading(begun)
    meter = reading.meter
    source = reading.stored(begun.batches)
    try:
        for opened in read_all(reading.reader, source):
            if isinstance(opened, Torn):
                meter.notices.append(f"{opened.error.what}; it is left out")
                break
            meter.raw_bytes += opened.raw_bytes
            reading.batch(opened.after_seq, opened.events, opened.stored_bytes)
    except IndelibleError as error:
        meter.notices.append(f"{error.what}; what follows it is left out")
    for _ in source:
        pass  # it was written, whatever it holds
    record = reading.record
    meter.agent, meter.events, meter.cycles = record.agent, record.seq, record.committed
    for name, held in record.doc.items():
        reading.field(name, held[0]).held_bytes = len(pack(held))
    found = store.get_snapshot(run_id, NEWEST)
    while found is not None:
        meter.kept_snapshot_bytes += len(found[1])
        found = store.get_snapshot(run_id, found[0] - 1)
    return meter


def total(meters: Iterable[Meter]) -> Meter:
    """All of them as one; fields and actions are named with their agent."""
    whole = Meter("", runs=0)
    for meter in meters:
        whole.runs += meter.runs
        whole.events += meter.events
        whole.cycles += meter.cycles
        whole.raw_bytes += meter.raw_bytes
        whole.snapshots += [(len(whole.batches) + before, size) for before, size in meter.snapshots]
        whole.batches += meter.batches
        whole.kept_snapshot_bytes += meter.kept_snapshot_bytes
        whole.waited_s += meter.waited_s
        whole.pruned += meter.pruned
        whole.notices += meter.notices
        prefix = f"{meter.agent}." if meter.agent else ""
        for name, use in meter.actions.items():
            so_far = whole.actions.get(prefix + name, ActionUse())
            whole.actions[prefix + name] = _sum([so_far, use], use.effect)
        for name, part in meter.fields.items():
            sums = whole.fields.setdefault(prefix + name, FieldUse(part.kind))
            for column in ("changes", "bytes", "rewrites", "rewritten_bytes", "held_bytes"):
                setattr(sums, column, getattr(sums, column) + getattr(part, column))
            sums.largest, sums.last = max(sums.largest, part.largest), part.last
    return whole


def _sum(uses: Iterable[ActionUse], effect: str = "") -> ActionUse:
    whole = ActionUse(effect)
    for use in uses:
        for column in _ADDED:
            setattr(whole, column, getattr(whole, column) + getattr(use, column))
    return whole


@dataclass(slots=True)
class _Paid:
    """What a call had cost, for the case that the journal answers it once more."""

    name: str
    cost: Usage
    seconds: float
    business: bool


class _Reading:
    """One pass over one journal."""

    def __init__(self, begun: Beginning) -> None:
        self.record = begun.record
        self.meter = Meter(begun.record.run_id, pruned=begun.seq)
        self.reader = begun.reader()
        self._paid: dict[str, _Paid] = {}
        self._since_snapshot, self._last_snapshot = 0, begun.snapshot_size
        if begun.seq:
            self._before(begun.record.usage)
            self.meter.notices.append(
                f"run {begun.record.run_id!r}: events 1 to {begun.seq} were pruned; of them, "
                "only the sums of calls, tokens and money are counted"
            )

    def _before(self, usage: Usage) -> None:
        """What was used before the beginning. By which actions, nobody can tell any more."""
        use = self._action(PRUNED)
        use.calls, use.recalled = usage.calls, usage.recalled
        use.tokens_in, use.tokens_out = usage.tokens_in, usage.tokens_out
        use.usd, use.unpriced = usage.usd, usage.unpriced

    def stored(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The same, with each one's size noted."""
        for batch in batches:
            self.meter.batches.append(len(batch.data))
            yield batch

    def batch(self, after_seq: int, events: list[ev.Event], stored_bytes: int) -> None:
        """Count what one durable write held."""
        for offset, event in enumerate(events):
            self._event(after_seq + 1 + offset, event)
        self._since_snapshot += stored_bytes
        committed = any(isinstance(event, ev.CycleCommitted) for event in events)
        if committed and snapshots.due(self._since_snapshot, self._last_snapshot):
            self.record.chain = self.reader.chain
            self._last_snapshot, self._since_snapshot = len(snapshots.encode(self.record)), 0
            self.meter.snapshots.append((len(self.meter.batches), self._last_snapshot))

    def field(self, name: str, kind: str) -> FieldUse:
        return self.meter.fields.setdefault(name, FieldUse(kind))

    def _event(self, seq: int, event: ev.Event) -> None:
        match event:
            case ev.ActionCompleted() | ev.ActionFailed() | ev.ActionCharged():
                self._outcome(seq, event)
                return
            case ev.ActionIntended():
                self._action(event.name, event.effect).args_bytes += len(event.args)
            case ev.CycleCommitted():
                self.meter.waited_s += event.waited
                self._changes(event.changes)
            case ev.CycleRolledBack() | ev.RunReopened():
                self._changes(event.changes)
        for call in getattr(event, "recalls", ()):
            self._recalled(call)
        fold(self.record, seq, event)
        if isinstance(event, ev.CycleCommitted):
            # Nothing of it can be asked for any more, but what has a key that is good for the whole run.
            self._paid = {call: paid for call, paid in self._paid.items() if paid.business}

    def _action(self, name: str, effect: str = "") -> ActionUse:
        use = self.meter.actions.setdefault(name, ActionUse())
        use.effect = effect or use.effect
        return use

    def _outcome(self, seq: int, event: ev.ActionCompleted | ev.ActionFailed | ev.ActionCharged) -> None:
        """The fold decides whether, and as what, it counts: its share is what it adds to nothing."""
        before, self.record.usage = self.record.usage, Usage()
        fold(self.record, seq, event)
        cost, self.record.usage = self.record.usage, before
        before.calls += cost.calls
        before.tokens_in += cost.tokens_in
        before.tokens_out += cost.tokens_out
        before.usd += cost.usd
        before.unpriced += cost.unpriced
        use = self._action(event.name)
        use.calls += cost.calls
        use.tokens_in += cost.tokens_in
        use.tokens_out += cost.tokens_out
        use.usd += cost.usd
        use.unpriced += cost.unpriced
        if isinstance(event, ev.ActionCharged):
            self._paid[event.call] = _Paid(event.name, cost, 0.0, False)
            return
        use.effect = event.effect
        use.seconds += event.took
        if isinstance(event, ev.ActionCompleted):
            use.result_bytes += len(event.result)
        else:
            use.failed += cost.calls
            use.result_bytes += len(event.error)
        if event.call not in self._paid or cost.calls:
            self._paid[event.call] = _Paid(event.name, cost, event.took, event.business)

    def _recalled(self, call: str) -> None:
        paid = self._paid.get(call)
        use = self._action(paid.name if paid else call.rpartition("-")[0])
        use.recalled += 1
        if paid is not None:
            use.saved_tokens += paid.cost.tokens_in + paid.cost.tokens_out
            use.saved_usd += paid.cost.usd
            use.saved_unpriced += paid.cost.unpriced
            use.saved_seconds += paid.seconds

    def _changes(self, packed: bytes) -> None:
        doc: Doc = self.record.doc
        changes: Any = unpack(packed)
        for change in changes if isinstance(changes, list) else ():
            name, op, *args = change
            if name not in doc:
                continue  # the fold will refuse it
            kind = doc[name][0]
            use = self.field(name, kind)
            use.changes += 1
            use.bytes += len(pack(change))
            again = kind != "map" or pack(args[0]) in doc[name][MAP_ENTRIES]
            if op == "set" or (op == "put" and again):
                use.rewrites += 1
                use.last = len(pack(args[-1]))
                use.largest = max(use.largest, use.last)
                use.rewritten_bytes += use.last
