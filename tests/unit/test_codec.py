"""Round trip or refuse: every kind of value the contract names, and every kind it refuses."""

from __future__ import annotations

import collections
import json
import math
import re
import socket
import sys
import threading
import typing
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from indelible.core.codec import (
    GENERIC,
    MAX_DEPTH,
    Plain,
    Types,
    digest,
    from_plain,
    pack,
    to_json,
    to_plain,
    unpack,
)
from indelible.errors import JournalDamaged, NotStorable, StateInvalid
from tests.unit.codec_samples import (
    ALL,
    Base,
    Box,
    Color,
    Derived,
    Empty,
    Finding,
    Hammer,
    Kind,
    Level,
    Listing,
    Model,
    Node,
    Order,
    Pair,
    Perm,
    Point,
    refused,
    trip,
)

ZONE = ZoneInfo("America/New_York")
EXACT: list[Any] = [
    None,
    True,
    0,
    -(2**63),
    2**64 - 1,
    1.5,
    float("inf"),
    "",
    "nul \0 and 漢字",
    b"\0\xff",
    [],
    {},
    (),
    [1, "a", None],
    (1, (2, [3])),
    ["$t", 1],
    ["$l", "$map"],
    [["$"], "$set"],
    ("$t",),
    {"$t": "$r", "": 1},
    {1, 2, 3},
    frozenset({"a", ("b",)}),
    set(),
    {1: "a", (2, 3): "b", None: "c"},
    {"b": 1, "a": 2},
    Decimal("1.50"),
    Decimal("-0E+3"),
    Decimal("1E+999999"),
    UUID(int=5),
    date(2026, 3, 7),
    time(9, 0, fold=1),
    time(9, 0, 0, 7, tzinfo=UTC),
    timedelta(-1, 5, 7),
    datetime(1, 1, 1),  # noqa: DTZ001
    datetime(2026, 3, 7, 9, tzinfo=UTC),
    datetime(2026, 3, 7, 9, tzinfo=timezone(timedelta(hours=5, microseconds=3))),
    Color.CRIMSON,
    Level.HIGH,
    Kind.TASK,
    Perm.READ | Perm.WRITE,
    Perm(0),
    Base("a"),
    Derived("a", 3),
    Point(-0.0, 1),
    Empty(),
    Node("a", Node("b")),
    Box[int](held=3),
    Hammer(3),
    Order(order_id=1, line_items=("a", "b")),
    {Point(1.0, 2.0): {Point(3.0)}},
    {Level.LOW: 1, Kind.TASK: 2},
    Listing([1, 2]),
]


# Not by what they hold: sets are shown in another order in each process.
@pytest.mark.parametrize("value", EXACT, ids=[f"{n} {type(value).__name__}" for n, value in enumerate(EXACT)])
def test_comes_back_equal_and_of_the_same_class(value: Any) -> None:
    """B34, B35: nothing becomes a placeholder text, and nothing changes its class."""
    back = trip(value)
    assert back == value
    assert type(back) is type(value)
    if not isinstance(value, set | frozenset):  # whose items print in an order that depends on hashes
        assert repr(back) == repr(value)


def test_every_container_subclass_is_refused_with_the_way_out() -> None:
    """B33: exact type back or refusal, never a silent downgrade."""

    class Text(str):
        pass

    class Number(int):
        pass

    cases: list[tuple[Any, str]] = [
        (collections.defaultdict(list), "dict(value)"),
        (collections.Counter("aa"), "dict(value)"),
        (collections.OrderedDict(), "dict(value)"),
        (collections.deque([1], maxlen=2), "list(value)"),
        (Pair(1, 2), "tuple(value), or a dataclass"),
        (Text("a"), "str(value)"),
        (Number(1), "int(value)"),
        (bytearray(b"a"), "bytes(value)"),
        (memoryview(b"a"), "bytes(value)"),
        (range(3), "list(value)"),
        (1j, "(value.real, value.imag)"),
        (Path("a"), "str(value)"),
        (iter([1]), "list(value)"),
        (ValueError("a"), "str(value)"),
    ]
    for value, hint in cases:
        assert refused(value).hint == hint
        assert refused({"a": [value]}).what.startswith("state.x.a[0]: ")
        assert refused({"k": (value,)}).hint == hint


