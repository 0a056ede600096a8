"""What an action is, how one call of it is recognised, and what to do with what is found.

Owns: the action's declaration, call identity, and the decision table.
Must never: perform anything.
Invariant: `decide` is a pure function of what the journal holds and what the probe said.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from functools import cached_property
from hashlib import blake2b
from typing import Any, get_type_hints

from indelible.core.codec import Types, check_fits, pack, to_plain
from indelible.errors import Misuse


class Effect(StrEnum):
    """What repeating an action means."""

    REPEATABLE = "repeatable"
    IDEMPOTENT = "idempotent"
    IRREVERSIBLE = "irreversible"


class OnDoubt(StrEnum):
    """What to do when it cannot be found out whether an irreversible action happened."""

    ASK = "ask"
    ASSUME_HAPPENED = "assume_happened"
    ASSUME_NOT = "assume_not"


class Found(Enum):
    """What the journal holds of a call."""

    NOTHING = "nothing"
    INTENT = "intent"
    COMPLETION = "completion"
    FAILURE = "failure"
    """A recorded failure of this same attempt."""
    OLD_FAILURE = "old failure"
    """A recorded failure of an earlier attempt."""
    SETTLED_NOT = "settled: did not happen"


class Probed(Enum):
    """What is known from the probe."""

    NOT_ASKED = "not asked"
    MISSING = "missing"
    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did not happen"
    UNKNOWN = "unknown"


class Verdict(Enum):
    """What to do about a call."""

    TAKE = "take the recorded result"
    RAISE = "raise the recorded failure"
    CALL = "call"
    CALL_SAME_KEY = "call again with the recorded key"
    PROBE = "ask the probe"
    TAKE_PROBED = "record the completion the probe gave, and take it"
    ASSUME_HAPPENED = "record by policy that it happened"
    PARK = "park in doubt and ask a person"


def decide(effect: Effect, found: Found, probed: Probed, on_doubt: OnDoubt) -> Verdict:
    """The decision table. Every row is a test."""
    if found is Found.COMPLETION:
        return Verdict.TAKE
    if found is Found.FAILURE:
        return Verdict.RAISE
    if found is Found.NOTHING or effect is Effect.REPEATABLE:
        return Verdict.CALL
    if effect is Effect.IDEMPOTENT or found in (Found.OLD_FAILURE, Found.SETTLED_NOT):
        return Verdict.CALL_SAME_KEY
    if probed is Probed.NOT_ASKED:
        return Verdict.PROBE
    if probed is Probed.HAPPENED:
        return Verdict.TAKE_PROBED
    if probed is Probed.DID_NOT_HAPPEN:
        return Verdict.CALL_SAME_KEY
    return {
        OnDoubt.ASK: Verdict.PARK,
        OnDoubt.ASSUME_HAPPENED: Verdict.ASSUME_HAPPENED,
        OnDoubt.ASSUME_NOT: Verdict.CALL_SAME_KEY,
    }[on_doubt]


@dataclass(frozen=True, slots=True)
class Happened:
    """A probe's answer: it happened, and this was its result."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class NotHappened:
    """A probe's answer: it did not happen."""


@dataclass(frozen=True, slots=True)
class UnknownAnswer:
    """A probe's answer: it cannot be told, and why."""

    reason: str = ""


ProbeAnswer = Happened | NotHappened | UnknownAnswer


@dataclass(eq=False)
class Spec:
    """An action as declared: the function, and what repeating it means."""

    fn: Callable[..., Any]
    name: str
    effect: Effect = Effect.REPEATABLE
    probe: Callable[..., Any] | None = None
    on_doubt: OnDoubt = OnDoubt.ASK
    fails_cleanly: tuple[type[BaseException], ...] = ()
    undo: Callable[..., Any] | None = None
    key: Callable[..., str] | None = None
    approve: bool = False
    cost_usd: float | None = None
    is_async: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_async = inspect.iscoroutinefunction(self.fn)
        self.is_deed = self.effect is not Effect.REPEATABLE
        self._signature = inspect.signature(self.fn)
        params = list(self._signature.parameters.values())
        simple = all(p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in params)
        self.wants_key = "key" in self._signature.parameters
        self._positional = tuple(p.name for p in params) if simple and not self.wants_key else None
        if params and params[0].name in ("self", "cls"):
            raise Misuse(
                f"action {self.name} is a method; an action's arguments must be storable",
                hint="declare a plain function and pass it the values it needs",
            )

    @cached_property
    def hints(self) -> dict[str, Any]:
        """Its annotations. Raises `Misuse` if they cannot be read."""
        try:
            return get_type_hints(self.fn)
        except Exception as error:
            raise Misuse(
                f"the annotations of action {self.name} cannot be read: {error}",
                hint="define the classes it names at module level, before it is called",
            ) from error

    @cached_property
    def types(self) -> Types:
        """The classes its arguments and results may hold, from its annotations."""
        return Types.of(*self.hints.values())

    def fitted(self, result: Any) -> bytes:
        """A result that somebody gave in the function's place, as it is kept; plain dicts in it become the classes
        that the return type names. Raises `StateInvalid` with the path of the part that does not fit."""
        what = f"{self.name}() result"
        if result is not None:  # a person need not know it
            result = check_fits(result, self.hints.get("return", Any), what)
        return pack(to_plain(result, self.types, what))

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The call's arguments by name, defaults filled in, the idempotency key left out.

        Raises `TypeError` as the call itself would.
        """
        if not kwargs and self._positional is not None and len(args) == len(self._positional):
            return dict(zip(self._positional, args, strict=True))
        if self.wants_key and "key" not in kwargs:
            kwargs = {**kwargs, "key": ""}
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return {name: value for name, value in bound.arguments.items() if name != "key"}

    def with_key(self, kwargs: dict[str, Any], key: str) -> dict[str, Any]:
        """The keyword arguments for the function, with the key if it takes one."""
        return {**kwargs, "key": key} if self.wants_key else kwargs


def call_id(parent: str, name: str, digest: bytes, nth: int) -> str:
    """The identity of the nth call of an action with these arguments inside its parent."""
    text = blake2b(f"{parent}\0{name}\0{nth}\0".encode() + digest, digest_size=8).hexdigest()
    return f"{name}-{text}"


def keyed_id(name: str, key: str) -> str:
    """The identity of a call under a declared business key, good for the whole run."""
    text = blake2b(f"{name}\0".encode() + key.encode("utf-8", "surrogatepass"), digest_size=8, person=b"key")
    return f"{name}-{text.hexdigest()}"
