"""Instances of user classes: taken apart, found by name, put together; and read without their code."""

from __future__ import annotations

import dataclasses
import re
import typing
from datetime import date, timedelta
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import pytest

from indelible.core.codec import (
    GENERIC,
    EnumRef,
    Plain,
    Record,
    Types,
    from_plain,
    to_json,
    to_plain,
)
from indelible.errors import Misuse, NotStorable, StateInvalid
from tests.unit.codec_samples import (
    ALL,
    Base,
    Circle,
    Color,
    Counted,
    Finding,
    Hammer,
    Level,
    Model,
    Node,
    Order,
    Perm,
    Point,
    Secretive,
    Tool,
    refused,
    trip,
)


def test_nothing_mutable_is_shared() -> None:
    given: dict[str, Any] = {"a": [1], "b": {"c": []}}
    plain = to_plain(given, ALL)
    given["a"].append(2)
    one, other = from_plain(plain, ALL), from_plain(plain, ALL)
    assert one == other == {"a": [1], "b": {"c": []}}
    one["b"]["c"].append(1)
    assert other["b"]["c"] == []
    assert plain == {"a": [1], "b": {"c": []}}


def test_a_dataclass_is_restored_without_running_its_init() -> None:
    kept = Finding("t", seed=3)
    kept.checked = True
    back = trip(kept)
    assert back == kept
    assert back.tags == ["made-3"]
    old: Plain = ["$r", "Finding", "task", "t"]
    assert from_plain(old, ALL).tags == []
    assert from_plain(old, ALL).tags is not from_plain(old, ALL).tags
    with pytest.raises(StateInvalid, match="v: Finding needs the field 'task'"):
        from_plain(["$r", "Finding", "meta", 1], ALL, "v")
    with pytest.raises(StateInvalid, match=re.escape("v[1]: Finding has no field 'gone'")):
        from_plain([0, ["$r", "Finding", "task", "t", "gone", 1]], ALL, "v")


def test_attributes_beyond_the_fields_are_refused() -> None:
    """B33: what no field would bring back is not dropped."""
    kept = Base("a")
    kept.extra = 1  # type: ignore[attr-defined]
    assert "Base carries 'extra', which is not a field" in refused([kept]).what
    bare = object.__new__(Base)
    assert "Base.title was never set" in refused(bare).what
    circle = Circle(2.0)
    assert circle.area > 12
    assert trip(circle) == Circle(2.0)

    Mine = dataclasses.make_dataclass("Mine", [("n", int)], bases=(dict,))
    assert "builds on dict" in refused(Mine(1), Types.of(Mine)).what


def test_subclasses_of_an_annotated_class_are_found() -> None:
    Late = dataclasses.make_dataclass("Late", [("more", int)], bases=(Base,), slots=True)
    late = Late("a", 3)
    assert trip(late) == late
    assert type(trip([Hammer(1)], Types.of(list[Tool]))[0]) is Hammer
    Double = dataclasses.make_dataclass("Double", [("a", int)], bases=(Base,))
    Double.__module__ = "elsewhere"
    other = dataclasses.make_dataclass("Double", [("b", int)], bases=(Base,))
    assert "two loaded classes are called Double" in refused(other("t", 1)).what


def test_structs_come_back_even_if_their_post_init_changes_them() -> None:
    assert trip(Counted(1)).n == 2
    with pytest.raises(StateInvalid, match="v: Counted has no field"):
        from_plain(["$r", "Counted", "m", 1], ALL, "v")


def test_models_keep_what_was_set_and_what_was_extra() -> None:
    for model in (Model(Name="a"), Model(Name="a", score=7), Model(Name="a", more=[1])):  # type: ignore[call-arg]
        back = trip(model)
        assert back == model
        assert back.model_fields_set == model.model_fields_set
        assert back.model_extra == model.model_extra
        assert to_plain(from_plain(to_plain(model, ALL), GENERIC), GENERIC) == to_plain(model, ALL)
    changed = Model(Name="a")
    changed.score = 3
    assert trip(changed).model_fields_set == {"name", "score"}
    assert "private" in refused(Secretive()).what


