"""How instances of user classes are taken apart into named fields and put together again.

Owns: one `Plan` per dataclass, msgspec Struct or pydantic model, and the stand-ins
(`Record`, `EnumRef`) used where the user's code is not loaded.
Must never: run `__init__` of a dataclass or a model, import a class by name, import pydantic.
Invariant: `build(*parts(value))` has the exact class and fields of `value`, or `parts` refused.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

NO_NAMES: frozenset[str] = frozenset()


class Misfit(Exception):
    """Internal: a value was refused; the path is collected while the stack unwinds."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.steps: list[str] = []

    def told(self, root: str) -> str:
        """The message, beginning with the path; a very deep path is shortened in the middle."""
        steps = self.steps[::-1]
        if len(steps) > 24:
            steps = [*steps[:12], "…", *steps[-4:]]
        return f"{root}{''.join(steps)}: {self.reason}"


def step_of(key: object) -> str:
    """One step of a path: `.name` for an identifier, `[…]` for any other key."""
    if type(key) is str:
        if len(key) <= 60 and key.isascii() and key.isidentifier():
            return "." + key
        return f"[{key[:40]!a}]"
    return f"[{key:#x}]"[:44] if type(key) is int else f"[a {type(key).__qualname__} key]"


class Record(dict[str, Any]):
    """Stands in for an instance of a user class: its fields, and the class's name.

    `unset` names the fields a pydantic model had left at their defaults.
    """

    __slots__ = ("type_name", "unset")

    def __init__(self, type_name: str, fields: Mapping[str, Any] | None = None, unset: Iterable[str] = ()) -> None:
        super().__init__(fields or {})
        self.type_name = type_name
        self.unset = frozenset(unset)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Record) and other.type_name != self.type_name:
            return False
        return dict.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:  # type: ignore[override]  # a frozen dataclass may sit in a set or be a key
        try:
            return hash((self.type_name, tuple(self.items())))
        except TypeError:
            return hash(self.type_name)

    def __repr__(self) -> str:
        return f"Record({self.type_name!r}, {dict.__repr__(self)})"

    def copy(self) -> Record:
        """A shallow copy that is still a Record."""
        return Record(self.type_name, self, self.unset)


@dataclasses.dataclass(frozen=True, slots=True)
class EnumRef:
    """Stands in for an enum member; `member` is its name, or the value of a combined flag."""

    type_name: str
    member: str | int


class Parts(NamedTuple):
    """The fields of one instance: names and values side by side, and the unset names."""

    names: tuple[str, ...]
    values: tuple[Any, ...]
    unset: frozenset[str] = NO_NAMES


