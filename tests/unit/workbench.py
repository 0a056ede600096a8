"""A run's working copy beside every change it committed, for the tests of queues, logs and maps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from indelible.core.changes import Change, Doc, apply, retry_changes
from indelible.core.collections import Log, Map, Queue
from indelible.core.state import Shape, State, Workspace


@dataclass
class Note:
    text: str
    tags: list[str] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Point:
    x: int
    y: int


class Memory(State):
    tasks: Queue[str]
    jobs: Queue[Note]
    notes: Log[Note]
    words: Log[Any]
    prefs: Map[Any, Any]
    places: Map[Point, Note]


SHAPE = Shape.of(Memory)


class Bench:
    """A workspace and every change it has committed."""

    def __init__(self, doc: Doc | None = None) -> None:
        self.ws = Workspace(SHAPE, doc if doc is not None else SHAPE.initial_doc())
        assert isinstance(self.ws.state, Memory)
        self.state = self.ws.state
        self.history: list[Change] = []

    def open(self, now: float = 100.0) -> Memory:
        self.ws.open(now)
        return self.state

    def commit(self) -> list[Change]:
        changes = self.ws.changes()
        stored: list[Change] = msgspec.msgpack.decode(msgspec.msgpack.encode(changes))
        self.ws.commit(changes)
        self.history += stored
        folded = SHAPE.initial_doc()
        apply(folded, self.history)
        assert msgspec.msgpack.encode(folded) == msgspec.msgpack.encode(self.ws.doc)
        return changes

    def retry(self, error: str = "boom", limit: int = 3, not_before: float | None = None) -> bool:
        taken = self.ws.taken()
        self.ws.discard()
        changes, gave_up = retry_changes(self.ws.doc, taken, error, limit, not_before)
        self.ws.commit(changes)
        self.history += changes
        return gave_up