def test_a_numpy_scalar_is_told_to_become_a_python_one() -> None:
    """B33: numpy scalars are recognised by what they offer, without importing numpy."""

    class float32:
        def tolist(self) -> float:
            return 1.0

    assert refused(float32()).hint == "value.tolist()"


@pytest.mark.parametrize(
    "value",
    [sys, lambda: None, threading.Lock(), object(), socket.socket, Ellipsis, NotImplemented, int, print, iter(())],
    ids=lambda value: type(value).__name__,
)
def test_live_things_are_refused_with_their_path(value: Any) -> None:
    """B38: a module, a lambda, a lock or a client is refused where it sits."""
    error = refused({"findings": [0, 1, Finding("t", meta={"x": value})]}, path="state")
    assert error.what == f"state.findings[2].meta.x: {type(value).__qualname__} cannot be stored"
    assert error.hint


def test_a_coroutine_and_a_generator_are_refused() -> None:
    """B38."""

    async def later() -> None: ...

    coroutine = later()
    assert "coroutine cannot be stored" in refused(coroutine).what
    coroutine.close()
    assert "generator cannot be stored" in refused(each for each in [1]).what


def test_a_class_outside_the_annotations_names_the_annotation_to_write() -> None:
    """B35: the refusal says what to write."""
    error = refused([Point(1.0)], Types.of(int))
    assert error.what == "state.x[0]: Point cannot be stored"
    assert "Point" in error.hint
    assert "annotate" in error.hint
    with pytest.raises(StateInvalid, match=re.escape("s[0]: no class Point is reachable")):
        from_plain(to_plain([Point(1.0)], ALL), Types.of(int), "s")


@pytest.mark.parametrize("text", ["abc\ud83d", "\udce9", "\ud83d\ude00", "é\ud800漢"])
def test_a_lone_surrogate_survives_everywhere(text: str) -> None:
    """B39: as a value, a key, a field's content, a set item; and JSON for people is well-formed."""
    for value in (text, [text], {text: text}, {text}, (text,), Base(text), {"a": {text: 1}}):
        assert trip(value) == value
    shown = json.dumps(to_json({"a": text, "b": {text: 1}}), ensure_ascii=False)
    assert shown.encode()
    assert to_json(text)["$text"].isascii()


def test_nan_infinities_and_negative_zero() -> None:
    """B41: they round-trip, equal NaNs have one digest, and JSON marks them."""
    strange = float.fromhex("nan") * -1
    assert math.isnan(trip(strange))
    assert digest(to_plain(strange, ALL)) == digest(to_plain(float("nan"), ALL))
    assert pack(to_plain([strange], ALL)) == pack(to_plain([float("nan")], ALL))
    assert math.copysign(1, trip(-0.0)) == -1
    assert trip([float("inf"), float("-inf")]) == [float("inf"), float("-inf")]
    nan_keyed = trip({float("nan"): 1, float("inf"): 2})
    assert [math.isnan(key) for key in nan_keyed] == [True, False]
    assert len(trip({float("nan"), float("nan")})) == 2
    shown = json.dumps(to_json({"a": float("nan"), "b": float("-inf")}), allow_nan=False)
    assert json.loads(shown) == {"a": {"$float": "nan"}, "b": {"$float": "-inf"}}


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1, 10**5000 + 7, -(10**20_000)], ids=int.bit_length)
def test_integers_of_any_size(number: int) -> None:
    """B42: also beyond Python's limit on digits in a text."""
    assert trip(number) == number
    assert trip({number: [number]}) == {number: [number]}
    assert json.dumps(to_json(number))
    refused({number: sys})


def test_a_zone_keeps_its_key_and_fold() -> None:
    """B43: a day later is a day later on the wall clock, across a change to summer time."""
    before = datetime(2026, 3, 7, 9, tzinfo=ZONE)
    back = trip(before)
    assert back.tzinfo is ZONE
    assert (back + timedelta(days=1)).isoformat() == "2026-03-08T09:00:00-04:00"
    folded = datetime(2026, 11, 1, 1, 30, tzinfo=ZONE, fold=1)
    assert trip(folded).fold == 1
    assert trip(folded).utcoffset() == folded.utcoffset()
    assert to_json(folded) == "2026-11-01T01:30:00-05:00[America/New_York]"
    named = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1), "half\ud83d"))
    assert trip(named).tzname() == "half\ud83d"
    assert repr(trip(datetime(2026, 1, 1, tzinfo=timezone(timedelta(0), "UTC")))) == repr(
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(0), "UTC"))
    )


