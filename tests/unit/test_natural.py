"""State as natural data: there and back, and through a migration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from indelible.core.changes import Doc, retry_changes
from indelible.core.codec import GENERIC
from indelible.core.collections import Log, Map, Queue
from indelible.core.natural import from_natural, natural
from indelible.core.state import Shape, State, Workspace
from indelible.errors import StateInvalid


@dataclass
class Finding:
    task: str
    score: float = 0.0
    meta: dict[str, Any] = field(default_factory=dict)


class OldState(State):
    tasks: Queue[str]
    findings: Log[Finding]
    prefs: Map[str, int]
    note: str = "kept"
    best: Finding | None = None


class NewState(State):
    tasks: Queue[str]
    findings: Log[Finding]
    prefs: Map[str, int]
    best: Finding | None = None
    added: dict[str, int] = {"a": 1}  # noqa: RUF012


OLD, NEW = Shape.of(OldState), Shape.of(NewState)


def lived() -> Doc:
    """A document with something of everything: served, removed, waiting, retried and failed items."""
    ws = Workspace(OLD, OLD.initial_doc())
    state = ws.state
    assert isinstance(state, OldState)
    ws.open(0.0)
    state.tasks.extend(["done", "failed", "retried", "removed"])
    state.tasks.append("waits", priority=3, not_before=50.0)
    state.findings.extend([Finding("a", 0.5, {"k": (1,)}), Finding("b"), Finding("c")])
    state.findings.compact(2, Finding("summary"))
    state.prefs.update(x=1, y=2)
    state.best = Finding("best")
    ws.commit(ws.changes())
    ws.open(0.0)
    state.tasks.take()
    state.tasks.remove("removed")
    ws.commit(ws.changes())
    for limit in (1, 9):
        ws.open(0.0)
        state.tasks.take()
        taken = ws.taken()
        ws.discard()
        ws.commit(retry_changes(ws.doc, taken, "the error", limit, 20.0)[0])
    return ws.doc


class TestNatural:
    def test_there_and_back_is_the_same_document(self) -> None:
        """A migration that leaves everything alone keeps ids, attempts, failed items and counters."""
        doc = lived()
        for types in (GENERIC, OLD.types):
            again, unknown = from_natural(natural(doc, types), OLD, doc)
            assert msgspec.msgpack.encode(again) == msgspec.msgpack.encode(doc)
            assert unknown == {}

    def test_it_reads_as_ordinary_data(self) -> None:
        data = natural(lived(), GENERIC)
        assert data["tasks"] == [
            {"id": 2, "value": "retried", "priority": 0, "attempts": 1, "not_before": 20.0, "error": None},
            {"id": 4, "value": "waits", "priority": 3, "attempts": 0, "not_before": 50.0, "error": None},
            {"id": 1, "value": "failed", "priority": 0, "attempts": 1, "not_before": None, "error": "the error"},
        ]
        assert [item["task"] for item in data["findings"]] == ["b", "c"]
        assert data["findings.summary"]["task"] == "summary"
        assert data["prefs"] == {"x": 1, "y": 2}
        assert data["note"] == "kept"

    def test_fields_gone_are_kept_aside_and_fields_new_take_their_default(self) -> None:
        """B74, B75: an unknown field is handed back, never dropped; a missing one has its default."""
        doc = lived()
        made, unknown = from_natural(natural(doc, GENERIC), NEW, doc)
        assert unknown == {"note": "kept"}
        state = Workspace(NEW, made).state
        assert isinstance(state, NewState)
        assert state.added == {"a": 1}
        assert state.best == Finding("best")
        assert list(state.tasks) == ["retried", "waits"]
        assert (state.tasks.added, state.tasks.done, state.tasks.removed, len(state.tasks.failed)) == (5, 1, 1, 1)

    def test_a_migration_may_drop_add_and_change_items(self) -> None:
        doc = lived()
        data = natural(doc, GENERIC)
        data["tasks"] = [item for item in data["tasks"] if item["value"] != "waits"]
        data["tasks"].append({"value": "from the migration", "priority": -1})
        for item in data["tasks"]:
            item["value"] = item["value"].upper()
        data["findings"].append({"task": "a dict becomes a Finding"})
        made, _ = from_natural(data, NEW, doc)
        state = Workspace(NEW, made).state
        assert isinstance(state, NewState)
        assert list(state.tasks) == ["FROM THE MIGRATION", "RETRIED"]
        assert state.tasks.failed[0].value == "FAILED"
        assert (state.tasks.added, state.tasks.done, state.tasks.removed) == (6, 1, 2)
        assert state.findings[-1] == Finding("a dict becomes a Finding")
        assert state.findings.summary == Finding("summary")

    def test_a_queue_under_a_new_name_keeps_its_items_and_a_sound_count(self) -> None:
        class Renamed(State):
            todo: Queue[str]

        shape = Shape.of(Renamed)
        doc = lived()
        data = {"todo": natural(doc, GENERIC)["tasks"]}
        state = Workspace(shape, from_natural(data, shape, doc)[0]).state
        assert isinstance(state, Renamed)
        todo = state.todo
        assert list(todo) == ["retried", "waits"]
        assert todo.added == todo.done + todo.removed + len(todo.failed) + len(todo)

    @pytest.mark.parametrize(
        ("change", "path"),
        [
            ({"findings": [{"task": 1}]}, r"state\.findings\[0\]\.task"),
            ({"findings": {}}, r"state\.findings"),
            ({"prefs": {"x": "one"}}, r"state\.prefs\['x'\]"),
            ({"prefs": {1: 1}}, r"state\.prefs key"),
            ({"prefs": []}, r"state\.prefs"),
            ({"best": 3}, r"state\.best"),
            ({"tasks": [{"value": 3}]}, r"state\.tasks\[0\]\.value"),
            ({"tasks": ["x"]}, r"state\.tasks\[0\]"),
            ({"tasks": [{"value": "x", "prio": 1}]}, r"state\.tasks\[0\]"),
            ({"tasks": [{"value": "x", "priority": "1"}]}, r"state\.tasks\[0\]\.priority"),
            ({"tasks": [{"value": "x", "id": -1}]}, r"state\.tasks\[0\]\.id"),
            ({"tasks": "x"}, r"state\.tasks"),
        ],
    )
    def test_what_does_not_fit_is_named(self, change: dict[str, Any], path: str) -> None:
        doc = lived()
        with pytest.raises(StateInvalid, match=path):
            from_natural({**natural(doc, GENERIC), **change}, NEW, doc)

    def test_a_migration_that_returns_nothing_is_told_so(self) -> None:
        nothing: Any = None
        with pytest.raises(StateInvalid, match="must return a dict") as refused:
            from_natural(nothing, NEW, lived())
        assert "return data" in refused.value.hint

    def test_stand_ins_where_the_hint_is_any_are_resolved(self) -> None:
        class Loose(State):
            findings: Log[Finding]
            anything: Any = None

        shape = Shape.of(Loose)
        ws = Workspace(shape, shape.initial_doc())
        assert isinstance(ws.state, Loose)
        ws.open(0.0)
        ws.state.anything = [Finding("deep", meta={"inner": Finding("deeper")})]
        ws.commit(ws.changes())
        again, _ = from_natural(natural(ws.doc, GENERIC), shape, ws.doc)
        assert again == ws.doc
