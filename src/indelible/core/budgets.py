"""A run's budget: what it may spend, and whether the next call still fits in.

Owns: what a budget may be, the check before a call, and what calls under way are expected to cost.
Must never: take an unknown price for nothing, count a recorded result, or hold up a call that is known to be free.
Invariant: when a call is let through, what is spent, what the calls under way are expected to cost, and what it is
itself expected to cost are together within the budget.

The expected cost of a call is the action's declared one, else the largest that a call of that action had in this run,
else nothing. So that N calls at once of an action that was never called cannot pass the budget together, the first one
goes alone where the others can wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from indelible.core import events as ev
from indelible.core.actions import Effect, Spec
from indelible.core.codec import pack, unpack
from indelible.core.cycle import Live, Scope
from indelible.core.record import BUDGET, COMPLETED, FAILED_CALL, UNPRICED, Record
from indelible.core.requests import NOW, Alone, Append, Enter, Park, Steps
from indelible.errors import BudgetExceeded, Misuse

ROUNDING = 1e-9
"""The share of a budget that sums of floats may be off by: three calls of 0.1 fit into 0.3."""

CALLER = "the caller"
DECLARED = "its cost_usd="
"""Who sets a budget when a run is opened, and who answers that a price is known by now."""


class Reserved(NamedTuple):
    """What a call under way is expected to cost, and what the journal had of it when it began."""

    name: str
    usd: float
    before: tuple[str, int, int] | None


def checked(value: Any, hint: str = "budget_usd=5") -> float:
    """The budget as a number of US dollars. Raises `Misuse` unless it is a finite number above zero."""
    number = money(value)
    if not number:
        shown = f"{value!a:.40}" if isinstance(value, int | float) else type(value).__name__
        raise Misuse(f"a budget is a finite number of US dollars above 0, not {shown}", hint=hint)
    return number


def money(value: Any) -> float | None:
    """A finite number of US dollars from 0 up; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def must_suit(record: Record, value: Any) -> float:
    """The budget that answers a run which waits for one: in total, so above what is spent. Raises `Misuse`."""
    spent = record.usage.usd
    hint = f"indelible answer {record.run_id} --budget {_suggested(spent, record.budget or 0.0)}"
    number = checked(value, hint)
    if number <= spent:
        raise Misuse(
            f"run {record.run_id!r} has spent {dollars(spent)} already; a budget is for the whole run, "
            f"so {dollars(number)} would allow nothing",
            hint=hint,
            run=record.run_id,
        )
    return number


def suits(record: Record, value: Any) -> bool:
    """Whether `must_suit` lets it pass."""
    number = money(value)
    return number is not None and number > record.usage.usd


def at_opening(live: Live, given: float | None) -> Steps[None]:
    """Take in the budget that the caller gives, if it is another than last time; a person may have set a third one
    meanwhile, and that one stays. Let go on what waits for a price that is declared by now. Durable with the next
    write."""
    record = live.record
    if given is not None and given != record.budget_given:
        yield Append(ev.RunBudgeted((yield NOW), given, CALLER))
    wait = record.open_wait
    if wait is None or wait.kind != UNPRICED:
        return
    detail: Any = unpack(wait.detail)
    spec = live.resolve(str(detail.get("action")))
    if spec is not None and spec.cost_usd is not None:
        yield Append(ev.WaitAnswered((yield NOW), record.cycle, wait.wait, pack(spec.cost_usd), DECLARED))


def counted(spec: Spec, reported: dict[str, Any] | None, clean: bool = False) -> dict[str, Any] | None:
    """What a call is to be counted as: what it reported; and what the action declares, where it reported no price.

    `clean`: it is certain that nothing happened, so nothing is assumed.
    """
    if spec.cost_usd is None or clean or (reported is not None and reported["usd"] is not None):
        return reported
    so_far = reported or {"tokens_in": 0, "tokens_out": 0, "model": ""}
    return {**so_far, "usd": spec.cost_usd, "declared": True}


def within_budget(spec: Spec, child: Scope, steps: Steps[Any], keyed: bool) -> Steps[Any]:
    """Perform the call that `steps` are, if it fits into the budget.

    Raises `Park` if a person must decide, and inside an irreversible action, which cannot simply be entered again,
    `BudgetExceeded`; nothing has been called then, and there is no intent.
    """
    live, call = child.entry.live, child.call
    # Whoever waits here holds nothing that a call under way could want: no keyed action, and no action around it.
    patient = not keyed and child.parent is not None and not child.parent.call
    leave = yield Enter(_gate(call))
    try:
        while (verdict := (yield Alone(partial(_reserve, live, spec, call, patient)))) is not None:
            if isinstance(verdict, Park):
                raise _refusal(child, verdict)
            waited: Callable[[], None] | None = yield Enter(_gate(verdict), must=False)
            patient = waited is not None
            if waited is not None:
                waited()
        return (yield from steps)
    finally:
        live.reserved.pop(call, None)
        leave()


