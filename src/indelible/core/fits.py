"""Does a value fit a type hint, and what it becomes if it nearly does.

Owns: `check_fits`: plain dicts and stand-ins become the class that the hint names.
Must never: convert one builtin type into another, or judge a hint it does not know.
Invariant: a value that fits is returned as it is; nothing given is changed in place.
"""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, Literal, NewType, NotRequired, Required, TypeAlias, Union

from indelible.core.packing import DEEP_HINT
from indelible.core.plans import EnumRef, Misfit, Plan, Record, hints_of, is_model, is_storable, plan_for, step_of
from indelible.core.types import Types
from indelible.errors import StateInvalid

Check: TypeAlias = Callable[[Any], Any]
"""Returns the value that fits (mostly the one given), or raises `Misfit`."""

_WRAPPERS = (Annotated, Required, NotRequired, Final, ClassVar)
_CONTAINERS = frozenset({list, tuple, set, frozenset})
_HINT = "write a migration that makes the value fit, or change the annotation"


def check_fits(value: Any, hint: object, path: str) -> Any:
    """`value` if it fits `hint`; plain dicts and stand-ins in it are turned into the class the hint names.

    Hints that say nothing about data (Any, TypeVar, Protocol …) fit everything. Raises
    `StateInvalid` with the path of the part that does not fit.
    """
    try:
        check = _check_of(hint)
        return value if check is None else check(value)
    except Misfit as misfit:
        raise StateInvalid(misfit.told(path), hint=misfit.hint) from misfit.__cause__
    except RecursionError:
        raise StateInvalid(f"{path}: nested too deeply for the stack that is left", hint=DEEP_HINT) from None


def _check_of(hint: object) -> Check | None:
    try:
        hash(hint)
    except TypeError:
        return _made(hint)
    return _kept(hint)


@lru_cache(maxsize=1024)
def _kept(hint: object) -> Check | None:
    return _made(hint)


def _made(hint: object) -> Check | None:
    if hint is None or hint is type(None):
        return _none
    if hint is Any or hint is object or isinstance(hint, (str, typing.TypeVar, typing.ForwardRef)):
        return None
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in _WRAPPERS:
        return _check_of(args[0])
    if origin is Union or origin is types.UnionType:
        return _union(args)
    if origin is Literal:
        return _literal(args)
    if not isinstance(hint, type) and origin is None:
        if isinstance(hint, NewType):
            return _check_of(hint.__supertype__)
        return _later(hint) if hasattr(hint, "__value__") else None
    cls: Any = origin or hint
    if not isinstance(cls, type) or cls is type:
        return None
    if typing.is_typeddict(cls):
        return _typed_dict(cls)
    if is_storable(cls):
        return _class(cls)
    if cls is tuple and args:
        return _tuple(args)
    if issubclass(cls, collections.abc.Mapping) and len(args) == 2:
        return _mapping(cls, args)
    if cls not in (str, bytes) and len(args) == 1 and issubclass(cls, collections.abc.Iterable):
        return _items(cls, _check_of(args[0]))
    return _class(cls)


def _class(cls: type) -> Check | None:
    if getattr(cls, "_is_protocol", False):
        return None
    if issubclass(cls, Enum):
        return _enum(cls)
    if is_storable(cls):
        return _Records(cls).check
    if cls is float:
        return _instance((float, int), cls)
    return _instance((cls,), cls)


def _misfit(expected: str, value: Any) -> Misfit:
    found = f"a {value.type_name} record" if isinstance(value, Record) else type(value).__qualname__
    return Misfit(f"expected {expected}, found {found}", _HINT)


def _named(hint: object) -> str:
    if hint is type(None):
        return "None"
    return hint.__qualname__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def _none(value: Any) -> None:
    if value is not None:
        raise _misfit("None", value)


def _later(alias: Any) -> Check:
    """For a `type` statement, which may name itself: looked into only when a value is there."""

    def check(value: Any) -> Any:
        inner = _check_of(alias.__value__)
        return value if inner is None else inner(value)

    return check