class Plan:
    """How one class is taken apart and put together; base of the three kinds."""

    def __init__(self, cls: type, names: tuple[str, ...]) -> None:
        self.cls = cls
        self.names = names
        self.known = frozenset(names)
        self.hints = hints_of(cls)
        self.defaults: dict[str, Callable[[], Any]] = {}
        self._take: Callable[[Any], Any] = operator.attrgetter(*names) if names else _nothing
        self._single = len(names) == 1
        self._stray_slots = _stray_slots(cls, self.known)

    def parts(self, value: Any) -> Parts:
        """The fields of `value`; raises `Misfit` if it holds anything a field does not name."""
        try:
            values = self._take(value)
        except AttributeError:
            missing = [name for name in self.names if not hasattr(value, name)]
            raise Misfit(f"{self.cls.__qualname__}.{', '.join(missing)} was never set", "give the field a default")
        return Parts(self.names, (values,) if self._single else values)

    def build(self, fields: dict[str, Any], unset: frozenset[str] = NO_NAMES) -> Any:
        """A new instance; raises `Misfit` on an unknown field or a missing one without default."""
        raise NotImplementedError

    def complete(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Exactly the class's fields: defaults filled in, unknown names refused."""
        if fields.keys() == self.known:
            return fields
        name = self.cls.__qualname__
        for key in fields:
            if key not in self.known:
                raise Misfit(f"{name} has no field {ascii(key)[:60]}", f"add the field to {name}, or write a migration")
        filled = dict(fields)
        for key in self.names:
            if key not in filled:
                if key not in self.defaults:
                    hint = f"give {name}.{key} a default, or write a migration"
                    raise Misfit(f"{name} needs the field {key!r}", hint)
                filled[key] = self.defaults[key]()
        return filled

    def refuse_strays(self, value: Any) -> None:
        """Raise `Misfit` if `value` carries attributes that no field would bring back."""
        strays = [name for name in self._stray_slots if hasattr(value, name)]
        for name in getattr(value, "__dict__", ()):
            # Not strays: what typing leaves on an instance of Box[int], and a cached_property,
            # which is derived from the fields and computed anew when asked for.
            derived = name == "__orig_class__" or isinstance(getattr(self.cls, name, None), cached_property)
            if name not in self.known and not derived:
                strays.append(name)
        if strays:
            shown = ascii(strays[0])[:60]
            reason = f"{self.cls.__qualname__} carries {shown}, which is not a field"
            raise Misfit(reason, f"declare {shown} as a field")


class DataclassPlan(Plan):
    """Dataclasses: fields are set without running `__init__` or `__post_init__`."""

    def __init__(self, cls: Any) -> None:
        fields = dataclasses.fields(cls)
        super().__init__(cls, tuple(field.name for field in fields))
        for field in fields:
            if field.default is not dataclasses.MISSING:
                self.defaults[field.name] = _constant(field.default)
            elif field.default_factory is not dataclasses.MISSING:
                self.defaults[field.name] = field.default_factory
        described = any(hasattr(base.__dict__.get(name), "__set__") for base in cls.__mro__ for name in self.names)
        self._in_dict = bool(cls.__dictoffset__) and not described
        self._has_dict = bool(cls.__dictoffset__)
        try:
            object.__new__(cls)
        except TypeError as error:
            reason = f"{cls.__qualname__} builds on {_solid_base(cls)} and cannot be stored"
            raise Misfit(reason, f"hold the {_solid_base(cls)} in a field instead") from error

    def parts(self, value: Any) -> Parts:
        if self._stray_slots or (self._has_dict and value.__dict__.keys() != self.known):
            self.refuse_strays(value)
        return super().parts(value)

    def build(self, fields: dict[str, Any], unset: frozenset[str] = NO_NAMES) -> Any:  # noqa: ARG002
        fields = self.complete(fields)
        made: Any = object.__new__(self.cls)
        if self._in_dict:
            made.__dict__.update(fields)
            return made
        put = object.__setattr__
        for name, value in fields.items():
            put(made, name, value)
        return made


class StructPlan(Plan):
    """msgspec Structs. They can only be made by calling the class; fields are then put right
    in case a `__post_init__` changed them."""

    def __init__(self, cls: Any) -> None:
        super().__init__(cls, tuple(cls.__struct_fields__))
        for field in msgspec.structs.fields(cls):
            if field.default is not msgspec.NODEFAULT:
                self.defaults[field.name] = _constant(field.default)
            elif field.default_factory is not msgspec.NODEFAULT:
                self.defaults[field.name] = field.default_factory
        self._strict = bool(cls.__dictoffset__) or bool(self._stray_slots)
        self._settles = hasattr(cls, "__post_init__")

    def parts(self, value: Any) -> Parts:
        if self._strict:
            self.refuse_strays(value)
        return super().parts(value)

    def build(self, fields: dict[str, Any], unset: frozenset[str] = NO_NAMES) -> Any:  # noqa: ARG002
        fields = self.complete(fields)
        if not self._settles:
            return self.cls(**fields)
        try:
            made = self.cls(**fields)
        except Exception as error:
            reason = f"{self.cls.__qualname__}.__post_init__ raised {type(error).__name__}"
            raise Misfit(reason, "write a migration") from error
        for name, value in fields.items():
            msgspec.structs.force_setattr(made, name, value)
        return made


class ModelPlan(Plan):
    """pydantic models: restored as they were, with the set and extra fields, unvalidated."""

    def __init__(self, cls: Any) -> None:
        if not cls.__pydantic_complete__:  # a forward reference that the class met too early
            cls.model_rebuild(raise_errors=False)
        super().__init__(cls, tuple(cls.__pydantic_fields__))
        self._extra = cls.model_config.get("extra") == "allow"
        for name, info in cls.__pydantic_fields__.items():
            if not info.is_required():
                self.defaults[name] = _model_default(info)

    def parts(self, value: Any) -> Parts:
        if getattr(value, "__pydantic_private__", None):
            raise Misfit(f"{self.cls.__qualname__} holds private attributes", "make them fields")
        self.refuse_strays(value)
        held = {**value.__dict__, **(value.__pydantic_extra__ or {})}
        fields_set = value.__pydantic_fields_set__
        missing = [name for name in (*self.names, *fields_set) if name not in held]
        if missing:
            raise Misfit(f"{self.cls.__qualname__}.{missing[0]} was never set", "give the field a default")
        names = (*self.names, *(value.__pydantic_extra__ or ()))
        return Parts(names, tuple(held[name] for name in names), frozenset(names) - fields_set)

    def build(self, fields: dict[str, Any], unset: frozenset[str] = NO_NAMES) -> Any:
        extra = {key: value for key, value in fields.items() if key not in self.known} if self._extra else {}
        if not all(type(key) is str for key in extra):
            raise Misfit(f"{self.cls.__qualname__} has an extra field whose name is not text", "indelible verify")
        given = {key: value for key, value in fields.items() if key not in extra}
        full = self.complete(given)
        made: Any = object.__new__(self.cls)
        put = object.__setattr__
        put(made, "__dict__", {name: full[name] for name in self.names})
        put(made, "__pydantic_extra__", extra if self._extra else None)
        put(made, "__pydantic_fields_set__", set(fields) - unset)
        put(made, "__pydantic_private__", {} if getattr(self.cls, "__private_attributes__", None) else None)
        return made


def plan_for(cls: type) -> Plan:
    """The plan of a storable class; raises `Misfit` if the class cannot be taken apart."""
    if is_model(cls):
        return ModelPlan(cls)
    return StructPlan(cls) if issubclass(cls, msgspec.Struct) else DataclassPlan(cls)


def is_model(cls: type) -> bool:
    """True for a pydantic model class; pydantic is looked at only if the program loaded it."""
    main = sys.modules.get("pydantic.main")
    return main is not None and issubclass(cls, main.BaseModel) and cls is not main.BaseModel


def is_storable(cls: type) -> bool:
    """True for the kinds of user classes that can be kept: Enum, dataclass, Struct, model."""
    if issubclass(cls, Enum):
        return hasattr(cls, "_member_map_") and bool(cls._member_map_)
    if issubclass(cls, msgspec.Struct):
        return cls is not msgspec.Struct
    return dataclasses.is_dataclass(cls) or is_model(cls)


def hints_of(cls: type) -> dict[str, Any]:
    """The annotations of the fields of `cls`, resolved; one that cannot be resolved stays a string."""
    if is_model(cls):
        return {name: info.annotation for name, info in typing.cast(Any, cls).__pydantic_fields__.items()}
    hints = _resolved(cls)
    if dataclasses.is_dataclass(cls):
        return {field.name: hints.get(field.name) for field in dataclasses.fields(cls)}
    return {name: hints.get(name) for name in getattr(cls, "__struct_fields__", hints)}


def _resolved(cls: type) -> dict[str, Any]:
    here = {cls.__name__: cls}
    try:
        return typing.get_type_hints(cls, localns=here, include_extras=True)
    except Exception:
        pass  # one bad annotation must not hide the others: resolve them one by one
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name, raw in inspect.get_annotations(base).items():
            probe = type("Probe", (), {"__annotations__": {name: raw}, "__module__": base.__module__})
            try:
                hints.update(typing.get_type_hints(probe, localns=here, include_extras=True))
            except Exception:
                hints[name] = raw
    return hints


def _nothing(_value: Any) -> tuple[()]:
    return ()


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def _model_default(info: Any) -> Callable[[], Any]:
    return lambda: info.get_default(call_default_factory=True, validated_data={})


def _solid_base(cls: type) -> str:
    heap_type = 1 << 9
    return next(base.__qualname__ for base in cls.__mro__ if not base.__flags__ & heap_type)


def _stray_slots(cls: type, known: frozenset[str]) -> tuple[str, ...]:
    return tuple(
        name
        for base in cls.__mro__
        for name, held in vars(base).items()
        if isinstance(held, types.MemberDescriptorType) and name not in known and not name.startswith("__")
    )
