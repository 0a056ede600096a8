"""Plain data to bytes and back, and the digest of plain data.

Owns: the `Plain` form, its MessagePack bytes, and its canonical bytes.
Must never: execute anything found in bytes, or import a class named there.
Invariant: `unpack(pack(p)) == p`; equal values have one digest, whatever the order of keys.

Plain data is what MessagePack knows by itself. Everything else is a list that begins with a
mark, one nesting level per value:

    $t $set $fset  tuple, set, frozenset          $l    a list whose own first item looks like a mark
    $map           dict, keys and values in turn   $r $p class name, then field names and values in turn
    $e             enum class, member              $i $s $dec $u $dt $date $time $td   one value each
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, TypeAlias

import msgspec

from indelible.errors import JournalDamaged, NotStorable

Plain: TypeAlias = "bool | int | float | str | bytes | list[Plain] | dict[str, Plain] | None"

MAX_DEPTH = 400
"""How many containers may be nested in one another, on writing and on reading."""

DEEP_HINT = f"flatten the value: at most {MAX_DEPTH} levels, and no part may contain itself"
ATOMS = frozenset({type(None), bool, int, float, str, bytes})
_MAP_MARK = b"\xa4$map"

_encode = msgspec.msgpack.Encoder().encode
_encode_sorted = msgspec.msgpack.Encoder(order="deterministic").encode


def _no_extensions(code: int, _data: memoryview) -> Any:
    raise ValueError(f"extension {code}")


_decode = msgspec.msgpack.Decoder(ext_hook=_no_extensions).decode


def pack(plain: Plain) -> bytes:
    """The bytes of `plain`; the same for equal plain data with the same order of keys."""
    try:
        return _encode(plain)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        reason = type(error).__name__
        raise NotStorable(f"value: not plain data ({reason})", hint="pack(to_plain(value, types))") from None


def unpack(data: bytes) -> Plain:
    """The plain data in `data`. Raises `JournalDamaged` on anything that is not; runs nothing."""
    try:
        return _decode(data)  # type: ignore[no-any-return]
    except RecursionError:
        raise JournalDamaged("a record is nested too deeply to be read", hint="indelible verify") from None
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        what = f"a record of {len(data)} bytes cannot be decoded ({type(error).__name__})"
        raise JournalDamaged(what, hint="indelible verify") from None


def digest(plain: Plain) -> bytes:
    """16 bytes that identify `plain`, whatever the order of keys: 1, 1.0, True, "1" and b"1" differ."""
    return blake2b(canonical(plain), digest_size=16).digest()


def canonical(plain: Any) -> bytes:
    data = _encode_sorted(plain)
    # A mark in the bytes may be a text that happens to look so; then sorting changes nothing.
    return _encode_sorted(_with_sorted_maps(plain)) if _MAP_MARK in data else data


def _with_sorted_maps(plain: Any) -> Any:
    if type(plain) is dict:
        out = {}
        for key, item in plain.items():
            out[key] = _with_sorted_maps(item)
        return out
    if type(plain) is not list:
        return plain
    items = []
    for item in plain:
        items.append(_with_sorted_maps(item))
    if not items or items[0] != "$map":
        return items
    pairs = sorted(zip(items[1::2], items[2::2], strict=False), key=lambda pair: _encode_sorted(pair[0]))
    return ["$map", *(part for pair in pairs for part in pair)]
