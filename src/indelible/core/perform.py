"""Performing one action: find it in the journal, or call it and record what came of it.

Owns: the order of intent, call and completion.
Must never: call an idempotent or irreversible action whose intent is not on disk, or
call an irreversible one again without knowing that it did not happen.
Invariant: whatever yield the process dies at, the next entry finds a state of the journal
from which `decide` gives the right verdict.
"""

from __future__ import annotations

from typing import Any

from indelible.core import events as ev
from indelible.core.actions import (
    Effect,
    Found,
    Happened,
    NotHappened,
    OnDoubt,
    Probed,
    Spec,
    UnknownAnswer,
    Verdict,
    call_id,
    decide,
    keyed_id,
)
from indelible.core.budgets import counted, within_budget
from indelible.core.codec import Plain, digest, from_plain, pack, to_plain, unpack
from indelible.core.costs import Where
from indelible.core.cycle import Entry, Scope
from indelible.core.failures import describe, rebuild, stops_the_run, text_of
from indelible.core.record import COMPLETED, FAILED_CALL, INTENDED, NOBODY, SETTLED_NOT, CallRecord
from indelible.core.requests import FLUSH, NOW, Append, Call, Called, ControlSignal, Enter, Entropy, Park, Sleep, Steps
from indelible.core.usage import passed, used
from indelible.errors import DidNotHappen, IndelibleError, LeaseLost, Misuse, NotStorable

PATIENCE_S = (0.0,) * 16 + (0.01, 0.04, 0.15)
"""How long a deed that seems to diverge waits for other tasks and threads of its cycle to ask for what was done."""

MAX_DETOURS = 100
CODE = "the code itself"
"""Who answers that nothing has diverged, and how often in one cycle."""

NONE = pack(None)