def _gate(call: str) -> str:
    return f"\0{call}"  # no keyed action is called so


def _reserve(live: Live, spec: Spec, call: str, patient: bool) -> Park | str | None:
    """Put aside what the call may cost, and return None; or the call whose end is to be waited for; or why not."""
    record, name = live.record, spec.name
    budget, expected = record.budget, spec.cost_usd
    if budget is None:
        return None
    unknown = expected is None and name in record.unpriced
    if unknown and name not in record.let_unpriced:
        return _ask_unpriced(record, name, budget)
    if expected is None:
        expected = record.costs.get(name)
    if expected != 0 or unknown:
        # Before what is recorded: of a call that ends meanwhile both may be counted, but never neither.
        under_way = [
            (other, held) for other, held in list(live.reserved.items()) if not _is_recorded(record, other, held)
        ]
        alike = [other for other, held in under_way if held.name == name]
        if expected is None and alike and patient:
            return alike[0]
        waiting = sum(held.usd for _, held in under_way)
        spent = record.usage.usd
        if not _fits(spent + waiting, expected or 0.0, budget):
            if patient and waiting and _fits(spent, expected or 0.0, budget):
                return next(other for other, held in under_way if held.usd)
            return _ask_more(record, call, name, expected, waiting, spent)
    live.reserved[call] = Reserved(name, expected or 0.0, _known(record, call))
    return None


def _fits(spent: float, expected: float, budget: float) -> bool:
    slack = budget * ROUNDING
    return spent < budget - slack and spent + expected <= budget + slack


def _known(record: Record, call: str) -> tuple[str, int, int] | None:
    found = record.find(call)
    return None if found is None else (found.status, found.attempt, found.cycle)


def _is_recorded(record: Record, call: str, held: Reserved) -> bool:
    """True if what the call did cost is in what is spent."""
    now = _known(record, call)
    return now is not None and now != held.before and now[0] in (COMPLETED, FAILED_CALL)


def _refusal(child: Scope, park: Park) -> BaseException:
    scope = child.parent
    while scope is not None:
        if scope.effect == Effect.IRREVERSIBLE:
            run_id = child.entry.live.record.run_id
            return BudgetExceeded(
                f"{child.call} was called inside an irreversible action, in the middle of which nothing can wait. "
                f"{park.question}",
                hint=f"indelible resume {run_id} AGENT.py:{child.entry.live.agent.name} --budget USD   "
                "# or @action(cost_usd=...) on the outer action, which is then checked before it begins",
                run=run_id,
            )
        scope = scope.parent
    return child.entry.wait(park)


def _ask_more(record: Record, call: str, name: str, expected: float | None, waiting: float, spent: float) -> Park:
    budget = record.budget or 0.0
    cost = f"is expected to cost {dollars(expected)}" if expected is not None else "has no known cost yet"
    others = f", calls under way are expected to cost {dollars(waiting)}" if waiting else ""
    command = f"indelible answer {record.run_id} --budget {_suggested(spent + waiting + (expected or 0.0), budget)}"
    detail: dict[str, Any] = {
        "action": name, "spent": spent, "under_way": waiting, "expected": expected, "budget": budget,
    }  # fmt: skip
    return Park(
        f"budget:{call}:{budget!r}",
        BUDGET,
        f"The next call of {name} {cost}; {dollars(spent)} of the budget of {dollars(budget)} is spent{others}. "
        f"To let the run go on, give it a larger budget: {command}",
        detail=pack(detail),
    )


def _ask_unpriced(record: Record, name: str, budget: float) -> Park:
    model = record.unpriced[name]
    detail: dict[str, Any] = {"action": name, "model": model, "spent": record.usage.usd, "budget": budget}
    return Park(
        f"unpriced:{name}",
        UNPRICED,
        f"The price of a call of {name} ({f'model {model}' if model else 'no model was named'}) is not known, and the "
        f"run has a budget of {dollars(budget)}. Declare @action(cost_usd=...) on {name} and resume the run, or let it "
        f"go on with such calls counted as unpriced and not as spent: indelible answer {record.run_id} yes",
        detail=pack(detail),
    )


def dollars(usd: float) -> str:
    """Money in a sentence: two digits behind the point, and more where they say something."""
    whole, _, part = f"{usd:.6f}".partition(".")
    return f"${whole}.{part.rstrip('0').ljust(2, '0')}"


def _suggested(needed: float, budget: float) -> str:
    """A round budget that leaves room: twice what there is or is needed, in two digits."""
    return f"{2 * max(needed, budget) or 1.0:.2g}"
