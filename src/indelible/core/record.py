"""The run as its journal tells it: one value, made only by folding events.

Owns: `Record` and `fold`, the single place where an event gets its meaning.
Must never: need user code, a clock or a store; be changed other than through `fold`.
Invariant: folding the same events gives the same record, whether they come from memory
while the run is live or from a store after a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from indelible.core import events as ev
from indelible.core.changes import FAILED as FAILED_ITEMS
from indelible.core.changes import Doc, apply
from indelible.core.codec import unpack
from indelible.errors import JournalDamaged

RUNNING, PARKED, FINISHED, FAILED, MOVED = "running", "parked", "finished", "failed", "moved"
BUDGET, UNPRICED = "budget", "unpriced"
"""What a run waits for when it has a budget: a larger one; leave to go on without knowing a price."""

INTENDED, COMPLETED, FAILED_CALL, SETTLED_NOT = "intended", "completed", "failed", "settled not"
DEEDS = ("idempotent", "irreversible")
NOBODY = "nobody"
"""Who settles what was never in doubt: an intent is on disk, and the process knows that it did not go on."""


class CallRecord(msgspec.Struct, omit_defaults=True):
    """One call of an action, as far as the journal knows."""

    call: str
    name: str
    effect: str
    cycle: int
    status: str
    attempt: int = 0
    key: str = ""
    args: bytes = b""
    result: bytes = b""
    error: bytes = b""
    unstorable: str = ""
    doubt: str = ""
    source: str = "call"
    business: bool = False
    undoes: str = ""
    within: str = ""
    order: int = 0
    charged: bool = False
    """What it cost is counted already, though it has no outcome yet."""

    @property
    def in_doubt(self) -> bool:
        """An irreversible action with an intent and nothing after it."""
        return self.status == INTENDED and self.effect == "irreversible"


class Wait(msgspec.Struct, omit_defaults=True):
    """What a cycle waits for, and the answer once it is there."""

    wait: str
    kind: str
    question: str
    since: float
    wake_at: float = 0.0
    detail: bytes = b""
    answered: bool = False
    answer: bytes = b""
    by: str = ""


class GivenUp(msgspec.Struct, omit_defaults=True):
    """The cycle that was given up last, kept until the next one begins: a failed run may be taken up again with it."""

    cycle: int
    entered_at: float
    calls: dict[str, CallRecord]
    waits: dict[str, Wait]
    values: dict[str, bytes]
    standing: list[tuple[str, int]]
    """The tasks (field, id) it had taken, if deeds of it still stand."""


class Usage(msgspec.Struct, omit_defaults=True):
    """What calls cost, summed. Calls whose price is unknown are counted, not priced at zero."""

    calls: int = 0
    recalled: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0
    unpriced: int = 0


class Record(msgspec.Struct):
    """Everything that is known about a run without running any of its code."""

    run_id: str
    seq: int = 0
    chain: bytes = b""
    agent: str = ""
    version: int = 0
    fingerprint: str = ""
    objective: bytes = b""
    started_at: float = 0.0
    updated_at: float = 0.0
    status: str = RUNNING
    result: bytes = b""
    error: str = ""
    doc: dict[str, Any] = msgspec.field(default_factory=dict)
    unknown_fields: dict[str, Any] = msgspec.field(default_factory=dict)
    cycle: int = 1
    attempt: int = 1
    entered_at: float = 0.0
    entries: int = 0
    committed: int = 0
    claims: int = 0
    abandoned: str = ""
    abandoned_changes: bytes = b""
    abandoned_at: str = ""
    calls: dict[str, CallRecord] = msgspec.field(default_factory=dict)
    keyed: dict[str, CallRecord] = msgspec.field(default_factory=dict)
    loose: dict[str, CallRecord] = msgspec.field(default_factory=dict)
    doubts: dict[str, bool] = msgspec.field(default_factory=dict)
    """The calls that are in doubt, kept apart so that nobody has to look for them among all others."""
    waits: dict[str, Wait] = msgspec.field(default_factory=dict)
    values: dict[str, bytes] = msgspec.field(default_factory=dict)
    waiting: str = ""
    notices: list[str] = msgspec.field(default_factory=list)
    given_up: GivenUp | None = None
    standing: list[tuple[str, int]] = msgspec.field(default_factory=list)
    """Tasks (field, id) given up in earlier cycles whose deeds still stand: done again, they would repeat them."""
    inbox_seq: int = 0
    unknown_events: int = 0
    usage: Usage = msgspec.field(default_factory=Usage)
    budget: float | None = None
    """What the run may spend in all, in US dollars."""
    budget_given: float | None = None
    """What its caller gave last; a person may have set another one since."""
    costs: dict[str, float] = msgspec.field(default_factory=dict)
    """The most that a call has cost, by action; 0 if one has returned and none told of any cost."""
    unpriced: dict[str, str] = msgspec.field(default_factory=dict)
    """Actions that had a call whose price is not known, and the model that it named."""
    let_unpriced: list[str] = msgspec.field(default_factory=list)
    """Those of them that a person lets go on."""
    moved_to: str = ""
    """If the status is `moved`: where it is, by which move ("": this is a copy for reading), and how it stood."""
    move: str = ""
    stood: str = ""

    def find(self, call: str) -> CallRecord | None:
        """The call of that identity, in the open cycle or under a business key."""
        return self.calls.get(call) or self.keyed.get(call)

    def in_doubt(self) -> list[CallRecord]:
        """Every irreversible action that has an intent and no outcome."""
        known = (self.calls.get(call) or self.keyed.get(call) or self.loose.get(call) for call in self.doubts)
        return [call for call in known if call is not None]

    @property
    def failed_tasks(self) -> int:
        """How many tasks its queues have given up."""
        return sum(len(field[FAILED_ITEMS]) for field in self.doc.values() if field[0] == "queue")

    @property
    def open_wait(self) -> Wait | None:
        """What the run waits for, if it is parked."""
        return self.waits.get(self.waiting) if self.status == PARKED else None


def fold(record: Record, seq: int, event: ev.Event) -> None:
    """Let the event of that seq have its effect on the record, in place."""
    record.seq = seq
    record.updated_at = event.at
    _FOLDS[type(event)](record, event)


def _started(r: Record, e: ev.RunStarted) -> None:
    r.agent, r.version, r.fingerprint = e.agent, e.version, e.fingerprint
    r.objective, r.started_at = e.objective, e.at
    r.doc = _doc(e.doc)


def _claimed(r: Record, _: ev.RunClaimed) -> None:
    r.claims += 1


def _budgeted(r: Record, e: ev.RunBudgeted) -> None:
    r.budget = r.budget_given = e.usd
    wait = r.open_wait
    if wait is not None and wait.kind == BUDGET:
        wait.answered, wait.by = True, e.by
        r.status, r.waiting = RUNNING, ""


def _put(r: Record, call: CallRecord) -> CallRecord:
    call.order = r.seq
    (r.keyed if call.business else r.calls)[call.call] = call
    return call


def _intended(r: Record, e: ev.ActionIntended) -> None:
    if e.effect == "irreversible":
        r.doubts[e.call] = True
    _put(r, CallRecord(e.call, e.name, e.effect, e.cycle, INTENDED, e.attempt, e.key, e.args,
                       business=e.business, undoes=e.undoes, within=e.within))  # fmt: skip


def _resolved(r: Record, call: str) -> None:
    r.doubts.pop(call, None)
    loose = r.loose.pop(call, None)
    if loose is not None and r.given_up is not None and loose.cycle == r.given_up.cycle:
        r.given_up.calls[call] = loose


def _known(r: Record, call: str) -> CallRecord | None:
    return r.calls.get(call) or r.keyed.get(call) or r.loose.get(call)


def _completed(r: Record, e: ev.ActionCompleted) -> None:
    if e.source == "call" or e.usage:  # before the call can be seen to be over: then it is counted
        _count(r, e.name, e.usage, returned=True)
    call = _known(r, e.call) or _put(
        r, CallRecord(e.call, e.name, e.effect, e.cycle, COMPLETED, business=e.business, within=e.within)
    )
    call.status, call.result, call.source, call.unstorable = COMPLETED, e.result, e.source, e.unstorable
    call.cycle = e.cycle
    call.error = b""
    if call.undoes:
        r.keyed.pop(call.undoes, None)  # what was taken back may be done again under its key
    _resolved(r, e.call)
    if e.source == "call":
        return
    if e.source == "policy":
        r.notices.append(f"The action {e.name} ({e.call}) is assumed to have happened, by policy.")
    else:
        r.notices.append(f"The action {e.name} ({e.call}) was found to have happened, by its probe.")


def _failed(r: Record, e: ev.ActionFailed) -> None:
    known = _known(r, e.call)
    refused = known is None and e.effect in DEEDS  # a deed without an intent was not called
    if not refused and not (known is not None and known.charged):
        _count(r, e.name, e.usage)
    call = known or _put(r, CallRecord(e.call, e.name, e.effect, e.cycle, FAILED_CALL, business=e.business))
    call.status, call.error, call.attempt, call.cycle = FAILED_CALL, e.error, e.attempt, e.cycle
    _resolved(r, e.call)


def _count(r: Record, name: str, usage: bytes, returned: bool = False) -> None:
    r.usage.calls += 1
    if not usage and returned:
        r.costs.setdefault(name, 0.0)
    if usage:
        found: Any = unpack(usage)
        if isinstance(found, dict):
            r.usage.tokens_in += found.get("tokens_in") or 0
            r.usage.tokens_out += found.get("tokens_out") or 0
            usd = found.get("usd")
            if usd is None:
                r.usage.unpriced += 1
                r.unpriced[name] = str(found.get("model") or "")
            else:
                r.usage.usd += usd
                r.costs[name] = max(usd, r.costs.get(name, 0.0))


def _charged(r: Record, e: ev.ActionCharged) -> None:
    _count(r, e.name, e.usage)
    call = _known(r, e.call)
    if call is not None:
        call.charged = True


def _doubted(r: Record, e: ev.ActionDoubted) -> None:
    call = _known(r, e.call)
    if call is not None:
        call.doubt = e.reason


def _settled(r: Record, e: ev.ActionSettled) -> None:
    call = _known(r, e.call)
    r.inbox_seq = max(r.inbox_seq, e.inbox_seq)
    if call is None:
        return
    if e.happened:
        call.status, call.result, call.source = COMPLETED, e.result, e.by
    else:
        call.status = SETTLED_NOT
    _resolved(r, e.call)
    _answer_doubt(r, e.call)
    if e.by == NOBODY:
        return
    what = "happened" if e.happened else "did not happen"
    r.notices.append(f"The action {e.name} ({e.call}) was in doubt; {e.by} settled that it {what}.")


def _answer_doubt(r: Record, call: str) -> None:
    wait = r.waits.get(f"doubt:{call}")
    if wait is not None:
        wait.answered = True
        if r.waiting == wait.wait:
            r.status, r.waiting = RUNNING, ""


def _value(r: Record, e: ev.ValueRecorded) -> None:
    r.values[e.slot] = e.value


def _entered(r: Record, e: ev.CycleEntered) -> None:
    r.entered_at = r.entered_at or e.at
    r.entries += 1
    if r.given_up is not None:
        r.standing += r.given_up.standing
        r.given_up = None


def _parked(r: Record, e: ev.CycleParked) -> None:
    r.usage.recalled += len(e.recalls)
    r.waits[e.wait] = Wait(e.wait, e.kind, e.question, e.at, e.wake_at, e.detail)
    r.status, r.waiting = PARKED, e.wait


def _answered(r: Record, e: ev.WaitAnswered) -> None:
    r.inbox_seq = max(r.inbox_seq, e.inbox_seq)
    wait = r.waits.get(e.wait)
    if wait is None:
        return
    wait.answered, wait.answer, wait.by = True, e.answer, e.by
    if wait.kind == "due":
        r.entered_at = 0.0  # what was waited for is due at the next entry only
    elif wait.kind == BUDGET:
        r.budget = cast(float, unpack(e.answer))
    elif wait.kind == UNPRICED and unpack(e.answer) == "yes":
        r.let_unpriced.append(cast(dict[str, str], unpack(wait.detail))["action"])
    if r.waiting == e.wait:
        r.status, r.waiting = RUNNING, ""


def _inbox(r: Record, e: ev.InboxRead) -> None:
    r.inbox_seq = max(r.inbox_seq, e.inbox_seq)


def _committed(r: Record, e: ev.CycleCommitted) -> None:
    changes: Any = unpack(e.changes)
    if not isinstance(changes, list):
        raise JournalDamaged(f"run {r.run_id}: event {r.seq} carries no list of changes", hint="indelible verify RUN")
    apply(r.doc, changes)
    r.committed += 1
    r.usage.recalled += e.recalled
    _close_cycle(r)


def _close_cycle(r: Record) -> None:
    for call in r.calls.values():
        if call.in_doubt:
            r.loose[call.call] = call
    r.calls, r.waits, r.values = {}, {}, {}
    r.cycle, r.attempt, r.abandoned, r.abandoned_at = r.cycle + 1, 1, "", ""
    r.entered_at, r.entries = 0.0, 0
    r.abandoned_changes = b""
    r.status, r.waiting = RUNNING, ""
    r.notices = []


def _abandoned(r: Record, e: ev.CycleAbandoned) -> None:
    r.usage.recalled += len(e.recalls)
    r.abandoned, r.abandoned_at, r.abandoned_changes = e.error or "abandoned", e.where, e.changes


def _rolled_back(r: Record, e: ev.CycleRolledBack) -> None:
    r.usage.recalled += len(e.recalls)
    changes: Any = unpack(e.changes)
    if isinstance(changes, list) and changes:
        apply(r.doc, changes)
    if e.gave_up:
        notices = r.notices
        listed: list[Any] = changes if isinstance(changes, list) and e.orphaned else []
        failed = [(name, rest[0]) for name, op, *rest in listed if op == "fail"]
        calls = {name: call for name, call in r.calls.items() if not call.in_doubt}
        r.given_up = GivenUp(r.cycle, r.entered_at, calls, r.waits, r.values, failed)
        _close_cycle(r)
        r.notices = notices
    else:
        r.attempt += 1


def _migrated(r: Record, e: ev.StateMigrated) -> None:
    r.version, r.fingerprint = e.new, e.fingerprint
    r.doc = _doc(e.doc)
    unknown: Any = unpack(e.unknown)
    if isinstance(unknown, dict):
        r.unknown_fields = {**r.unknown_fields, **unknown}


def _finished(r: Record, e: ev.RunFinished) -> None:
    r.status, r.result, r.waiting = FINISHED, e.result, ""


def _run_failed(r: Record, e: ev.RunFailed) -> None:
    r.status, r.error, r.waiting = FAILED, e.error, ""


def _reopened(r: Record, e: ev.RunReopened) -> None:
    changes: Any = unpack(e.changes)
    if not isinstance(changes, list):
        raise JournalDamaged(f"run {r.run_id}: event {r.seq} carries no list of changes", hint="indelible verify RUN")
    apply(r.doc, changes)
    r.status, r.error, r.attempt = RUNNING, "", 1
    if r.failed_tasks:
        r.notices.append(f"Tasks that stay given up, for what they have done still stands: {r.failed_tasks}.")
    last, r.given_up = r.given_up, None
    if last is None:
        return
    r.cycle, r.entered_at, r.values = last.cycle, last.entered_at, last.values
    r.waits = {name: wait for name, wait in last.waits.items() if not _refused(wait)}
    loose = {name: call for name, call in r.loose.items() if call.cycle == last.cycle}
    r.loose = {name: call for name, call in r.loose.items() if name not in loose}
    r.calls = _not_undone(last.calls | loose)
    for call in (*r.calls.values(), *r.keyed.values()):
        if call.status == FAILED_CALL:
            call.attempt = 0  # not of this attempt, whose number is the first one's again: it is called again


def _relocated(r: Record, e: ev.RunMoved | ev.RunArrived) -> None:
    if isinstance(e, ev.RunMoved):
        r.status, r.stood, r.moved_to, r.move = MOVED, r.status, e.to, e.move
    elif r.status == MOVED and r.move == e.move:
        r.status, r.stood, r.moved_to, r.move = r.stood, "", "", ""


def _refused(wait: Wait) -> bool:
    return wait.kind == "approve" and wait.answered and unpack(wait.answer) != "yes"


def _not_undone(calls: dict[str, CallRecord]) -> dict[str, CallRecord]:
    """Without the deeds that were taken back, the undos, and what either had called: those are to be done anew."""
    undone = {call.undoes for call in calls.values() if call.undoes and call.status == COMPLETED}

    def stands(step: CallRecord | None) -> bool:
        while step is not None:
            if step.undoes or step.call in undone:
                return False
            step = calls.get(step.within)
        return True

    return {name: call for name, call in calls.items() if stands(call)}


def _unknown(r: Record, _: ev.Unknown) -> None:
    r.unknown_events += 1


def _misplaced(r: Record, e: ev.Event) -> None:
    raise JournalDamaged(
        f"run {r.run_id}: event {r.seq} is a {ev.kind_of(e)}, which belongs in an inbox", hint="indelible verify RUN"
    )


def _doc(packed: bytes) -> Doc:
    doc: Any = unpack(packed)
    if not isinstance(doc, dict):
        raise JournalDamaged("the journal holds a state that is no document", hint="indelible verify RUN")
    return cast(Doc, doc)


_FOLDS: dict[type[ev.Event], Callable[[Record, Any], None]] = {
    ev.RunStarted: _started,
    ev.RunClaimed: _claimed,
    ev.ActionIntended: _intended,
    ev.ActionCompleted: _completed,
    ev.ActionFailed: _failed,
    ev.ActionDoubted: _doubted,
    ev.ActionSettled: _settled,
    ev.ActionCharged: _charged,
    ev.ValueRecorded: _value,
    ev.CycleEntered: _entered,
    ev.CycleParked: _parked,
    ev.WaitAnswered: _answered,
    ev.InboxRead: _inbox,
    ev.CycleCommitted: _committed,
    ev.CycleAbandoned: _abandoned,
    ev.CycleRolledBack: _rolled_back,
    ev.StateMigrated: _migrated,
    ev.RunFinished: _finished,
    ev.RunFailed: _run_failed,
    ev.RunReopened: _reopened,
    ev.RunBudgeted: _budgeted,
    ev.RunMoved: _relocated,
    ev.RunArrived: _relocated,
    ev.Unknown: _unknown,
    ev.Answer: _misplaced,
    ev.Settlement: _misplaced,
}
