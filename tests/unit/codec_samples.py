"""Classes of every storable kind, and what each test does with a value."""

from __future__ import annotations

import enum
import math
from abc import ABC
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import pydantic
import pytest

from indelible.core.codec import (
    Types,
    from_plain,
    pack,
    to_plain,
    unpack,
)
from indelible.errors import NotStorable

T = TypeVar("T")


class Color(enum.Enum):
    RED = "r"
    BLUE = "b"
    CRIMSON = "r"  # noqa: PIE796  # an alias on purpose


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Kind(enum.StrEnum):
    TASK = "task"


class Perm(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Base:
    title: str


@dataclass
class Derived(Base):
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float = 0.0


@dataclass(frozen=True, slots=True)
class Empty:
    pass


@dataclass
class Finding:
    task: str
    meta: Any = None
    tags: list[str] = field(default_factory=list)
    checked: bool = field(default=False, init=False)
    seed: InitVar[int] = 0

    def __post_init__(self, seed: int) -> None:
        self.tags.append(f"made-{seed}")


@dataclass
class Node:
    name: str
    next: Node | None = None


@dataclass
class Box(Generic[T]):
    held: T


@dataclass
class Circle:
    radius: float

    @cached_property
    def area(self) -> float:
        return self.radius**2 * math.pi


class Tool(ABC):  # noqa: B024  # an annotation may name a base that holds nothing itself
    pass


@dataclass
class Hammer(Tool):
    weight: int


class Order(msgspec.Struct, frozen=True, kw_only=True, tag="order", rename="camel"):
    order_id: int
    line_items: tuple[str, ...] = ()


class Counted(msgspec.Struct):
    n: int

    def __post_init__(self) -> None:
        self.n += 1


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    name: str = pydantic.Field(alias="Name")
    score: int = 7


class Secretive(pydantic.BaseModel):
    shown: int = 0
    _hidden: int = pydantic.PrivateAttr(default=3)


class Listing(pydantic.RootModel[list[int]]):
    pass


class Pair(NamedTuple):
    a: int
    b: int


ENUMS = (Color, Level, Kind, Perm)
MODELS = (Order, Counted, Model, Secretive, Listing)
ALL = Types.of(*ENUMS, *MODELS, Base, Point, Empty, Finding, Node, Box[int], Circle, Tool)


def trip(value: Any, types: Types = ALL) -> Any:
    plain = to_plain(value, types)
    data = pack(plain)
    assert pack(unpack(data)) == data
    return from_plain(unpack(data), types)


def refused(value: Any, types: Types = ALL, path: str = "state.x") -> NotStorable:
    with pytest.raises(NotStorable) as caught:
        to_plain(value, types, path)
    assert caught.value.what.startswith(path)
    return caught.value
