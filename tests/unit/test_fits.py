"""Values against type hints: what fits stays as it is, what nearly fits becomes the class, the rest is refused."""

from __future__ import annotations

import enum
import re
from abc import ABC
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, Generic, Literal, NewType, NotRequired, Optional, Protocol, TypedDict, TypeVar

import msgspec
import pydantic
import pytest

from indelible.core.codec import EnumRef, Record, check_fits
from indelible.errors import StateInvalid

T = TypeVar("T")


class Color(enum.Enum):
    RED = 1


class Perm(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Finding:
    task: str
    score: int = None  # type: ignore[assignment]  # loosely typed on purpose
    color: Color | None = None
    parts: list[Part] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Part:
    n: int


@dataclass(frozen=True, slots=True)
class Bigger(Part):
    more: str = ""


@dataclass
class Box(Generic[T]):
    held: T


class Order(msgspec.Struct):
    part: Part
    note: str = ""


class Model(pydantic.BaseModel):
    name: str = pydantic.Field(alias="Name")
    part: Part | None = None


class Shape(TypedDict):
    part: Part
    note: NotRequired[str]


class Tool(ABC):  # noqa: B024  # a base that holds nothing itself
    pass


@dataclass
class Hammer(Tool):
    weight: int


class Talker(Protocol):
    def talk(self) -> str: ...


Ident = NewType("Ident", int)

FITTING: list[tuple[Any, Any]] = [
    (1, int), (True, int), (1, float), (1.5, float), ("a", str), (None, None), (None, int | None), ("a", int | str),
    ([1, 2], list[int]), ((1, "a"), tuple[int, str]), ((1, 2, 3), tuple[int, ...]), ((), tuple[()]), ({1}, set[int]),
    ({"a": [1]}, dict[str, list[int]]), ({"a": 1}, Mapping[str, int]), (["a"], Sequence[str]), ("abc", Sequence[str]),
    ([1], Iterable[int]), (frozenset({1}), frozenset[int]), (Color.RED, Color), (Color.RED, Literal[Color.RED]),
    (1, Literal[1, 2]), (date(2026, 1, 1), date), (Finding("a"), Finding), (Bigger(1), Part), (Box("a"), Box[str]),
    (5, Any), (5, T), (5, Talker), (len, Callable[..., Any]), (5, "NotResolved"), (1, Ident), (1, Annotated[int, "x"]),
    (Record("A", {"x": 1}), Any), ({"part": Part(1)}, Shape), (Hammer(1), Tool), (5, object), (Model(Name="a"), Model),
]  # fmt: skip


@pytest.mark.parametrize(("value", "hint"), FITTING, ids=lambda each: str(each)[:40])
def test_what_fits_is_returned_as_it_is(value: Any, hint: Any) -> None:
    assert check_fits(value, hint, "v") is value


MISFITS: list[tuple[Any, Any, str]] = [
    ("1", int, "v: expected int, found str"),
    (1.0, int, "v: expected int, found float"),
    (None, int, "v: expected int, found NoneType"),
    (True, Literal[1], "v: expected one of 1, found bool"),
    ([1, "a"], list[int], "v[1]: expected int, found str"),
    ((1,), list[int], "v: expected list, found tuple"),
    ((1, 2), tuple[int, str], "v[1]: expected str, found int"),
    ((1, 2), tuple[int], "v: expected a tuple of 1, found one of 2"),
    ({"a": {"b c": "x"}}, dict[str, dict[str, int]], "v.a['b c']: expected int, found str"),
    ({1: 1}, dict[str, int], "v[0x1]: expected str, found int"),
    (1.5, int | str, "v: expected int | str, found float"),
    ({"a": [{"n": "x"}]}, dict[str, list[Part] | None], "v.a[0].n: expected int, found str"),
    (Record("A"), dict[str, Any], "v: expected dict, found a A record"),
    (Record("A"), dict, "v: expected dict, found a A record"),
    (Record("A"), Tool, "v: expected Tool, found a A record"),
    ({"weight": 1}, Tool, "v: expected Tool, found dict"),
    ({"n": 1, "m": 2}, Part, "v: Part has no field 'm'"),
    ({}, Part, "v: Part needs the field 'n'"),
    (Part("x"), Part, "v.n: expected int, found str"),  # type: ignore[arg-type]
    ({"task": "a", "score": "high"}, Finding, "v.score: expected int, found str"),
    (EnumRef("Color", "BLUE"), Color, "v: Color has no member 'BLUE'"),
    ("RED", Color, "v: expected Color, found str"),
    ({"note": "a"}, Shape, "v: Shape needs the key 'part'"),
    ({"part": Part(1), "note": 5}, Shape, "v.note: expected str, found int"),
    ({"Name": 5}, Model, "v.Name: does not fit Model (string_type)"),
    ({"Name": "a", "gone": 5}, Model, "v: Model has no field 'gone'"),
    (Model.model_construct(name="a", part=5), Model, "v.part: expected Part | None, found int"),
]


@pytest.mark.parametrize(("value", "hint", "told"), MISFITS, ids=[told for _value, _hint, told in MISFITS])
def test_what_does_not_fit_is_refused_with_its_path(value: Any, hint: Any, told: str) -> None:
    with pytest.raises(StateInvalid, match=f"^{re.escape(told)}") as caught:
        check_fits(value, hint, "v")
    assert caught.value.hint


def test_dicts_and_stand_ins_become_the_class_the_hint_names() -> None:
    part = {"n": 1}
    assert check_fits(part, Part, "v") == Part(1)
    assert check_fits([part], list[Part], "v") == [Part(1)]
    assert check_fits({"a": part}, dict[str, Optional[Part]], "v") == {"a": Part(1)}  # noqa: UP045
    assert check_fits((part, 1), tuple[Part, int], "v") == (Part(1), 1)
    assert check_fits({"task": "a", "parts": [part]}, Finding, "v") == Finding("a", parts=[Part(1)])
    assert check_fits({"part": part}, Order, "v") == Order(Part(1))
    assert check_fits({"part": part}, Shape, "v") == {"part": Part(1)}
    assert check_fits({"Name": "a", "part": part}, Model, "v") == Model(Name="a", part=Part(1))
    assert check_fits({"name": "a"}, Model, "v") == Model(Name="a")
    assert check_fits(Record("Model", {"name": "a", "part": None}, {"part"}), Model, "v").model_fields_set == {"name"}
    assert check_fits(Record("Part", part), Part, "v") == Part(1)
    assert check_fits(Record("OldPart", part), Part, "v") == Part(1)
    assert check_fits(EnumRef("Color", "RED"), Color, "v") is Color.RED
    assert check_fits(EnumRef("Perm", 3), Perm, "v") == Perm.READ | Perm.WRITE
    assert part == {"n": 1}


def test_a_stand_in_finds_its_own_class_among_several() -> None:
    assert check_fits(Record("Bigger", {"n": 1, "more": "x"}), Part, "v") == Bigger(1, "x")
    assert type(check_fits(Record("Bigger", {"n": 1, "more": ""}), Part | Bigger, "v")) is Bigger
    assert type(check_fits(Record("Bigger", {"n": 1, "more": ""}), Bigger | Part, "v")) is Bigger
    assert type(check_fits(Record("Part", {"n": 1}), Bigger | Part, "v")) is Part
    assert type(check_fits({"n": 1, "more": "x"}, Part | Bigger, "v")) is Bigger
    assert check_fits(Record("Hammer", {"weight": 1}), Tool, "v") == Hammer(1)


def test_nothing_given_is_changed() -> None:
    kept = Finding("a")
    old: list[Any] = [{"n": 1}]
    kept.parts = old
    fitted = check_fits(kept, Finding, "v")
    assert fitted == Finding("a", parts=[Part(1)])
    assert kept.parts is old
    assert old == [{"n": 1}]
    assert fitted is not kept
    assert check_fits(Finding("a", score=None), Finding, "v").score is None  # type: ignore[arg-type]