class Attempt:
    """One call being performed: everything that is fixed before the journal is asked."""

    __slots__ = ("args", "business", "call", "entry", "kwargs", "nth", "plain", "scope", "spec", "token", "what")

    def __init__(self, scope: Scope, spec: Spec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.scope, self.entry, self.spec = scope, scope.entry, spec
        self.args, self.kwargs = args, kwargs
        types = spec.types
        self.plain: dict[str, Plain] = {
            name: to_plain(value, types, spec.name, "(", name, ")")
            for name, value in spec.arguments(args, kwargs).items()
        }
        self.business, self.what, self.nth = "", (spec.name, b""), 0
        self.token = object()  # stands for this call to the end of the cycle, which its arguments need not see
        if spec.key is not None:
            self.business = _business_key(spec, args, kwargs)
            self.call = keyed_id(spec.name, self.business)
            return
        self.what = (spec.name, digest(self.plain))
        while True:
            self.nth = scope.nth(self.what)
            self.call = self.identity(self.nth)
            if self.entry.hold(self.call, self.token):
                return

    def identity(self, nth: int) -> str:
        """The identity of the nth such call where this one stands."""
        return call_id(self.scope.call or str(self.entry.live.record.cycle), *self.what, nth)

    def give_back(self) -> None:
        """This call has no outcome, so the next such call in this entry is this one made again."""
        if not self.business:
            self.entry.let_go(self.identity(self.nth))
            self.scope.give_back(self.what, self.nth)

    def become(self, nth: int) -> bool:
        """Be the nth such call in place of this one, if no other call of this entry is."""
        if not self.entry.hold(call := self.identity(nth), self.token):
            return False
        self.give_back()
        self.call, self.nth = call, nth
        return True

    @property
    def packed(self) -> bytes:
        """The arguments as they are kept; a repeatable action's are not, so they are packed when asked for."""
        return pack(self.plain)


def perform(scope: Scope, spec: Spec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps[Any]:
    """One call of an action: its recorded result, or the outcome of calling it.

    For an idempotent or irreversible action the intent is durable before the call, and the
    completion before this returns. Raises what the action raised; `NotStorable` before any
    call if an argument cannot be kept; `Park` if a person must decide.
    """
    scope.must_be_open(f"action {spec.name}")
    scope.entry.live.know(spec)
    attempt = Attempt(scope, spec, args, kwargs)
    if not attempt.business:
        try:
            if spec.is_deed or scope.entry.live.record.find(attempt.call) is not None:
                return (yield from _settle(attempt))
            # What the table says of what was never asked for; by far the most calls, so without looking it up.
            scope.entry.claimed.add(attempt.call)
            return (yield from _call(attempt, ""))
        except BaseException as error:
            if stops_the_run(error):
                attempt.give_back()
            raise
    within = scope.calls()
    if attempt.call in within:
        raise Misuse(f"action {spec.name} calls itself with the same key", hint="give the inner call a key of its own")
    leave = yield Enter(attempt.call, within)
    try:
        return (yield from _settle(attempt))
    finally:
        leave()


def _business_key(spec: Spec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    assert spec.key is not None
    key = spec.key(*args, **kwargs)
    if not isinstance(key, str) or not key:
        raise Misuse(
            f"the key of action {spec.name} must be a non-empty text, not {type(key).__name__}",
            hint='@action(key=lambda order: f"charge-{order.id}")',
        )
    if not key.isascii() and key != key.encode("utf-8", "replace").decode():
        raise Misuse(
            f"the key of action {spec.name} holds half of a character pair",
            hint='@action(key=lambda order: f"charge-{order.id}")  # an id, not a text that was cut',
        )
    return key


def _settle(a: Attempt) -> Steps[Any]:
    """Walk the decision table until it says take, raise, call or park."""
    record = a.entry.live.record.find(a.call)
    if record is None and a.spec.effect is Effect.IRREVERSIBLE:
        record = yield from _unclaimed(a)
        if record is not None:
            a.call = record.call
    a.entry.claimed.add(a.call)
    found = _found(a, record)
    if found in (Found.OLD_FAILURE, Found.SETTLED_NOT) and not a.business and (twin := _made_again(a)) is not None:
        record, found = twin, _found(a, twin)
        a.entry.claimed.add(a.call)
    if found in (Found.NOTHING, Found.OLD_FAILURE) and a.spec.approve:
        yield from _approval(a)
    probed, answer = Probed.NOT_ASKED, UnknownAnswer()
    while True:
        # A deed in doubt stays one, whatever the code calls its effect by now.
        effect = Effect.IRREVERSIBLE if record is not None and record.in_doubt else a.spec.effect
        verdict = decide(effect, found, probed, a.spec.on_doubt)
        if verdict is Verdict.TAKE and record is not None:
            a.entry.recalled.append(a.call)
            return _take(a, record)
        if verdict is Verdict.RAISE and record is not None:
            a.entry.recalled.append(a.call)
            raise rebuild(record.error, a.spec.name)
        if verdict is Verdict.CALL or record is None:
            return (yield from _call(a, record.key if record else ""))
        if verdict is Verdict.PROBE:
            probed, answer = yield from _probe(a, record.key)
        elif verdict is Verdict.CALL_SAME_KEY:
            if record.in_doubt:
                yield from _settled_not(a, record, probed)
            return (yield from _call(a, record.key))
        elif verdict is Verdict.TAKE_PROBED:
            return (yield from _record_happened(a, answer, probed))
        elif verdict is Verdict.ASSUME_HAPPENED:
            return (yield from _record_happened(a, Happened(), probed))
        else:
            raise _doubt(a, answer)


def _found(a: Attempt, record: CallRecord | None) -> Found:
    if record is None:
        return Found.NOTHING
    if record.status == COMPLETED:
        return Found.COMPLETION
    if record.status == FAILED_CALL:
        live = a.entry.live.record
        same = record.attempt == live.attempt and (not record.business or record.cycle == live.cycle)
        return Found.FAILURE if same else Found.OLD_FAILURE
    return Found.SETTLED_NOT if record.status == SETTLED_NOT else Found.INTENT


def _made_again(a: Attempt) -> CallRecord | None:
    """The same call made again in an earlier attempt, after this one had failed there: it stands for this one."""
    nth = a.nth + 1
    while (record := a.entry.live.record.find(a.identity(nth))) is not None:
        if record.status in (COMPLETED, INTENDED) and a.become(nth):
            return record
        nth += 1
    return None


def _failed_key(a: Attempt) -> str:
    """The key of such a call that failed just before: this one may be its retry, and the other side must know."""
    before = a.entry.live.record.find(a.identity(a.nth - 1)) if a.nth and not a.business else None
    return before.key if before is not None and before.status == FAILED_CALL else ""


def _take(a: Attempt, record: CallRecord) -> Any:
    if record.unstorable:
        raise NotStorable(f"{a.spec.name} was done, but its result could not be kept: {record.unstorable}")
    result = from_plain(unpack(record.result or NONE), a.spec.types, a.spec.name, "() result")
    passed(a.scope, result)
    return result


def _call(a: Attempt, key: str) -> Steps[Any]:
    """Call the function, if that fits into the run's budget."""
    child = a.scope.child(a.call, a.spec.effect)
    steps = _called(a, child, key)
    return steps if a.entry.live.record.budget is None else within_budget(a.spec, child, steps, bool(a.business))


def _called(a: Attempt, child: Scope, key: str) -> Steps[Any]:
    """Call the function, with its intent on disk first if it is a deed."""
    entry, spec, live = a.entry, a.spec, a.entry.live
    kwargs = a.kwargs
    if spec.is_deed:
        at = yield NOW
        live.workspace.check_storable()
        if not key:
            key = a.business or _failed_key(a) or (yield Entropy(16)).hex()
        kwargs = spec.with_key(kwargs, key)
        intent = ev.ActionIntended(at, live.record.cycle, live.record.attempt, a.call, spec.name, spec.effect, key,
                                   a.packed, bool(a.business), within=a.scope.call)  # fmt: skip
        # The store checks the epoch in this append, so nothing is called by a writer that was fenced off.
        try:
            yield Append(intent, durable=True)
        except (GeneratorExit, LeaseLost):
            raise
        except BaseException:
            # The write failed, or a cancellation came with it: whatever the disk holds, nothing was called.
            yield Append(ev.ActionSettled(at, live.record.cycle, a.call, spec.name, False, NOBODY))
            raise
        entry.must_hold()
    try:
        called: Called = yield Call(spec.fn, a.args, kwargs, child)
    except GeneratorExit:
        raise
    except ControlSignal:
        yield from _charge(a, child)
        raise
    except Exception as error:
        return (yield from _raised(a, child, error, key))
    except BaseException as error:
        if spec.effect is Effect.IRREVERSIBLE:
            entry.left[a.call] = a
            at = yield NOW
            yield Append(ev.ActionDoubted(at, live.record.cycle, a.call, spec.name, text_of(error)))
        yield from _charge(a, child, cut_off=spec.effect is not Effect.IRREVERSIBLE)
        raise
    finally:
        child.ended = True
    yield from _completed(a, child, called)
    return called.value


def _completed(a: Attempt, child: Scope, called: Called) -> Steps[None]:
    live, spec, unstorable = a.entry.live, a.spec, None
    try:
        result = pack(to_plain(called.value, spec.types, spec.name, "() result"))
    except NotStorable as error:
        if not spec.is_deed:
            used(child, called.value, (*a.args, *a.kwargs.values()))
            yield from _charge(a, child, cut_off=True)
            raise
        # The deed is done whatever its result looks like, and must be known as done.
        result, unstorable = NONE, error
    usage = counted(spec, used(child, called.value, (*a.args, *a.kwargs.values())))
    usd = usage["usd"] if usage is not None else 0.0  # None: it cost something, and nobody knows how much
    where = Where(live.journal.seq, live.journal.durable_seq, live.commit_cost_s)
    worth = spec.is_deed or live.rule.due(called.at, called.took, usd, where)
    worth = worth or (live.record.budget is not None and usd != 0)  # what a crash forgets would be spent beyond it
    event = ev.ActionCompleted(called.at, live.record.cycle, a.call, spec.name, spec.effect, result,
                               called.took, usage=pack(usage) if usage else b"", business=bool(a.business),
                               unstorable=unstorable.what if unstorable else "", within=a.scope.call)  # fmt: skip
    yield Append(event, durable=worth)
    if unstorable:
        raise unstorable


def _charge(a: Attempt, child: Scope, cut_off: bool = False) -> Steps[None]:
    """Record what a call cost that has no outcome, as far as it is known. If it was `cut_off`, what it declares is
    taken for what it has not told."""
    cost = counted(a.spec, child.usage, clean=not (cut_off or child.usage))
    if not cost:
        return
    live = a.entry.live
    at = yield NOW
    yield Append(ev.ActionCharged(at, live.record.cycle, a.call, a.spec.name, pack(cost)))
    live.reserved.pop(a.call, None)
    if cost["usd"] != 0:
        try:
            yield FLUSH
        except IndelibleError:
            pass  # what ended the call is raised


def _raised(a: Attempt, child: Scope, error: Exception, key: str) -> Steps[Any]:
    """Record what an action raised. An irreversible one is in doubt unless it failed cleanly."""
    spec, record = a.spec, a.entry.live.record
    at = yield NOW
    cost = counted(spec, child.usage, clean=spec.effect is Effect.IRREVERSIBLE)
    clean = isinstance(error, (DidNotHappen, *spec.fails_cleanly))
    if spec.effect is Effect.IRREVERSIBLE and not clean:
        cost = None  # it is charged as long as it is in doubt
    failed: ev.Event = ev.ActionFailed(
        at, record.cycle, record.attempt, a.call, spec.name, spec.effect, describe(error),
        usage=pack(cost) if cost else b"", business=bool(a.business),
    )  # fmt: skip
    if spec.effect is not Effect.IRREVERSIBLE:
        if stops_the_run(error):  # it would be raised again by the journal on every resume
            yield from _charge(a, child, cut_off=True)
        else:
            yield Append(failed, durable=cost is not None and cost["usd"] != 0)
        raise error
    if not clean:
        yield Append(ev.ActionDoubted(at, record.cycle, a.call, spec.name, text_of(error)))
    if not clean or stops_the_run(error):
        yield from _charge(a, child)
    if stops_the_run(error):  # the same: what is known of the deed is that it did not happen
        failed = ev.ActionSettled(at, record.cycle, a.call, spec.name, False, NOBODY)
    if clean:
        yield Append(failed, durable=True)
        raise error
    probed, answer = yield from _probe(a, key)
    if probed is Probed.HAPPENED:
        return (yield from _record_happened(a, answer, probed))
    if probed is Probed.DID_NOT_HAPPEN or spec.on_doubt is OnDoubt.ASSUME_NOT:
        yield Append(failed, durable=True)
        raise error
    if spec.on_doubt is OnDoubt.ASSUME_HAPPENED:
        return (yield from _record_happened(a, Happened(), probed))
    raise _doubt(a, answer) from error


def _probe(a: Attempt, key: str) -> Steps[tuple[Probed, Any]]:
    """Ask the world. A probe that fails or answers anything else leaves the doubt."""
    spec = a.spec
    if spec.probe is None:
        return Probed.MISSING, UnknownAnswer("it has no probe")
    kwargs = {**a.kwargs, "key": key} if spec.wants_key else a.kwargs
    try:
        # Outside the run: a probe must see the world as it is, never a recorded answer.
        called: Called = yield Call(spec.probe, a.args, kwargs, None)
    except Exception as error:
        return Probed.UNKNOWN, UnknownAnswer(f"its probe failed: {text_of(error)}")
    answer = called.value
    if isinstance(answer, Happened):
        return Probed.HAPPENED, answer
    if isinstance(answer, NotHappened):
        return Probed.DID_NOT_HAPPEN, answer
    if isinstance(answer, UnknownAnswer):
        return Probed.UNKNOWN, answer
    return Probed.UNKNOWN, UnknownAnswer(
        f"its probe returned {type(answer).__name__}; it must return happened(...), did_not_happen() or unknown(...)"
    )


def _record_happened(a: Attempt, answer: Any, probed: Probed) -> Steps[Any]:
    """Record that the action happened though its own return was never seen."""
    spec, unstorable = a.spec, ""
    source = "probe" if probed is Probed.HAPPENED else "policy"
    try:
        result = pack(to_plain(answer.result, spec.types, f"the result its probe gave for {spec.name}()"))
    except NotStorable as error:
        result, unstorable = NONE, error.what
    known = a.entry.live.record.find(a.call)
    at, cost = (yield NOW), counted(spec, None, clean=known is not None and known.charged)
    event = ev.ActionCompleted(at, a.entry.live.record.cycle, a.call, spec.name, spec.effect, result, source=source,
                               usage=pack(cost) if cost else b"", business=bool(a.business),
                               unstorable=unstorable)  # fmt: skip
    yield Append(event, durable=True)
    if unstorable:
        raise NotStorable(f"{spec.name} happened, but its result could not be kept: {unstorable}")
    return answer.result


def settle_left(entry: Entry) -> Steps[Park | None]:
    """Before the cycle ends: ask about the deeds that this entry left in doubt, such as one cut off by a time limit
    that the cycle has caught. A reason to park if a person must be asked."""
    for a in [left for left in entry.left.values() if isinstance(left, Attempt)]:
        record = entry.live.record.find(a.call)
        if record is None or not record.in_doubt:
            continue
        probed, answer = yield from _probe(a, record.key)
        verdict = decide(a.spec.effect, Found.INTENT, probed, a.spec.on_doubt)
        if verdict is Verdict.CALL_SAME_KEY:
            yield from _settled_not(a, record, probed)
        elif verdict is Verdict.PARK:
            return _doubt(a, answer)
        else:
            try:
                yield from _record_happened(a, answer if probed is Probed.HAPPENED else Happened(), probed)
            except NotStorable:
                pass  # recorded; whoever asks for its result is told
    return None


def _settled_not(a: Attempt, record: CallRecord, probed: Probed) -> Steps[None]:
    by = "its probe" if probed is Probed.DID_NOT_HAPPEN else "policy"
    at = yield NOW
    yield Append(ev.ActionSettled(at, record.cycle, a.call, a.spec.name, False, by), durable=True)


def _doubt(a: Attempt, answer: Any) -> Park:
    a.entry.left[a.call] = a
    why = f" ({answer.reason})" if isinstance(answer, UnknownAnswer) and answer.reason else ""
    record = a.entry.live.record.find(a.call)
    so_far = f"It ended with {record.doubt[:200]}" if record is not None and record.doubt else "Its intent is recorded"
    return Park(
        f"doubt:{a.call}",
        "doubt",
        f"Did {a.spec.name} happen? {so_far}, its outcome is not known{why}.",
        detail=pack({"call": a.call}),
    )


def _others(a: Attempt) -> list[CallRecord]:
    """The deeds of that name done on an earlier entry that this entry has not asked for, so far."""
    # A copy: other threads perform actions of this cycle as well.
    return [
        call for call in list(a.entry.live.record.calls.values())
        if call.name == a.spec.name and call.effect == Effect.IRREVERSIBLE and not call.undoes
        and call.status in (COMPLETED, INTENDED) and not a.entry.covers(call)
    ]  # fmt: skip


def _unclaimed(a: Attempt) -> Steps[CallRecord | None]:
    """If an earlier entry did a deed of that name which this one has not asked for, the world and the code have
    diverged, unless another task or thread of this cycle is about to ask. Park until a person says which holds."""
    record = a.entry.live.record
    wait = record.waits.get(f"diverged:{a.call}")
    for pause in PATIENCE_S if wait is None or not wait.answered else ():
        if not _others(a):
            return None
        yield Sleep(pause)
    others = _others(a)
    if not others:
        return None
    if wait is None or not wait.answered:
        a.entry.astray[f"diverged:{a.call}"] = a
        raise a.entry.wait(Park(
            f"diverged:{a.call}",
            "diverged",
            f"The code now wants another {a.spec.name} than the one already done in this cycle. Answer 'recorded' to "
            f"take the one that was done in its place, or 'both' to do the new one as well.",
            detail=pack({"recorded": [other.args for other in others], "wanted": a.packed}),
        ))  # fmt: skip
    return others[0] if unpack(wait.answer) == "recorded" else None


def back_on_course(entry: Entry, signal: Park) -> bool:
    """True if this entry is to wait because of deeds it had not asked for, and by its end has asked for them all."""
    a = entry.astray.get(signal.wait)
    if not isinstance(a, Attempt) or _others(a):
        return False
    # A call whose arguments differ at every entry would go on for ever: then a person must look.
    return sum(wait.by == CODE for wait in entry.live.record.waits.values()) < MAX_DETOURS


def _approval(a: Attempt) -> Steps[None]:
    record = a.entry.live.record
    wait = record.waits.get(f"approve:{a.call}")
    if wait is None or not wait.answered:
        raise a.entry.wait(Park(f"approve:{a.call}", "approve", f"May {a.spec.name} be done? Answer 'yes' or 'no'.",
                                detail=pack({"wanted": a.packed})))  # fmt: skip
    if unpack(wait.answer) == "yes":
        return
    error = DidNotHappen(f"{a.spec.name} was not approved by {wait.by}")
    at = yield NOW
    failed = ev.ActionFailed(at, record.cycle, record.attempt, a.call, a.spec.name, a.spec.effect, describe(error),
                             business=bool(a.business))  # fmt: skip
    yield Append(failed, durable=True)
    raise error
