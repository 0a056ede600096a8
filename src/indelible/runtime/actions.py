"""The `@action` decorator and what can be said from inside or about an action.

Owns: the callable that stands in place of the user's function, and the words a probe answers with.
Must never: call an irreversible function outside a run unless asked to on purpose.
Invariant: a decorated `def` stays a `def`, a decorated `async def` stays one.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Generic, Literal, ParamSpec, TypeVar, cast, overload

from indelible.core.actions import Effect, Happened, NotHappened, OnDoubt, ProbeAnswer, Spec, UnknownAnswer
from indelible.core.budgets import money
from indelible.core.codec import GENERIC
from indelible.core.cycle import Scope
from indelible.core.perform import perform
from indelible.drive import aio, blocking
from indelible.drive.context import current, is_astray
from indelible.errors import Misuse

P = ParamSpec("P")
R = TypeVar("R")

EffectName = Literal["repeatable", "idempotent", "irreversible"]
OnDoubtName = Literal["ask", "assume_happened", "assume_not"]

_declared: dict[tuple[str, str], Spec] = {}


def resolve(name: str) -> Spec | None:
    """The action declared under that name in this process.

    If there are several, and one can be undone, it is one whose undo says that it cannot be told which is meant.
    """
    found = [spec for spec in _declared.values() if spec.name == name]
    if len(found) == 1:
        return found[0]
    return _ambiguous(name, found) if any(spec.undo for spec in found) else None


def _ambiguous(name: str, found: list[Spec]) -> Spec:
    listed = " and ".join(f"{spec.fn.__module__}.{spec.fn.__qualname__}" for spec in found)

    def undo() -> None:
        raise Misuse(
            f"the undo was not run: several actions are called {name}: {listed}",
            hint=f'@action(name="another_{name}")',
        )

    spec = Spec(undo, name, Effect.IRREVERSIBLE, undo=undo)
    spec.hints, spec.types = {}, GENERIC  # what it returns cannot be told either, so any result fits
    return spec


class Action(Generic[P, R]):
    """A function declared as an action. Call it as before; inside a cycle it is recorded."""

    def __init__(self, spec: Spec) -> None:
        functools.update_wrapper(cast(Callable[..., Any], self), spec.fn)
        self.spec = spec
        _declared[spec.fn.__module__, spec.fn.__qualname__] = spec
        if spec.is_async:
            _mark_async(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        scope = current.get()
        if scope is None:
            if is_astray():
                raise Misuse(
                    f"action {self.spec.name} was called in a thread that does not know the run, which could not "
                    f"record it",
                    hint=f"pool.submit(contextvars.copy_context().run, {self.spec.name}, ...)  # "
                    f"or {self.spec.name}.unrecorded(...), if it is no part of a run",
                )
            if self.spec.effect is Effect.IRREVERSIBLE:
                raise Misuse(
                    f"the irreversible action {self.spec.name} was called outside a run, where nothing can record it",
                    hint=f"{self.spec.name}.unrecorded(...)  # to do it all the same, on purpose",
                )
            return self.unrecorded(*args, **kwargs)
        if self.spec.is_async:
            return cast(R, self._perform_async(scope, args, kwargs))
        with scope.driver.busy():
            return cast(R, blocking.drive(scope.driver, perform(scope, self.spec, args, kwargs)))

    async def _perform_async(self, scope: Scope, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with scope.driver.busy():
            return await aio.drive(scope.driver, perform(scope, self.spec, args, kwargs))

    def unrecorded(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself: no journal, no idempotency key but the one you pass."""
        if self.spec.wants_key and "key" not in kwargs:
            return cast(R, self.spec.fn(*args, **{**kwargs, "key": ""}))
        return cast(R, self.spec.fn(*args, **kwargs))

    def __repr__(self) -> str:
        return f"<{self.spec.effect} action {self.spec.name}>"


def _mark_async(action: Any) -> None:
    """Let frameworks that look see an `async def`."""
    mark = getattr(inspect, "markcoroutinefunction", None)  # Python 3.12 and later
    if mark is not None:
        mark(action)
    else:
        import asyncio

        action._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]


