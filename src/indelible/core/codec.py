"""Values to plain data and back: round trip or refuse.

Owns: the interface to everything that turns values into plain data, bytes and JSON.
Must never: change a type silently.
Invariant: `from_plain(unpack(pack(to_plain(v))))` equals `v` in value and exact class, or
`to_plain` refused `v` with the path of the part that cannot be kept.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from indelible.core.fits import check_fits
from indelible.core.packing import DEEP_HINT, MAX_DEPTH, Plain, digest, pack, unpack
from indelible.core.plans import EnumRef, Misfit, Record, is_storable, plan_for
from indelible.core.reading import read
from indelible.core.types import GENERIC, Types
from indelible.core.writing import KEPT, Writers, is_well_formed
from indelible.errors import NotStorable, StateInvalid

__all__ = [
    "GENERIC",
    "MAX_DEPTH",
    "EnumRef",
    "Plain",
    "Record",
    "Types",
    "check_fits",
    "digest",
    "from_plain",
    "pack",
    "to_json",
    "to_plain",
    "unpack",
]


def to_plain(value: object, types: Types, *path: object) -> Plain:
    """A fresh plain tree of `value`, sharing nothing mutable with it.

    Raises `NotStorable`, naming the path of the offending part, if any part would not come
    back exactly as it is. A part that is used twice is written twice. `path` is where the value
    stands, in pieces, for they are put together in an error only.
    """
    kind = type(value)
    if kind in KEPT or (kind is str and value.isascii()):  # type: ignore[attr-defined]
        return value  # type: ignore[return-value]  # most values; so without looking for their writer
    writers = types.memo
    if writers is None:
        writers = types.memo = Writers(types)
    try:
        return writers[kind](value, writers, 0)  # type: ignore[no-any-return]
    except Misfit as misfit:
        raise NotStorable(misfit.told(_told(path)), hint=misfit.hint) from misfit.__cause__
    except RecursionError:
        raise NotStorable(f"{_told(path)}: nested too deeply for the stack that is left", hint=DEEP_HINT) from None
    except RuntimeError as error:
        if "during iteration" not in str(error):
            raise
        raise NotStorable(
            f"{_told(path)}: changed while it was being read", hint="use a lock, or pass a copy"
        ) from error


def from_plain(plain: Plain, types: Types, *path: object) -> Any:
    """The value that `plain` stands for, made fresh at each call.

    Raises `StateInvalid`, naming the path, on an unknown class, an unknown field, a missing
    field without default, or anything that `to_plain` does not write.
    """
    try:
        return read(plain, types, 0)
    except Misfit as misfit:
        raise StateInvalid(misfit.told(_told(path)), hint=misfit.hint) from misfit.__cause__
    except RecursionError:
        raise StateInvalid(f"{_told(path)}: nested too deeply for the stack that is left", hint=DEEP_HINT) from None


def _told(path: tuple[object, ...]) -> str:
    return "".join(map(str, path)) or "value"


def to_json(value: Any) -> Any:
    """`value` (plain or natural) as data that `json.dumps(…, allow_nan=False)` takes, made to be read by people.

    What JSON cannot hold is marked: `{"$float": "nan"}`, `{"$int": "0x…"}` beyond 64 bits,
    `{"$decimal": "1.50"}`, `{"$bytes": base64}`, `{"$map": [[key, value], …]}`, and
    `{"$text": …}`, the JSON escape of a text with half a character pair. All else is plain to see.
    """
    try:
        value = from_plain(value, GENERIC)
    except StateInvalid:
        pass  # not plain data, so it is a natural value already
    return _jsonable(value)


def _jsonable(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        return value if is_well_formed(value) else {"$text": json.dumps(value)[1:-1]}
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if -(2**63) <= value < 2**64 else {"$int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": str(value)}
    if kind in (list, tuple, set, frozenset):
        out = []
        for item in value:
            out.append(_jsonable(item))
        return out
    if isinstance(value, dict):
        if not all(type(key) is str and is_well_formed(key) for key in value):
            return {"$map": [[_jsonable(key), _jsonable(item)] for key, item in value.items()]}
        fields = {}
        for key, item in value.items():
            fields[key] = _jsonable(item)
        return fields
    if kind is bytes:
        return {"$bytes": base64.b64encode(value).decode()}
    if kind is Decimal:
        return {"$decimal": str(value)}
    if isinstance(value, EnumRef):
        return f"{value.type_name}.{value.member if isinstance(value.member, str) else hex(value.member)}"
    if isinstance(value, Enum):
        return f"{kind.__qualname__}.{value.name if value.name in kind.__members__ else hex(value.value)}"
    return _readable(value)


def _readable(value: Any) -> Any:
    if isinstance(value, datetime | time) and isinstance(value.tzinfo, ZoneInfo):
        return f"{value.isoformat()}[{value.tzinfo.key}]"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, UUID | timedelta):
        return str(value)
    if not is_storable(type(value)):
        what = f"value: {type(value).__qualname__} cannot be shown as JSON"
        raise NotStorable(what, hint="to_json(to_plain(value, types))")
    names, values, _unset = plan_for(type(value)).parts(value)
    return {name: _jsonable(part) for name, part in zip(names, values, strict=True)}
