"""A run, read from its journal as a course.

Owns: which events make a loop, and what a run's changes are as JSON Patch.
Must never: change a run, or need the agent's code.
Invariant: applying the patches gives the JSON form of the state as the journal's fold has it.

A loop is a committed cycle, with all that was recorded since the commit before: attempts that were rolled back, waits,
answers. A field of the state is in JSON what it holds: a log is a list (its summary beside it, as "<field>.summary"), a
map an object, a queue an object of its waiting and its failed items by id.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from time import process_time
from typing import Any

from indelible.bill.course import Course, Loop
from indelible.bill.document import Operation
from indelible.bill.jsonform import QUEUE, fields_of, patch_of, replaced
from indelible.bill.retelling import record_of
from indelible.core import events as ev
from indelible.core.changes import Doc
from indelible.core.codec import unpack
from indelible.core.journal import Journal, Opened, Torn, read_all, seed
from indelible.core.record import DEEDS, Record, fold
from indelible.core.recovery import NEWEST
from indelible.errors import UnknownRun
from indelible.runtime.beginnings import beginning
from indelible.runtime.runstore import RunStore


@dataclass(slots=True)
class _Open:
    """What has been recorded since the last commit."""

    records: list[bytes] = field(default_factory=list)
    patch: list[Operation] = field(default_factory=list)
    decision: bool = False
    usd: list[float | None] = field(default_factory=list)
    tokens: int = 0
    took_s: list[float] = field(default_factory=list)

    def loop(self) -> Loop:
        known = [usd for usd in self.usd if usd is not None]
        usd = math.fsum(known) if len(known) == len(self.usd) else None
        return Loop(tuple(self.records), tuple(self.patch), self.decision, usd, self.tokens, math.fsum(self.took_s))


def read(store: RunStore, run_id: str) -> Course:
    """The course of a run, and what it has written as stored. Raises `UnknownRun`, `JournalDamaged`.

    Of snapshots, of which a store keeps the newest two, those that are kept are told. If no call reported what it
    used, the money of every loop with a call in it is unknown, and a notice says so.
    """
    notices: list[str] = []
    batches: list[Opened] = []
    begun = beginning(store.store, run_id)
    telling = _Telling(begun.record)
    for opened in read_all(begun.reader(), begun.batches):
        if isinstance(opened, Torn):
            notices.append(f"{opened.error.what}; it is left out")
        else:
            batches.append(opened)
    if not batches and not begun.seq:
        raise UnknownRun(f"there is no run {run_id!r} in {store.url}", hint="indelible ls", run=run_id)
    for opened in batches:
        for offset, event in enumerate(opened.events):
            telling.take(opened.after_seq + 1 + offset, event)
    loops = telling.ended()
    if telling.calls and not telling.reported:
        notices.append(f"no call of run {run_id!r} reported what it used (`indelible.usage`): its money is unknown")
    if not loops:
        since = " since" if begun.seq else " yet"
        notices.append(f"run {run_id!r} has committed no cycle{since}")
    return Course(run_id, telling.record.agent, telling.start, loops, tuple(b.stored_bytes for b in batches),
                  _snapshots(store, run_id), tuple(notices), _sealing_s(run_id, batches))  # fmt: skip


class _Telling:
    """Events in, loops out."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.start: dict[str, Any] = fields_of(record.doc) if record.seq else {}
        self.calls = self.reported = 0
        self._loops: list[_Open] = []
        self._open = _Open()

    def take(self, seq: int, event: ev.Event) -> None:
        now, record = self._open, self.record
        now.records.append(record_of(event))
        now.decision |= getattr(event, "effect", "") in DEEDS
        if isinstance(event, ev.ActionCompleted | ev.ActionFailed | ev.ActionCharged):
            self._count(event)
        before: Doc = record.doc
        if isinstance(event, ev.CycleCommitted | ev.CycleRolledBack | ev.RunReopened):
            self._change(unpack(event.changes))
        fold(record, seq, event)
        if isinstance(event, ev.RunStarted):
            self.start = fields_of(record.doc)
        elif isinstance(event, ev.StateMigrated):
            now.patch += replaced(before, record.doc)
        elif isinstance(event, ev.CycleCommitted):
            self._loops.append(now)
            self._open = _Open()

    def ended(self) -> tuple[Loop, ...]:
        """All loops. What came after the last commit belongs to the last one."""
        if self._loops:
            last, rest = self._loops[-1], self._open
            last.records += rest.records
            last.patch += rest.patch
            last.decision |= rest.decision
            last.usd += rest.usd
            last.tokens += rest.tokens
            last.took_s += rest.took_s
            self._open = _Open()
        if not self.reported:
            for loop in self._loops:
                loop.usd = [None] * bool(loop.took_s)
        return tuple(loop.loop() for loop in self._loops)

    def _change(self, changes: Any) -> None:
        doc, now = self.record.doc, self._open
        now.decision |= any(doc[change[0]][0] == QUEUE for change in changes)
        now.patch += patch_of(doc, changes)

    def _count(self, event: ev.ActionCompleted | ev.ActionFailed | ev.ActionCharged) -> None:
        """A call's money, tokens and seconds. What a call took inside another one is in the other's seconds."""
        if isinstance(event, ev.ActionCompleted) and event.source != "call" and not event.usage:
            return
        self.calls += 1
        if not isinstance(event, ev.ActionCharged) and not getattr(event, "within", ""):
            self._open.took_s.append(event.took)
        usage: Any = unpack(event.usage) if event.usage else None
        if isinstance(usage, dict):
            self.reported += 1
            self._open.usd.append(usage.get("usd"))
            self._open.tokens += (usage.get("tokens_in") or 0) + (usage.get("tokens_out") or 0)


def _snapshots(store: RunStore, run_id: str) -> tuple[int, ...]:
    sizes: list[int] = []
    at_most = NEWEST
    while (found := store.store.get_snapshot(run_id, at_most)) is not None:
        at_most = found[0] - 1
        sizes.insert(0, len(found[1]))
    return tuple(sizes)


def _sealing_s(run_id: str, batches: list[Opened]) -> float:
    """The processor time to encode these batches again, each with the same events."""
    journal = Journal(seed(run_id))
    began = process_time()
    for opened in batches:
        for event in opened.events:
            journal.append(event)
        journal.seal()
        journal.landed()
    return process_time() - began
