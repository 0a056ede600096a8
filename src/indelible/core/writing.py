"""Values to plain data.

Owns: what each storable class is written as, and what to write instead of one that is not.
Must never: write a value as another type, or share anything mutable with it.
Invariant: what is written here is read back in `reading` with the same value and exact class.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag
from pathlib import PurePath
from types import FunctionType, ModuleType
from typing import Any, TypeAlias
from uuid import UUID, SafeUUID
from zoneinfo import ZoneInfo

from indelible.core.packing import DEEP_HINT, MAX_DEPTH, canonical
from indelible.core.plans import EnumRef, Misfit, Record, is_storable, step_of
from indelible.core.types import Types

Writer: TypeAlias = "Callable[[Any, Writers, int], Any]"
_LEAST_INT, _MOST_INT = -(2**63), 2**64 - 1
KEPT = frozenset({type(None), bool, bytes})


class Writers(dict[type, Writer]):
    """What writes each exact class; classes of the user are added when first met."""

    def __init__(self, types: Types) -> None:
        super().__init__(_BUILTIN_WRITERS)
        self.types = types
        if types.generic:
            self[Record] = _write_record
            self[EnumRef] = _write_enum_ref

    def __missing__(self, cls: type) -> Writer:
        if not self.types.admits(cls):
            raise Misfit(f"{cls.__qualname__} cannot be stored", hint_for(cls))
        self[cls] = _write_enum if issubclass(cls, Enum) else _write_record
        if not issubclass(cls, Enum):
            self.types.plan_of(cls)
        return self[cls]


# One Python frame per nesting level: every writer calls the next one itself. With 400 levels
# and a caller 300 frames deep this stays below the interpreter's default limit of 1,000.


def _too_deep() -> Misfit:
    return Misfit(f"nested more than {MAX_DEPTH} levels deep, or contains itself", DEEP_HINT)


def _write_items(value: Any, writers: Writers, depth: int) -> Any:
    if depth >= MAX_DEPTH:
        raise _too_deep()
    depth += 1
    cls = type(value)
    out: list[Any] = []
    try:
        for item in value:
            kind = type(item)
            if kind in KEPT or (kind is str and item.isascii()):
                out.append(item)
            else:
                out.append(writers[kind](item, writers, depth))
    except Misfit as misfit:
        misfit.steps.append(f"[{len(out)}]" if cls is list or cls is tuple else "{item}")
        raise
    if cls is list:
        return ["$l", *out] if out and type(out[0]) is str and out[0][:1] == "$" else out
    if cls is tuple:
        return ["$t", *out]
    out.sort(key=canonical)
    return ["$set" if cls is set else "$fset", *out]


def _write_dict(value: dict[Any, Any], writers: Writers, depth: int) -> Any:
    if depth >= MAX_DEPTH:
        raise _too_deep()
    depth += 1
    out: dict[str, Any] = {}
    key: Any = None
    try:
        for key, item in value.items():
            if type(key) is not str or not (key.isascii() or is_well_formed(key)):
                break
            kind = type(item)
            if kind in KEPT or (kind is str and item.isascii()):
                out[key] = item
            else:
                out[key] = writers[kind](item, writers, depth)
        else:
            return out
        pairs: list[Any] = ["$map"]
        for key, item in value.items():
            pairs.append(writers[type(key)](key, writers, depth))
            pairs.append(writers[type(item)](item, writers, depth))
    except Misfit as misfit:
        misfit.steps.append(step_of(key))
        raise
    return pairs


def _write_record(value: Any, writers: Writers, depth: int) -> Any:
    if depth >= MAX_DEPTH:
        raise _too_deep()
    depth += 1
    if type(value) is Record:
        type_name, names, values, unset = value.type_name, tuple(value), tuple(value.values()), value.unset
        if not all(type(name) is str for name in (type_name, *names)):
            raise Misfit("a field name of a Record is not text", "Record('Finding', {'score': 1})")
    else:
        names, values, unset = writers.types.plans[type(value)].parts(value)
        type_name = type(value).__qualname__
    if unset:  # the unset fields go first, and are counted
        held = dict(zip(names, values, strict=True))
        names = (*(name for name in names if name in unset), *(name for name in names if name not in unset))
        values = tuple(held[name] for name in names)
        out = ["$p", type_name, len(unset.intersection(names))]
    else:
        out = ["$r", type_name]
    at = 0
    try:
        for item in values:
            name = names[at]
            out.append(name if name.isascii() else _write_str(name, writers, depth))
            kind = type(item)
            if kind in KEPT or (kind is str and item.isascii()):
                out.append(item)
            else:
                out.append(writers[kind](item, writers, depth))
            at += 1
    except Misfit as misfit:
        misfit.steps.append(step_of(names[at]))
        raise
    return out


def _same(value: Any, _writers: Writers, _depth: int) -> Any:
    return value


def _write_int(value: int, _writers: Writers, _depth: int) -> Any:
    if _LEAST_INT <= value <= _MOST_INT:
        return value
    return ["$i", value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)]


def _write_float(value: float, _writers: Writers, _depth: int) -> float:
    # One bit pattern for all NaNs, but a new object each: NaNs of one set must stay apart.
    return value if value == value else float("nan")


def is_well_formed(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _write_str(value: str, _writers: Writers, _depth: int) -> Any:
    if value.isascii() or is_well_formed(value):
        return value
    return ["$s", value.encode("utf-8", "surrogatepass")]


def _write_enum(value: Enum, writers: Writers, depth: int) -> Any:
    cls = type(value)
    if value._name_ in cls.__members__:
        return ["$e", cls.__qualname__, value._name_]
    if isinstance(value, Flag):
        return ["$e", cls.__qualname__, writers[int](value._value_, writers, depth)]
    raise Misfit(f"{cls.__qualname__} has no member of that name", "store a declared member")


def _write_enum_ref(ref: EnumRef, writers: Writers, depth: int) -> Any:
    if type(ref.type_name) is not str or type(ref.member) not in (str, int):
        raise Misfit("an EnumRef names no member", "EnumRef('Color', 'RED')")
    return ["$e", ref.type_name, writers[type(ref.member)](ref.member, writers, depth)]


def _write_uuid(value: UUID, _writers: Writers, _depth: int) -> Any:
    safe = value.is_safe
    return ["$u", value.bytes] if safe is SafeUUID.unknown else ["$u", value.bytes, safe.name]


def _write_zone(zone: tzinfo | None, writers: Writers, depth: int) -> list[Any]:
    if zone is None:
        return []
    if type(zone) is timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]  # names a default name apart from none
        return [offset // timedelta(microseconds=1), *(_write_str(text, writers, depth) for text in name)]
    if type(zone) is ZoneInfo and zone.key is not None:
        try:
            if ZoneInfo(zone.key) is zone or zone.__reduce__():  # one made from a file refuses to be reduced
                return [zone.key]
        except Exception as error:
            reason = f"the zone {ascii(zone.key)[:60]} cannot be loaded by its key"
            raise Misfit(reason, "ZoneInfo('Europe/Berlin')") from error
    name = type(zone).__qualname__
    raise Misfit(f"a time zone of type {name} cannot be stored", "use zoneinfo.ZoneInfo or datetime.timezone")


def _write_datetime(value: datetime, writers: Writers, depth: int) -> Any:
    zone = value.tzinfo
    if zone is None:
        return ["$dt", value.isoformat(), value.fold]
    return ["$dt", value.replace(tzinfo=None).isoformat(), value.fold, *_write_zone(zone, writers, depth)]


def _write_time(value: time, writers: Writers, depth: int) -> Any:
    return ["$time", value.replace(tzinfo=None).isoformat(), value.fold, *_write_zone(value.tzinfo, writers, depth)]


_BUILTIN_WRITERS: dict[type, Writer] = {
    type(None): _same,
    bool: _same,
    bytes: _same,
    int: _write_int,
    float: _write_float,
    str: _write_str,
    list: _write_items,
    tuple: _write_items,
    set: _write_items,
    frozenset: _write_items,
    dict: _write_dict,
    # str() follows the caller's decimal context in nothing but the case of the E.
    Decimal: lambda value, _writers, _depth: ["$dec", str(value).replace("e", "E")],
    UUID: _write_uuid,
    datetime: _write_datetime,
    date: lambda value, _writers, _depth: ["$date", value.isoformat()],
    time: _write_time,
    timedelta: lambda value, _writers, _depth: ["$td", value.days, value.seconds, value.microseconds],
}


# In this order: a subclass must come before its base.
_INSTEAD: tuple[tuple[type, str], ...] = (
    (PurePath, "str(value)"),
    (deque, "list(value)"),
    (dict, "dict(value)"),
    (list, "list(value)"),
    (tuple, "tuple(value), or a dataclass"),
    (set, "set(value)"),
    (frozenset, "frozenset(value)"),
    (str, "str(value)"),
    (bytes, "bytes(value)"),
    (bytearray, "bytes(value)"),
    (memoryview, "bytes(value)"),
    (int, "int(value)"),
    (float, "float(value)"),
    (complex, "(value.real, value.imag)"),
    (range, "list(value)"),
    (datetime, "datetime.datetime.fromisoformat(value.isoformat())"),
    (date, "datetime.date(value.year, value.month, value.day)"),
    (time, "datetime.time.fromisoformat(value.isoformat())"),
    (timedelta, "datetime.timedelta(seconds=value.total_seconds())"),
    (BaseException, "str(value)"),
    (Iterator, "list(value)"),
    (FunctionType, "keep its name, and look the function up in your code"),
    (ModuleType, "keep its name, and import it in your code"),
)


def hint_for(cls: type) -> str:
    """The line that turns an instance of `cls` into something storable."""
    if is_storable(cls):
        name = cls.__name__
        return f"annotate the State field or the action with {name}, e.g. findings: list[{name}]"
    for base, hint in _INSTEAD:
        if issubclass(cls, base):
            return hint
    if hasattr(cls, "tolist"):
        return "value.tolist()"  # numpy arrays and scalars, pandas series
    return "keep plain data instead: an id, a dict, or a dataclass named in the annotations"