def _instance(classes: tuple[type, ...], cls: type) -> Check:
    plain_dicts = cls in (dict, collections.abc.Mapping, collections.abc.MutableMapping)

    def check(value: Any) -> Any:
        # A record has a class of its own, which a field of plain dicts would lose.
        if isinstance(value, classes) and not (plain_dicts and isinstance(value, Record)):
            return value
        named = Types.of(cls).find(value.type_name) if isinstance(value, Record) else None
        if named is None:
            raise _misfit(cls.__qualname__, value)
        return _Records(named).check(value)

    return check


def _literal(allowed: tuple[Any, ...]) -> Check:
    def check(value: Any) -> Any:
        for one in allowed:
            if type(one) is type(value) and one == value:
                return value
            if isinstance(value, EnumRef) and isinstance(one, Enum) and one.name == value.member:
                return one
        raise _misfit(f"one of {', '.join(ascii(one) for one in allowed)}"[:200], value)

    return check


def _union(members: tuple[Any, ...]) -> Check:
    checks = [_check_of(member) for member in members]

    def check(value: Any) -> Any:
        if value is None and type(None) in members:
            return value
        misfits: list[Misfit] = []
        fitted: list[Any] = []
        for inner in checks:
            try:
                fit = value if inner is None else inner(value)
            except Misfit as misfit:
                misfits.append(misfit)
                continue
            if fit is value or type(fit).__qualname__ == getattr(value, "type_name", None):
                return fit
            fitted.append(fit)
        if fitted:
            return fitted[0]
        inside = [misfit for misfit in misfits if misfit.steps]
        if len(inside) == 1:  # one member was right but for a part of it: say which part
            raise inside[0]
        raise _misfit(" | ".join(_named(member) for member in members), value)

    return check


def _items(cls: Any, inner: Check | None) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, cls):
            raise _misfit(cls.__qualname__, value)
        kind = type(value)
        if inner is None or kind not in _CONTAINERS:
            return value
        return _fitted(kind, value, lambda _at: inner, value)

    return check


def _tuple(args: tuple[Any, ...]) -> Check:
    if len(args) == 2 and args[1] is ...:
        return _items(tuple, _check_of(args[0]))
    checks = [] if args == ((),) else [_check_of(arg) for arg in args]

    def check(value: Any) -> Any:
        if not isinstance(value, tuple):
            raise _misfit("tuple", value)
        if len(value) != len(checks):
            raise Misfit(f"expected a tuple of {len(checks)}, found one of {len(value)}", _HINT)
        return _fitted(tuple, value, lambda at: checks[at], value)

    return check


def _fitted(kind: Any, items: Iterable[Any], check_at: Callable[[int], Check | None], given: Any) -> Any:
    out: list[Any] = []
    changed = False
    try:
        for item in items:
            inner = check_at(len(out))
            fit = item if inner is None else inner(item)
            changed = changed or fit is not item
            out.append(fit)
    except Misfit as misfit:
        misfit.steps.append(f"[{len(out)}]")
        raise
    return kind(out) if changed else given


def _mapping(cls: type, args: tuple[Any, ...]) -> Check:
    key_check, item_check = (_check_of(arg) for arg in args)

    def check(value: Any) -> Any:
        if not isinstance(value, cls) or isinstance(value, Record):
            raise _misfit(cls.__qualname__, value)
        if type(value) is not dict:
            return value
        out: dict[Any, Any] = {}
        changed = False
        for key, item in value.items():
            try:
                new_key = key if key_check is None else key_check(key)
                new = item if item_check is None else item_check(item)
            except Misfit as misfit:
                misfit.steps.append(step_of(key))
                raise
            changed = changed or new is not item or new_key is not key
            out[new_key] = new
        return out if changed else value

    return check


