"""The life of a cycle: enter, commit, roll back, park, and the loop that repeats it.

Owns: what is appended when a cycle ends, in which order, and what follows a failure.
Must never: let a part of a cycle's changes become durable without the rest.
Invariant: result, context, new tasks, priorities and "this task is done" stand in one
event; an exception leaves the state as it was and every task in its queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from indelible.core import events as ev
from indelible.core import snapshots
from indelible.core.changes import ERROR, FAILED, retry_changes
from indelible.core.codec import digest, from_plain, pack, to_plain, unpack
from indelible.core.collections import NotDue
from indelible.core.cycle import Entry, Live, Scope
from indelible.core.failures import leaves, placed, stops_the_run, text_of, where_of
from indelible.core.inbox import read_inbox
from indelible.core.perform import CODE, back_on_course, settle_left
from indelible.core.record import COMPLETED, DEEDS, FAILED_CALL, PARKED, RUNNING, Record
from indelible.core.requests import FLUSH, NOW, Append, Call, Drain, Park, Sleep, Steps, StoreCall
from indelible.core.undoing import compensable, standing, undo_all
from indelible.errors import Misuse, StoreUnavailable

MAX_BACKOFF_S = 60.0


def enter(live: Live, driver: Any) -> Steps[Entry]:
    """Begin, or begin again, the open cycle. Nothing is durable yet."""
    if live.entry is not None and live.entry.open:
        raise Misuse(f"run {live.record.run_id} is in a cycle already", hint="leave this cycle first")
    entry = Entry(live, driver)
    entry.must_hold()
    record = live.record
    yield Append(ev.CycleEntered((yield NOW), record.cycle, record.attempt))
    # A task that has become due meanwhile must not be taken in place of the one whose calls are recorded.
    live.workspace.open(record.entered_at)
    live.entry = entry
    return entry


def commit(entry: Entry) -> Steps[None]:
    """Make everything the cycle did hold, now that its actions have ended. Durable when it returns.

    Raises `NotStorable` with the path of the value, and then nothing is committed.
    """
    live, record = entry.live, entry.live.record
    entry.must_hold()
    changes = live.workspace.changes()
    packed = pack(cast(Any, changes))
    at = yield NOW
    try:
        recalled, waited, live.waited = tuple(entry.recalled), live.waited, 0.0
        yield Append(ev.CycleCommitted(at, record.cycle, record.attempt, packed, orphans(entry), len(recalled),
                                       recalled, waited))  # fmt: skip
        live.workspace.settled(changes)
        if entry.result is not None:
            yield Append(ev.RunFinished(at, entry.result))
    except BaseException as error:
        if not isinstance(error, Exception):
            # Interrupted between the two, the run would be kept as one that never ends: let go of it unwritten.
            live.lost = live.lost or f"run {record.run_id} was interrupted in the middle of a commit"
        raise
    yield FLUSH
    yield from keep_snapshot(live)


def orphans(entry: Entry) -> tuple[str, ...]:
    """Deeds of this cycle that this entry never asked for: done, but by no code that still wants them."""
    return tuple(
        call.call for call in entry.live.record.calls.values()
        if call.effect in DEEDS and not call.undoes and not entry.covers(call)
        and (call.status == COMPLETED or call.in_doubt)
    )  # fmt: skip


def keep_snapshot(live: Live) -> Steps[None]:
    """Write a snapshot if the journal has grown enough since the last one."""
    journal = live.journal
    if not snapshots.due(journal.stored_bytes - live.stored_at_snapshot, live.snapshot_size):
        return
    live.record.chain = journal.chain
    data = snapshots.encode(live.record)
    journal.restart_prefix()  # in any case: a write that failed may have landed
    try:
        yield StoreCall("put_snapshot", (live.record.run_id, live.record.seq, data))
    except StoreUnavailable:
        return  # the cycle is committed all the same; the next one tries again
    live.stored_at_snapshot, live.snapshot_size = journal.stored_bytes, len(data)


def roll_back(entry: Entry, error: BaseException) -> Steps[str]:
    """Leave the state as it was, count the attempt, and say whether the cycle was `rolled back`, or `gave up`, or
    is `parked` because an undo must wait.

    Completed actions stay in the journal. Durable when it returns.
    """
    live, record, agent = entry.live, entry.live.record, entry.live.agent
    entry.open = False
    yield Drain(entry.scope)
    taken = live.workspace.taken()
    live.workspace.discard()
    text, where = text_of(error), where_of(error)
    changes, gave_up = retry_changes(record.doc, taken, text, agent.attempts)
    if not taken:
        gave_up = record.attempt >= agent.attempts
    at = yield NOW
    packed = pack(cast(Any, changes))
    if gave_up and compensable(live):
        abandoned = ev.CycleAbandoned(at, record.cycle, record.attempt, text, packed, tuple(entry.recalled), where)
        yield Append(abandoned, durable=True)
        return (yield from finish_abandoned(live, entry.scope.driver))
    left = standing(record) if gave_up else ()
    yield Append(ev.CycleRolledBack(at, record.cycle, record.attempt, text, packed, gave_up, left,
                                    tuple(entry.recalled), where))  # fmt: skip
    live.workspace.settled(changes)
    if gave_up and (not taken or agent.on_failure == "fail"):
        text = placed(text, where)
        yield Append(ev.RunFailed(at, text if taken else text + given_up(record)))
    yield FLUSH
    return "gave up" if gave_up else "rolled back"


def given_up(record: Record) -> str:
    """What may be the cause behind the cause: the last task on a failed list, in words; or nothing."""
    failed = [item for field in record.doc.values() if field[0] == "queue" for item in field[FAILED].values()]
    return f" (tasks given up before: {len(failed)}, the last with {failed[-1][ERROR]})" if failed else ""


def finish_abandoned(live: Live, driver: Any) -> Steps[str]:
    """Undo the deeds of a cycle that was given up, then close it; goes on after a crash. `gave up`, or `parked` if
    an undo must wait: it may call actions that ask, or that end in doubt."""
    record, entry = live.record, Entry(live, driver)
    left: tuple[str, ...] = ()
    signal: Park | None = None
    try:
        left = yield from undo_all(live, entry)
    except BaseException as error:
        signal = next((part for part in leaves(error) if isinstance(part, Park)), None)
        if signal is None:
            raise
    signal = signal or entry.signal or (yield from settle_left(entry))
    if signal is not None:
        yield from park(entry, signal)
        return "parked"
    at = yield NOW
    changes: Any = unpack(record.abandoned_changes)
    text, where = record.abandoned, record.abandoned_at
    yield Append(ev.CycleRolledBack(at, record.cycle, record.attempt, text, record.abandoned_changes, True, left,
                                    tuple(entry.recalled), where))  # fmt: skip
    live.workspace.settled(changes if isinstance(changes, list) else [])
    if not changes or live.agent.on_failure == "fail":
        text = placed(text, where)
        yield Append(ev.RunFailed(at, text if changes else text + given_up(record)))
    yield FLUSH
    return "gave up"


def park(entry: Entry, signal: Park) -> Steps[None]:
    """Suspend the cycle: nothing is committed, its completed actions are kept. Durable."""
    record = entry.live.record
    yield from suspend(entry)
    at = yield NOW
    parked = ev.CycleParked(at, record.cycle, signal.wait, signal.kind, signal.question, signal.wake_at or 0.0,
                            signal.detail, tuple(entry.recalled))  # fmt: skip
    yield Append(parked, durable=True)


def give_up_failures(entry: Entry, raised: list[BaseException]) -> Steps[None]:
    """After `sys.exit`: end the attempt, at no task's expense, if a call has failed in it. Else the next entry would
    be told of that failure by the journal, end in the same way, and never make the call again."""
    record = entry.live.record
    ended = next((error for error in raised if isinstance(error, SystemExit)), None)
    if ended is not None and any(
        call.status == FAILED_CALL and call.attempt == record.attempt for call in record.calls.values()
    ):
        yield Drain(entry.scope)
        at = yield NOW
        yield Append(ev.CycleRolledBack(at, record.cycle, record.attempt, text_of(ended), pack([]),
                                        where=where_of(ended)))  # fmt: skip


def suspend(entry: Entry) -> Steps[None]:
    """Leave the cycle without an outcome, as a crash would, but with everything known made durable."""
    entry.open = False
    yield Drain(entry.scope)
    yield FLUSH


def signal_of(entry: Entry, raised: list[BaseException]) -> Steps[Park | None]:
    """The reason to park: what the cycle raised, alone or in a group; or a signal that did not come through; or a
    deed left in doubt."""
    for error in raised:
        if isinstance(error, Park):
            return error
        if isinstance(error, NotDue):
            return Park(f"due:{entry.scope.nth('due')}", "due", "The next task is not due yet.", error.at)
    entry.open = False
    yield Drain(entry.scope)
    if entry.signal is not None or any(stops_the_run(error) for error in raised):
        return entry.signal
    return (yield from settle_left(entry)) if entry.left else None


def leave(entry: Entry, error: BaseException | None) -> Steps[str]:
    """End a cycle as its body ended: `committed`, `parked`, `rolled back`, `gave up` or `interrupted`.

    An error of Indelible's own, such as a value that cannot be stored, is a fault of the
    program, not of the task: no attempt is counted, so that the run can go on once the code is mended.
    However it ends, also by a cancellation while it is being left, the next cycle can be entered.
    """
    try:
        return (yield from _left(entry, error))
    finally:
        entry.open = False
        if entry.live.workspace.is_open:
            entry.live.workspace.discard()


def _left(entry: Entry, error: BaseException | None) -> Steps[str]:
    raised = [] if error is None else list(leaves(error))
    halted = entry.live.lost or not all(isinstance(part, Exception | Park | NotDue) for part in raised)
    signal = None if halted else (yield from signal_of(entry, raised))
    if signal is not None:
        yield from park(entry, signal)
        if back_on_course(entry, signal):
            at = yield NOW
            yield Append(ev.WaitAnswered(at, entry.live.record.cycle, signal.wait, pack("both"), CODE))
        return "parked"
    if any(stops_the_run(part) for part in raised):
        try:
            if not entry.live.lost:
                yield from give_up_failures(entry, raised)
                yield from suspend(entry)
        except StoreUnavailable:
            pass  # what stopped the run is raised; what waits for the store is written when the run is closed
        return "interrupted"
    if error is None:
        yield from commit(entry)
        return "committed"
    return (yield from roll_back(entry, error))


def wake(live: Live, wait_for_time: bool, stop: Callable[[], bool]) -> Steps[bool]:
    """Whether a parked run can go on: its answer has come, or its time (waited for if asked to)."""
    yield from read_inbox(live)
    wait = live.record.open_wait
    if wait is None:
        return True
    if not wait.wake_at:
        return False
    while wait.wake_at > (now := (yield NOW)):
        if not wait_for_time or stop():
            return False
        yield Sleep(wait.wake_at - now)  # may return early: a signal came, or the clock was set
    yield Append(ev.WaitAnswered(now, live.record.cycle, wait.wait, pack(None), "the clock"))
    return True


def advance(live: Live, driver: Any) -> Steps[str]:
    """One cycle, entered and left. Returns what `leave` returns; raises what may not be retried."""
    record, agent = live.record, live.agent
    if record.abandoned:
        return (yield from finish_abandoned(live, driver))
    if agent.body is None:
        raise Misuse(f"agent {agent.name} has no cycle function", hint="with run.cycle(): ...")
    entry = yield from enter(live, driver)
    error: BaseException | None = None
    try:
        yield Call(agent.body, (live.handle,), {}, entry.scope)
    except GeneratorExit:
        raise
    except BaseException as raised:
        error = raised
    outcome = yield from leave(entry, error)
    if outcome == "interrupted" and error is not None:
        raise error
    return outcome


def pursue(live: Live, driver: Any, wait_for_time: bool, stop: Callable[[], bool]) -> Steps[None]:
    """Cycle after cycle until the run ends, waits for a person, or `stop()` is true between two cycles."""
    record = live.record
    while record.status in (RUNNING, PARKED) and not stop():
        if record.status == PARKED and not (yield from wake(live, wait_for_time, stop)):
            return
        outcome = yield from advance(live, driver)
        if outcome == "rolled back" and live.agent.backoff_s and record.status == RUNNING:
            yield Sleep(min(live.agent.backoff_s * 2 ** min(record.attempt - 2, 60), MAX_BACKOFF_S))


def wait_in(scope: Scope, what: str, signal: Park, types: Any) -> Any:
    """The answer to a wait of this cycle; parks the cycle if there is none yet."""
    scope.must_be_open(what)
    if scope.deed():
        raise Misuse(
            f"{what} was called inside an action that cannot simply be run again",
            hint="call it before the action, or declare the action with approve=True",
        )
    wait = scope.entry.live.record.waits.get(signal.wait)
    if wait is None or not wait.answered:
        raise scope.entry.wait(signal)
    return from_plain(unpack(wait.answer), types, what)


def wait_name(scope: Scope, kind: str, text: str) -> str:
    """The identity of a wait: its cycle, its kind, its text, and how often that was asked for here before.

    With the cycle, so that a late answer to one cycle's question is none to the next one's.
    """
    live = scope.entry.live
    hashed = digest(to_plain(text, live.agent.shape.types))
    nth = scope.nth((kind, hashed))
    return f"{kind}:{digest([live.record.cycle, scope.call, hashed, nth]).hex()[:12]}"
