"""What the piecewise fields of a State share.

Owns: the desk (is a cycle open, its time, the types), cells, and the base of Queue, Log and Map.
Must never: touch the document; only `changes.apply` does.
Invariant: what the user sees is the document with this cycle's changes laid over it, so
forgetting the overlay is a complete roll-back. What a field keeps across cycles (a queue's
heaps, a map's keys) is a cache over the document and never the truth.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from indelible.core.changes import Change, FieldDoc
from indelible.core.codec import Plain, Types, from_plain, pack, to_plain
from indelible.errors import Misuse

# Values of exactly these types cannot be mutated, so they are encoded once and never lent.
ATOMS = frozenset({str, int, float, bool, type(None), bytes, Decimal, UUID, datetime, date, time, timedelta})


class Desk:
    """What the fields of one State share: whether a cycle is open, its time, and the types.

    `now` is epoch seconds, and the same for the whole cycle.
    """

    __slots__ = ("is_open", "now", "types")

    def __init__(self, types: Types) -> None:
        self.types = types
        self.is_open = False
        self.now = 0.0

    def must_be_open(self, path: str) -> None:
        """Raise `Misuse` unless a cycle is open."""
        if not self.is_open:
            raise Misuse(f"{path} can only be changed inside a cycle", hint="with run.cycle(): ...")


class Cell:
    """A live value and the plain form it had when it was last encoded."""

    __slots__ = ("plain", "value")

    def __init__(self, value: Any, plain: Plain) -> None:
        self.value = value
        self.plain = plain

    def now(self, types: Types, *path: object) -> Plain:
        """The plain form of the value as it is at this moment."""
        return self.plain if type(self.value) in ATOMS else to_plain(self.value, types, *path)


def differs(new: Plain, old: Plain) -> bool:
    """Whether two plain forms are different values (1, 1.0 and True are)."""
    return new is not old and pack(new) != pack(old)


def brief(value: Any) -> str:
    """A short repr that cannot raise."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}, its repr failed>"
    return text if len(text) <= 60 else text[:57] + "..."


class Piecewise:
    """What Queue, Log and Map have in common. They are made by the run, never by the user."""

    __slots__ = ("_desk", "_field", "_name")

    _name: str
    _field: FieldDoc
    _desk: Desk

    def __init__(self) -> None:
        kind = type(self).__name__
        raise Misuse(
            f"a {kind} belongs to a State and is made by the run", hint=f"name: {kind}[str]  # in the State class"
        )

    @property
    def _path(self) -> str:
        return f"state.{self._name}"

    def _begin(self) -> None:
        if not self._desk.is_open:
            self._desk.must_be_open(self._path)

    def _encode(self, value: Any, where: object) -> Plain:
        return to_plain(value, self._desk.types, "state.", self._name, "[", where, "]")

    def _decode(self, plain: Plain, where: object) -> Any:
        return from_plain(plain, self._desk.types, "state.", self._name, "[", where, "]")

    def _forget(self) -> None:
        """Drop this cycle's overlay."""
        raise NotImplementedError

    def _changes(self) -> list[Change]:
        """What this cycle changed, values encoded as they are now; no side effect."""
        raise NotImplementedError

    def _applied(self, change: Change) -> None:
        """The document has taken `change` of this field: keep the caches true to it."""


def attach(kind: type[Any], name: str, field: FieldDoc, desk: Desk) -> Any:
    """Make the working copy of one field. `kind` is Queue, Log or Map."""
    made = object.__new__(kind)
    made._name, made._field, made._desk = name, field, desk
    made._setup()
    made._forget()
    return made