def test_a_zone_that_could_not_be_found_again_is_refused() -> None:
    """B43: or refusal."""

    class Odd(tzinfo):
        def utcoffset(self, _dt: datetime | None) -> timedelta:
            return timedelta(hours=1)

        def dst(self, _dt: datetime | None) -> timedelta:
            return timedelta(0)

        def tzname(self, _dt: datetime | None) -> str:
            return "odd"

    assert "time zone of type" in refused(datetime(2026, 1, 1, tzinfo=Odd())).what

    class Frozen(datetime):
        pass

    assert "fromisoformat" in refused(Frozen(2026, 1, 1)).hint
    with pytest.raises(StateInvalid, match=r"v: the time zone 'Mars/Olympus' is not known"):
        from_plain(["$dt", "2026-01-01T00:00:00", 0, "Mars/Olympus"], ALL, "v")
    with pytest.raises(StateInvalid, match="malformed"):
        from_plain(["$dt", "2026-01-01T00:00:00", 0, "../../etc/passwd"], ALL, "v")


def nested(levels: int, wrap: typing.Callable[[Any], Any]) -> Any:
    value: Any = "core"
    for _ in range(levels):
        value = wrap(value)
    return value


WRAPS: dict[str, typing.Callable[[Any], Any]] = {
    "list": lambda inner: [inner],
    "tuple": lambda inner: (inner,),
    "dict": lambda inner: {"k": inner},
    "int keys": lambda inner: {1: inner},
    "frozenset": lambda inner: frozenset([inner]),
    "dataclass": lambda inner: Box(inner),
    "struct": lambda inner: Order(order_id=1, line_items=inner),
    "model": lambda inner: Model(Name="a", more=inner),  # type: ignore[call-arg]
}


def deep(frames: int, call: typing.Callable[[], Any]) -> Any:
    return call() if frames <= 0 else deep(frames - 1, call)


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS.keys())
def test_four_hundred_levels_and_no_more(wrap: typing.Callable[[Any], Any]) -> None:
    """B46: the same limit on writing and reading, from a caller 300 frames deep."""
    value = nested(MAX_DEPTH, wrap)
    frames = 300 - frames_here()
    data = deep(frames, lambda: pack(to_plain(value, ALL)))
    back = deep(frames, lambda: from_plain(unpack(data), ALL))
    assert deep(frames, lambda: pack(to_plain(back, ALL))) == data
    assert deep(frames, lambda: digest(unpack(data))) == digest(to_plain(value, ALL))
    assert "nested more than 400 levels" in refused(wrap(value)).what


def frames_here() -> int:
    count, frame = 0, sys._getframe().f_back
    while frame is not None:
        count, frame = count + 1, frame.f_back
    return count


def test_endless_and_absurd_nesting_gives_a_typed_error() -> None:
    """B46: a list that contains itself, 100,000 levels, a full stack, deep bytes: the process survives."""
    endless: list[Any] = []
    endless.append({"me": endless})
    error = refused({"a": endless})
    assert "contains itself" in error.what
    assert error.what.startswith("state.x.a[0].me[0].me")
    assert len(error.what) < 250
    assert "contains itself" in refused(nested(100_000, lambda inner: [inner])).what
    left = sys.getrecursionlimit() - frames_here() - 100
    with pytest.raises(NotStorable, match="v: nested too deeply for the stack"):
        deep(left, lambda: to_plain(nested(350, lambda inner: [inner]), ALL, "v"))
    plain = to_plain(nested(350, lambda inner: (inner,)), ALL)
    with pytest.raises(StateInvalid, match="v: nested too deeply for the stack"):
        deep(left, lambda: from_plain(plain, ALL, "v"))
    with pytest.raises(JournalDamaged):
        unpack(b"\x91" * 100_000 + b"\x01")
    for wrap in (lambda inner: [inner], lambda inner: {"k": inner}, lambda inner: ["$t", inner]):
        with pytest.raises(StateInvalid, match="nested more than 400 levels"):
            from_plain(nested(MAX_DEPTH + 1, wrap), ALL)


