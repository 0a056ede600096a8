"""Compensation: undoing the deeds of a cycle that was given up.

Owns: which deeds can be undone, and in which order.
Must never: undo a deed twice without its record saying so, or let one failing undo stop
the others.
Invariant: each undo is itself a recorded action, so a crash in the middle goes on where it was.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from indelible.core import events as ev
from indelible.core.actions import Effect, Spec
from indelible.core.codec import from_plain, pack, unpack
from indelible.core.cycle import Entry, Live, Scope
from indelible.core.failures import describe
from indelible.core.record import COMPLETED, DEEDS, FAILED_CALL, INTENDED, CallRecord, Record
from indelible.core.requests import NOW, Append, Call, Called, Steps
from indelible.core.usage import used
from indelible.errors import StaleWriter, StoreUnavailable


def compensable(live: Live) -> list[tuple[CallRecord, Spec]]:
    """The open cycle's completed deeds that declare an undo, last one first."""
    found = []
    for call in live.record.calls.values():
        spec = live.actions.get(call.name) or live.resolve(call.name)
        if call.status == COMPLETED and not _of_an_undo(live.record, call) and spec is not None and spec.undo:
            found.append((call, spec))
    found += [
        (call, spec) for call in live.record.keyed.values()
        if call.cycle == live.record.cycle and call.status == COMPLETED and not call.undoes
        and (spec := live.actions.get(call.name) or live.resolve(call.name)) is not None and spec.undo is not None
    ]  # fmt: skip
    return sorted(found, key=lambda pair: -pair[0].order)


def standing(record: Record) -> tuple[str, ...]:
    """The open cycle's deeds that were done, or may have been: what is left of it in the world if it is given up."""
    return tuple(sorted(
        call.call for call in record.calls.values()
        if call.effect in DEEDS and not call.undoes
        and (_may_have_happened(call) or (call.status == COMPLETED and not _of_an_undo(record, call)))
    ))  # fmt: skip


def _may_have_happened(call: CallRecord) -> bool:
    """An irreversible call in doubt; or an idempotent one without a result, whose failure proves nothing."""
    return call.in_doubt or (call.effect == Effect.IDEMPOTENT and call.status in (INTENDED, FAILED_CALL))


def _of_an_undo(record: Record, call: CallRecord) -> bool:
    """True if the call is an undo, or an action that an undo called."""
    step: CallRecord | None = call
    while step is not None and not step.undoes:
        step = record.find(step.within) if step.within else None
    return step is not None


def undo_all(live: Live, entry: Entry) -> Steps[tuple[str, ...]]:
    """Run every undo that has no recorded completion; returns the deeds that still stand."""
    left, record = set(standing(live.record)), live.record
    # The cycle's own deeds are what is undone: no undo is expected to ask for them.
    entry.claimed.update(call.call for call in record.calls.values() if not _of_an_undo(record, call))
    for call, spec in compensable(live):
        done = live.record.find(f"undo:{call.call}")
        if done is None or done.status != COMPLETED:
            undone = yield from _undo(live, entry.scope, call, spec)
        else:
            undone = True
        entry.claimed.add(f"undo:{call.call}")
        if undone:
            left.discard(call.call)
        else:
            left.add(call.call)  # one with a business key is not among the cycle's own
    return tuple(sorted(left))


def _undo(live: Live, scope: Scope, call: CallRecord, spec: Spec) -> Steps[bool]:
    undo = spec.undo
    assert undo is not None
    record, name = live.record, f"undo:{spec.name}"
    given = _arguments(undo, call, spec)
    at = yield NOW
    intent = ev.ActionIntended(at, record.cycle, record.attempt, f"undo:{call.call}", name, Effect.IDEMPOTENT, call.key,
                               call.args, undoes=call.call)  # fmt: skip
    yield Append(intent, durable=True)
    child = scope.child(f"undo:{call.call}", Effect.IDEMPOTENT)
    try:
        called: Called = yield Call(undo, (), given, child)
    except Exception as error:
        if isinstance(error, StaleWriter | StoreUnavailable):
            raise  # no fault of the undo: it is run when the run goes on
        at = yield NOW
        yield Append(ev.ActionFailed(at, record.cycle, record.attempt, f"undo:{call.call}", name, Effect.IDEMPOTENT,
                                     describe(error), usage=pack(child.usage) if child.usage else b""),
                     durable=True)  # fmt: skip
        return False
    usage = used(child, called.value)
    done = ev.ActionCompleted(called.at, record.cycle, f"undo:{call.call}", name, Effect.IDEMPOTENT, pack(None),
                              called.took, usage=pack(usage) if usage else b"")  # fmt: skip
    yield Append(done, durable=True)
    return True


def _arguments(undo: Callable[..., Any], call: CallRecord, spec: Spec) -> dict[str, Any]:
    """What the undo asks for by name: the action's arguments, its `result`, its `key`."""
    stored = unpack(call.args) if call.args else {}
    offered: dict[str, Any] = {}
    if isinstance(stored, dict):
        offered = {name: from_plain(value, spec.types, f"{spec.name}({name})") for name, value in stored.items()}
    offered |= {"result": from_plain(unpack(call.result), spec.types) if call.result else None, "key": call.key}
    parameters = inspect.signature(undo).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return offered
    return {name: value for name, value in offered.items() if name in parameters}