def test_stand_ins_go_through_unchanged_without_any_user_code() -> None:
    """B121: a journal is read without importing anything it names."""
    value = {"a": [Point(1.0), Color.RED, Perm.READ | Perm.WRITE], "b": {Point(2.0)}, Point(3.0): Order(order_id=1)}
    plain = to_plain(value, ALL)
    stand_in = from_plain(plain, GENERIC)
    assert stand_in["a"] == [Record("Point", {"x": 1.0, "y": 0.0}), EnumRef("Color", "RED"), EnumRef("Perm", 3)]
    assert to_plain(stand_in, GENERIC) == plain
    assert from_plain(to_plain(stand_in, GENERIC), ALL) == value
    assert Record("A", {"x": 1}) != Record("B", {"x": 1})
    assert Record("A", {"x": 1}).copy().type_name == "A"
    refused(Record("Point", {"x": 1.0}))
    assert from_plain(["$r", "os.system", "command", "true"], GENERIC).type_name == "os.system"
    with pytest.raises(StateInvalid):
        from_plain(["$r", "os.system", "command", "true"], ALL)


def test_an_enum_member_that_is_gone_is_named() -> None:
    """B35: a record is never swallowed."""
    with pytest.raises(StateInvalid, match=r"v\.a: Color has no member 'GREEN'"):
        from_plain({"a": ["$e", "Color", "GREEN"]}, ALL, "v")
    with pytest.raises(StateInvalid, match="malformed"):
        from_plain(["$e", "Perm", 64], ALL, "v")


def test_two_classes_of_one_name_are_a_mistake_found_at_once() -> None:
    def make(kind: type) -> type:
        return dataclasses.make_dataclass("Same", [("a", kind)])

    one, other = make(int), make(str)
    with pytest.raises(Misuse, match="two classes are called"):
        Types.of(list[one], other)  # type: ignore[valid-type]
    with pytest.raises(Misuse, match="two classes are called"):
        Types.of(one).merged(Types.of(other))
    assert Types.of(one).merged(Types.of(one, Color)).named.keys() == {one.__qualname__, "Color"}


class Shape(typing.TypedDict, total=False):
    where: Annotated[Point, "anything"]
    level: typing.Required[Level]


Ident = typing.NewType("Ident", Hammer)


def test_classes_are_collected_from_every_kind_of_annotation() -> None:
    found = Types.of(
        dict[str, list[tuple[Point, ...]]],
        Node | None,
        Shape,
        Ident,
        typing.Callable[[Color], Model],
        typing.Literal[Perm.READ],
    )
    assert set(found.named) == {"Point", "Node", "Level", "Hammer", "Color", "Model", "Perm"}


def test_an_unresolved_annotation_is_named_in_the_hint() -> None:
    Lost = dataclasses.make_dataclass("Lost", [("a", "NotThere"), ("b", Point)])
    types = Types.of(Lost)
    assert trip(Lost(1, Point(1.0)), types) == Lost(1, Point(1.0))
    with pytest.raises(StateInvalid) as caught:
        from_plain(["$r", "Gone"], types)
    assert "NotThere" in caught.value.hint


def test_json_is_readable() -> None:
    value = {
        "a": [1, 2.5, None, True, "x"], "b": (Decimal("1.50"), b"\0", 2**70), "c": {1: 2}, "d": Point(1.0),
        "e": Color.RED, "f": UUID(int=1), "g": date(2026, 1, 2), "h": timedelta(hours=1), "i": Perm.READ | Perm.WRITE,
    }  # fmt: skip
    expected = {
        "a": [1, 2.5, None, True, "x"],
        "b": [{"$decimal": "1.50"}, {"$bytes": "AA=="}, {"$int": hex(2**70)}],
        "c": {"$map": [[1, 2]]},
        "d": {"x": 1.0, "y": 0.0},
        "e": "Color.RED",
        "f": "00000000-0000-0000-0000-000000000001",
        "g": "2026-01-02",
        "h": "1:00:00",
        "i": "Perm.0x3",
    }
    assert to_json(to_plain(value, ALL)) == expected
    assert to_json(value) == expected
    assert to_json(["$nothing", 1]) == ["$nothing", 1]
    with pytest.raises(NotStorable):
        to_json(object())