def test_digests_are_typed() -> None:
    """B115: 1, 1.0, True, "1", b"1" and their kin are different arguments."""
    values: list[Any] = [
        1, 1.0, True, "1", b"1", Decimal(1), [1], (1,), {1}, frozenset({1}), {"1": 1}, {1: 1}, Level.LOW, Perm.READ,
        "None", None, [], (), {}, "", b"", 0, -0.0, 0.0, False, Color.RED, "RED",
        Base("a"), Derived("a"), {"title": "a"},
        ["$t", 1], ["$l", "$t", 1], date(2026, 1, 1), "2026-01-01", UUID(int=1), timedelta(1), timedelta(0, 1), 2**64,
    ]  # fmt: skip
    digests = [digest(to_plain(value, ALL)) for value in values]
    assert {len(one) for one in digests} == {16}
    assert len(set(digests)) == len(values)


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    """B115: two ways to write one dict are one argument; the order itself is kept in the bytes."""
    pairs: list[tuple[dict[Any, Any], dict[Any, Any]]] = [
        ({"a": 1, "b": [{"c": 1, "d": 2}]}, {"b": [{"d": 2, "c": 1}], "a": 1}),
        ({1: "a", 2: {3: 4, (5,): 6}}, {2: {(5,): 6, 3: 4}, 1: "a"}),
        ({"x": {"\ud800": 1, "b": 2}}, {"x": {"b": 2, "\ud800": 1}}),
    ]
    for one, other in pairs:
        assert digest(to_plain(one, ALL)) == digest(to_plain(other, ALL))
        assert pack(to_plain(one, ALL)) != pack(to_plain(other, ALL))
        assert list(trip(one)) == list(one)
    text = {"b": "$map", "a": ["$map", "z", 1, "y", 2]}
    assert digest(to_plain(text, ALL)) != digest(to_plain({"b": "$map", "a": ["$map", "y", 2, "z", 1]}, ALL))
    assert pack(to_plain({"b", "a", "c"}, ALL)) == pack(to_plain({"c", "b", "a"}, ALL))


MALFORMED: list[Any] = [
    ["$x"], ["$i"], ["$i", "a"], ["$s", b"\xff"], ["$u", b"1"], ["$dec", "x"], ["$dt", "x", 0], ["$dt", 1],
    ["$td", "a", 1, 1], ["$dt", "2026-01-01", 0, 10**15], ["$time", "x", 5], ["$date", 1], ["$u", b"1" * 16, "x"],
    ["$map", 1], ["$map", [], 1], ["$map", 1, 2, 1, 2], ["$set", [1]], ["$set", 1, True], ["$fset", {}],
    ["$r"], ["$r", "Base"], ["$r", 1], ["$r", "Base", "title"], ["$r", "Base", 1, 2], ["$r", "Base", ["$t"], 2],
    ["$r", "Base", [], 2], ["$r", "Color", "a", 1], ["$p"], ["$p", "Base", "x"], ["$p", "Base", -1],
    ["$p", "Model", 0, 1, 2], ["$e"], ["$e", "Color", 1], ["$e", "Base", "a"], ["$e", "Color", None],
    {1: 2}, (1,), datetime(2026, 1, 1, tzinfo=UTC), {"a": {1}}, ["$r", [], "a", 1],
]  # fmt: skip


@pytest.mark.parametrize("plain", MALFORMED, ids=lambda plain: ascii(plain)[:40])
def test_malformed_plain_data_is_a_typed_error(plain: Any) -> None:
    """B121: whatever is found on disk, reading it gives a value or a typed error."""
    with pytest.raises(StateInvalid, match=r"^v\.k"):
        from_plain({"k": plain}, ALL, "v")
    try:
        from_plain(plain, GENERIC)
    except StateInvalid:
        pass


def test_pack_refuses_what_is_not_plain() -> None:
    for wrong in ("\ud800", 2**64, object()):
        with pytest.raises(NotStorable):
            pack(typing.cast(Plain, wrong))
    overlong, extension = b"\xdd\xff\xff\xff\xff", b"\xd6\x05\0\0\0\1"
    surrogate, odd_key = b"\xa3\xed\xa0\x80", b"\x81\x91\x81\1\1\2"
    for wrong_bytes in (b"", b"\xc1", b"\x01\x01", overlong, extension, surrogate, odd_key):
        with pytest.raises(JournalDamaged):
            unpack(wrong_bytes)


def test_a_hundred_megabytes_of_text() -> None:
    text = "0123456789" * 10_000_000
    assert trip(text) == text