def _typed_dict(cls: Any) -> Check:
    hints = hints_of(cls)
    # The class itself cannot tell while its annotations are texts, so the resolved hints have the last word.
    said = {name: typing.get_origin(hint) for name, hint in hints.items()}
    required = {name for name, mark in said.items() if mark is Required or name in cls.__required_keys__}
    required -= {name for name, mark in said.items() if mark is NotRequired}

    def check(value: Any) -> Any:
        if type(value) is not dict:
            raise _misfit(f"a dict like {cls.__qualname__}", value)
        missing = sorted(required - value.keys())
        if missing:
            raise Misfit(f"{cls.__qualname__} needs the key {missing[0]!r}", _HINT)
        changes = _changes(hints, value)
        return {**value, **changes} if changes else value

    return check


def _changes(hints: dict[str, Any], held: dict[str, Any], defaults: dict[str, Callable[[], Any]] | None = None) -> Any:
    """The fields that have to change for all to fit."""
    changes: dict[str, Any] = {}
    for name, hint in hints.items():
        if name not in held:
            continue
        inner = _check_of(hint)
        value = held[name]
        try:
            fit = value if inner is None else inner(value)
        except Misfit as misfit:
            default = (defaults or {}).get(name)
            if default is not None and value is default():  # `x: int = None` is loosely typed, not damaged
                continue
            misfit.steps.append(step_of(name))
            raise
        if fit is not value:
            changes[name] = fit
    return changes


def _enum(cls: type[Enum]) -> Check:
    def check(value: Any) -> Any:
        if isinstance(value, cls):
            return value
        if isinstance(value, EnumRef):
            if value.member in cls.__members__:
                return cls.__members__[str(value.member)]
            if type(value.member) is int:
                try:
                    return cls(value.member)
                except ValueError:
                    pass
            raise Misfit(f"{cls.__qualname__} has no member {ascii(value.member)[:60]}", _HINT)
        raise _misfit(cls.__qualname__, value)

    return check


class _Records:
    """Fits instances, stand-ins and plain dicts to one user class or its subclasses."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.plans: dict[type, Plan] = {}

    def check(self, value: Any) -> Any:
        cls, kind = self.cls, type(value)
        if isinstance(value, cls):
            return self._instance(value, kind)
        if kind is Record:
            named = Types.of(cls).find(value.type_name)
            target = named if named is not None and issubclass(named, cls) else cls
            return self._instance(self._plan(target).build(dict(value), value.unset), target)
        if kind is not dict:
            raise _misfit(cls.__qualname__, value)
        if is_model(cls):
            return _validated(cls, value)
        return self._instance(self._plan(cls).build(value), cls)

    def _plan(self, cls: type) -> Plan:
        plan = self.plans.get(cls)
        if plan is None:
            plan = self.plans[cls] = plan_for(cls)
        return plan

    def _instance(self, value: Any, cls: type) -> Any:
        plan = self._plan(cls)
        names, values, unset = plan.parts(value)
        held = dict(zip(names, values, strict=True))
        changes = _changes(plan.hints, held, plan.defaults)
        return plan.build({**held, **changes}, unset) if changes else value


def _validated(cls: Any, fields: dict[str, Any]) -> Any:
    """A pydantic model from a dict, by its own validation; unknown names are refused."""
    declared = cls.__pydantic_fields__
    aliases = {info.alias for info in declared.values() if info.alias}
    if cls.model_config.get("extra") != "allow":
        for key in fields:
            if key not in declared and key not in aliases:
                raise Misfit(f"{cls.__qualname__} has no field {ascii(key)[:60]}", _HINT)
    try:
        return cls.model_validate(fields, by_alias=True, by_name=True) if aliases else cls.model_validate(fields)
    except ValueError as error:
        describe: Any = getattr(error, "errors", None)
        if describe is None:
            raise
        first = describe(include_input=False, include_url=False, include_context=False)[0]
        misfit = Misfit(f"does not fit {cls.__qualname__} ({first['type']})", _HINT)
        misfit.steps.extend(reversed([step_of(part) for part in first["loc"]]))
        raise misfit from None
