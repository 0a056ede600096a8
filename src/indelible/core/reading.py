"""Plain data to values.

Owns: what each mark stands for.
Must never: import a class by name, or run a user's `__init__`.
Invariant: every value comes back fresh, with its exact class, or `Misfit` says where it cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Flag
from itertools import islice
from typing import Any
from uuid import UUID, SafeUUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from indelible.core.packing import ATOMS, DEEP_HINT, MAX_DEPTH
from indelible.core.plans import NO_NAMES, EnumRef, Misfit, Record, step_of
from indelible.core.types import GENERIC, Types


def read(plain: Any, types: Types, depth: int) -> Any:
    kind = type(plain)
    if kind in ATOMS:
        return plain
    mark = None
    if kind is list:
        if plain and type(plain[0]) is str and plain[0][:1] == "$":
            mark = plain[0]
            if mark in _LEAVES:
                return _read_leaf(mark, plain, types)
            if mark not in _NESTS:
                raise Misfit(f"unknown mark {ascii(mark)[:20]}", "upgrade indelible, or run: indelible verify")
    elif kind is not dict:
        raise Misfit(f"{kind.__qualname__} is not plain data", "from_plain(to_plain(value, types), types)")
    if depth >= MAX_DEPTH:
        raise Misfit(f"nested more than {MAX_DEPTH} levels deep", DEEP_HINT)
    depth += 1
    items: list[Any] = []
    key: Any = None
    try:
        if kind is dict:
            out = {}
            for key, item in plain.items():
                if type(key) is not str:
                    raise Misfit("a key is not text", "indelible verify")
                out[key] = item if type(item) in ATOMS else read(item, types, depth)
            return out
        for item in plain if mark is None else islice(plain, 1, None):
            items.append(item if type(item) in ATOMS else read(item, types, depth))
    except Misfit as misfit:
        misfit.steps.append(step_of(key) if kind is dict else _step_in(mark, items))
        raise
    return items if mark is None else _NESTS[mark](items, types)


def _step_in(mark: str | None, items: list[Any]) -> str:
    """The step to the item after `items` in a list that begins with `mark`."""
    lead = {"$r": 1, "$p": 2, "$map": 0}.get(mark or "")
    if lead is None:
        return "{item}" if mark in ("$set", "$fset") else f"[{len(items)}]"
    return step_of(items[-1]) if len(items) > lead and (len(items) - lead) % 2 else "[key]"


def _read_leaf(mark: str, plain: list[Any], types: Types) -> Any:
    try:
        return _LEAVES[mark](types, *plain[1:])
    except ZoneInfoNotFoundError as error:
        reason = f"the time zone {ascii(plain[3])[:60]} is not known on this machine"
        raise Misfit(reason, "pip install tzdata") from error
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, OSError) as error:
        raise Misfit(f"malformed {mark}", "indelible verify") from error


def _read_distinct(make: type) -> Callable[[list[Any], Types], Any]:
    def read(items: list[Any], _types: Types) -> Any:
        try:
            made = make(items)
        except TypeError as error:
            raise Misfit("an item of a set cannot be hashed", "make its class frozen, or write a migration") from error
        if len(made) != len(items):
            raise Misfit("two items of a set are now equal", "restore the __eq__ of their class, or write a migration")
        return made

    return read


def _read_map(items: list[Any], _types: Types) -> Any:
    if len(items) % 2:
        raise Misfit("a dict has a key without a value", "indelible verify")
    try:
        made = dict(zip(items[::2], items[1::2], strict=True))
    except TypeError as error:
        raise Misfit("a key of a dict cannot be hashed", "make its class frozen, or write a migration") from error
    if 2 * len(made) != len(items):
        raise Misfit("two keys of a dict are now equal", "restore the __eq__ of their class, or write a migration")
    return made


def _read_record(items: list[Any], types: Types) -> Any:
    return _build_record(items, 1, 0, types)


def _read_partial_record(items: list[Any], types: Types) -> Any:
    count = items[1] if len(items) > 1 else None
    if type(count) is not int or count < 0:
        raise Misfit("malformed $p", "indelible verify")
    return _build_record(items, 2, count, types)


def _build_record(items: list[Any], lead: int, unset_count: int, types: Types) -> Any:
    names = items[lead::2]
    try:
        fields = dict(zip(names, items[lead + 1 :: 2], strict=True))
        type_name = items[0]
    except (TypeError, ValueError, IndexError) as error:
        raise Misfit("a record has a field without a name or a value", "indelible verify") from error
    if len(fields) != len(names) or type(type_name) is not str:
        raise Misfit("a record has a field twice, or no class", "indelible verify")
    unset = frozenset(names[:unset_count]) if unset_count else NO_NAMES
    if not types.generic:
        return types.plan(type_name).build(fields, unset)
    if not all(type(name) is str for name in names):
        raise Misfit("a record has a field whose name is not text", "indelible verify")
    return Record(type_name, fields, unset)


def _read_enum(types: Types, name: str, member: str | int | list[Any]) -> Any:
    held = read(member, types, MAX_DEPTH)
    if type(name) is not str or type(held) not in (str, int):
        raise Misfit("malformed $e", "indelible verify")
    if types.generic:
        return EnumRef(name, held)
    cls = types.enum(name)
    found: Any = None
    if type(held) is str:
        found = cls.__members__.get(held)
    elif issubclass(cls, Flag):
        found = cls(held)
    if type(found) is not cls or (type(held) is int and found._value_ != held):  # a flag may drop unknown bits
        raise Misfit(f"{name} has no member {ascii(held)[:60]}", f"declare it in {name}, or write a migration")
    return found


def _read_zone(zone: tuple[Any, ...]) -> tzinfo | None:
    if not zone:
        return None
    if type(zone[0]) is str:
        return ZoneInfo(zone[0])
    offset = timedelta(microseconds=zone[0])
    return timezone(offset, read(zone[1], GENERIC, MAX_DEPTH)) if len(zone) > 1 else timezone(offset)


_LEAVES: dict[str, Callable[..., Any]] = {
    "$i": lambda _types, data: int.from_bytes(data, "big", signed=True),
    "$s": lambda _types, data: data.decode("utf-8", "surrogatepass"),
    "$e": _read_enum,
    "$dec": lambda _types, text: Decimal(text),
    "$u": lambda _types, data, safe="unknown": UUID(bytes=data, is_safe=SafeUUID[safe]),
    "$dt": lambda _types, text, fold, *zone: datetime.fromisoformat(text).replace(tzinfo=_read_zone(zone), fold=fold),
    "$date": lambda _types, text: date.fromisoformat(text),
    "$time": lambda _types, text, fold, *zone: time.fromisoformat(text).replace(tzinfo=_read_zone(zone), fold=fold),
    "$td": lambda _types, days, seconds, micros: timedelta(days, seconds, micros),
}

_NESTS: dict[str, Callable[[list[Any], Types], Any]] = {
    "$l": lambda items, _types: items,
    "$t": lambda items, _types: tuple(items),
    "$set": _read_distinct(set),
    "$fset": _read_distinct(frozenset),
    "$map": _read_map,
    "$r": _read_record,
    "$p": _read_partial_record,
}