@overload
def action(fn: Callable[P, R], /) -> Action[P, R]: ...
@overload
def action(
    *,
    effect: EffectName = "repeatable",
    probe: Callable[..., Any] | None = None,
    on_doubt: OnDoubtName = "ask",
    fails_cleanly: tuple[type[BaseException], ...] = (),
    undo: Callable[..., Any] | None = None,
    key: Callable[..., str] | None = None,
    approve: bool = False,
    cost_usd: float | None = None,
    name: str | None = None,
) -> Callable[[Callable[P, R]], Action[P, R]]: ...
def action(fn: Any = None, /, **options: Any) -> Any:
    """Declare a function as an action: a call to the world outside the process.

    effect: what repeating it means. `repeatable` (the default): its result is kept, so it is
        paid for once. `idempotent`: it takes a `key` and the other side ignores repeats.
        `irreversible`: it is never repeated unless it is known not to have happened.
    probe: a read-only function of the same arguments that answers `happened(result)`,
        `did_not_happen()` or `unknown(reason)`.
    on_doubt: what to do when that cannot be found out: `ask` a person (the default),
        `assume_happened`, or `assume_not`.
    fails_cleanly: exceptions that prove that nothing happened.
    undo: a function that takes it back; it is offered the action's arguments by name, its
        `result` and its `key`.
    key: a business key from the arguments; it replaces the call's identity for the whole run.
    approve: ask a person before it is done.
    cost_usd: what one call costs at most, in US dollars: for the run's budget, and for what it has cost if the call
        does not report that itself. What actions called in it cost is not part of it.
    name: its name in the journal, if not the function's own.

    A parameter called `key` receives the idempotency key, which is stored before the call and
    never made again. Raises `Misuse` for a declaration that cannot be right.
    """
    if fn is not None:
        return Action(_spec(fn, {}))
    return lambda function: Action(_spec(function, options))


def _spec(fn: Any, options: dict[str, Any]) -> Spec:
    name = options.pop("name", None) or getattr(fn, "__name__", "")
    try:
        effect = Effect(options.pop("effect", "repeatable"))
        on_doubt = OnDoubt(options.pop("on_doubt", "ask"))
    except ValueError as error:
        raise Misuse(
            f"action {name}: {error}",
            hint='@action(effect="irreversible", on_doubt="ask")',
        ) from None
    if not callable(fn) or not name or name == "<lambda>" or name.strip() != name or "/" in name:
        raise Misuse(f"action {name!a} needs a name of its own", hint='@action(name="send_mail")')
    if effect is not Effect.IRREVERSIBLE and (options.get("probe") or on_doubt is not OnDoubt.ASK):
        raise Misuse(f"action {name} is {effect}; a probe is for irreversible ones", hint='effect="irreversible"')
    if options.get("approve") and effect is Effect.REPEATABLE:
        raise Misuse(f"action {name} is repeatable; approval is for deeds", hint='effect="irreversible"')
    if options.get("cost_usd") is not None and money(options["cost_usd"]) is None:
        raise Misuse(f"action {name}: cost_usd is a finite number from 0 up", hint="@action(cost_usd=0.02)")
    spec = Spec(fn, name, effect, on_doubt=on_doubt, **options)
    for part in (spec.probe, spec.undo):
        if part is not None and inspect.iscoroutinefunction(part) and not spec.is_async:
            raise Misuse(f"action {name} is a 'def', but its {part.__name__} is an 'async def'", hint="make it a 'def'")
    return spec


def happened(result: Any = None) -> ProbeAnswer:
    """A probe's answer: it happened, and `result` is what it returned."""
    return Happened(result)


def did_not_happen() -> ProbeAnswer:
    """A probe's answer: it certainly did not happen."""
    return NotHappened()


def unknown(reason: str = "") -> ProbeAnswer:
    """A probe's answer: it cannot be told, and why."""
    return UnknownAnswer(reason)
