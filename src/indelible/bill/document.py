"""A state as JSON: its text, and how a patch changes it.

Owns: JSON Pointers, the three operations of JSON Patch (RFC 6902) that a course uses, and the bytes of a dump.
Must never: let a state share a list or an object with the patch it came from.
Invariant: `dump(state)` is `json.dumps` without spaces, in UTF-8, to the byte.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from typing import Any

from indelible.errors import Misuse

Operation = dict[str, Any]


def dump(value: Any) -> bytes:
    """The JSON text of `value`, without spaces and with its characters as they are. Half of a character pair, which
    no UTF-8 can hold, is written as the three bytes it would have."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def pointer(*keys: str | int) -> str:
    """The JSON Pointer (RFC 6901) to what stands under `keys`."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def keys_of(path: str) -> list[str]:
    """The keys that a JSON Pointer names."""
    return [key.replace("~1", "/").replace("~0", "~") for key in path.split("/")[1:]]


def apply(state: dict[str, Any], patch: Iterable[Operation]) -> None:
    """Change `state` in place. Raises `Misuse` for an operation that does not fit it; those before it have been
    applied by then."""
    for operation in patch:
        try:
            _apply(state, operation)
        except (LookupError, TypeError, ValueError):
            what = f"{operation.get('op')} {operation.get('path')}"
            raise Misuse(f"the patch does not fit the state before it: {what}", hint='{"op": "add", …}') from None


def _apply(state: dict[str, Any], operation: Operation) -> None:
    name, (*parents, last) = operation["op"], keys_of(operation["path"])
    place: Any = state
    for key in parents:
        place = place[int(key) if isinstance(place, list) else key]
    if name == "remove":
        del place[int(last) if isinstance(place, list) else last]
        return
    value = copy.deepcopy(operation["value"])
    if isinstance(place, list):
        if name == "replace":
            place[int(last)] = value
        else:
            place.insert(len(place) if last == "-" else int(last), value)
    elif name == "add" or last in place:
        place[last] = value
    else:
        raise LookupError(last)
