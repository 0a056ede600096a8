"""The state of a run as JSON, and its changes as JSON Patch.

Owns: how a field's document looks in JSON, and the operations that each of its changes comes to.
Must never: apply a change; `core.changes` does that.
Invariant: `apply(fields_of(doc), patch_of(doc, changes))` is `fields_of` of the document after the changes.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from indelible.bill.document import Operation, pointer
from indelible.core import changes as ch
from indelible.core.changes import Change, Doc, FieldDoc
from indelible.core.codec import Plain, to_json

PLAIN, LOG, MAP, QUEUE = "plain", "log", "map", "queue"


def fields_of(doc: Doc) -> dict[str, Any]:
    """The state as data that `json.dumps` takes."""
    state: dict[str, Any] = {}
    for name, field in doc.items():
        state[name] = _value(field)
        if field[0] == LOG and field[ch.LOG_SUMMARY] is not None:
            state[summary_of(name)] = to_json(field[ch.LOG_SUMMARY])
    return state


def patch_of(doc: Doc, changes: list[Change]) -> list[Operation]:
    """What `changes` do to the JSON form of `doc`, which is left as it is."""
    # Only what an operation depends on is followed; the values are not copied.
    known = {name: _Field(name, doc[name]) for name in {change[0] for change in changes}}
    patch: list[Operation] = []
    for name, op, *args in changes:
        patch += getattr(known[name], f"{known[name].kind}_{op}")(*args)
    return patch


def replaced(before: Doc, after: Doc) -> list[Operation]:
    """From one document to another of other fields: what differs, field by field."""
    old, new = fields_of(before), fields_of(after)
    patch: list[Operation] = [{"op": "remove", "path": pointer(name)} for name in old if name not in new]
    for name, value in new.items():
        if name not in old or old[name] != value:
            patch.append({"op": "replace" if name in old else "add", "path": pointer(name), "value": value})
    return patch


def summary_of(name: str) -> str:
    """Where the summary of a log stands."""
    return f"{name}.summary"


def key_of(key: Plain) -> str:
    """A map's key as a JSON object's: a text is itself (with another $ before one at its start), anything else is its
    JSON after a $."""
    shown = to_json(key)
    if isinstance(shown, str) and isinstance(key, str):
        return f"${shown}" if shown.startswith("$") else shown
    return "$" + json.dumps(shown, separators=(",", ":"))


def _value(field: FieldDoc) -> Any:
    if field[0] == PLAIN:
        return to_json(field[ch.VALUE])
    if field[0] == LOG:
        return [to_json(item) for item in field[ch.LOG_ITEMS]]
    if field[0] == MAP:
        return {key_of(key): to_json(value) for key, value in field[ch.MAP_ENTRIES].values()}
    return {
        "items": {str(item_id): _waiting(item) for item_id, item in field[ch.ITEMS].items()},
        "failed": {str(item_id): _failed(item) for item_id, item in field[ch.FAILED].items()},
    }


def _waiting(item: list[Any]) -> dict[str, Any]:
    value, priority, attempts, not_before = item
    return {"value": to_json(value), "priority": priority, "attempts": attempts, "not_before": not_before}


def _failed(item: list[Any]) -> dict[str, Any]:
    value, priority, attempts, error = item
    return {"value": to_json(value), "priority": priority, "attempts": attempts, "error": error}


class _Field:
    """One field while its changes are translated; the methods are named after kind and change."""

    def __init__(self, name: str, field: FieldDoc) -> None:
        self.name = name
        self.kind: str = field[0]
        self._summary = self.kind == LOG and field[ch.LOG_SUMMARY] is not None
        if self.kind == QUEUE:
            self._next_id: int = field[ch.NEXT_ID]
            self._items: dict[int, list[Any]] = copy.copy(field[ch.ITEMS])
            self._gone: dict[int, list[Any]] = copy.copy(field[ch.FAILED])

    def plain_set(self, value: Plain) -> list[Operation]:
        return [self._op("replace", to_json(value))]

    def log_append(self, values: list[Plain]) -> list[Operation]:
        return [self._op("add", to_json(value), "-") for value in values]

    def log_set(self, index: int, value: Plain) -> list[Operation]:
        return [self._op("replace", to_json(value), index)]

    def log_compact(self, dropped: int, summary: Plain) -> list[Operation]:
        patch = [self._remove(0) for _ in range(dropped)]
        path = pointer(summary_of(self.name))
        if summary is not None:
            patch.append({"op": "add", "path": path, "value": to_json(summary)})
        elif self._summary:
            patch.append({"op": "remove", "path": path})
        self._summary = summary is not None
        return patch

    def map_put(self, key: Plain, value: Plain) -> list[Operation]:
        return [self._op("add", to_json(value), key_of(key))]

    def map_del(self, key: Plain) -> list[Operation]:
        return [self._remove(key_of(key))]

    def map_clear(self) -> list[Operation]:
        return [self._op("replace", {})]

    def queue_add(self, items: list[list[Any]]) -> list[Operation]:
        patch = []
        for value, priority, not_before in items:
            patch.append(self._wait(self._next_id, [value, priority, 0, not_before]))
            self._next_id += 1
        return patch

    def queue_take(self, ids: list[int]) -> list[Operation]:
        for item_id in ids:
            del self._items[item_id]
        return [self._remove("items", item_id) for item_id in ids]

    queue_remove = queue_take

    def queue_rank(self, ranks: list[list[int]]) -> list[Operation]:
        patch = []
        for item_id, priority in ranks:
            value, _, attempts, not_before = self._items[item_id]
            self._items[item_id] = [value, priority, attempts, not_before]
            patch.append(self._op("replace", priority, "items", item_id, "priority"))
        return patch

    def queue_attempt(self, item_id: int, not_before: float | None) -> list[Operation]:
        value, priority, attempts, _ = self._items[item_id]
        self._items[item_id] = [value, priority, attempts + 1, not_before]
        return [
            self._op("replace", attempts + 1, "items", item_id, "attempts"),
            self._op("replace", not_before, "items", item_id, "not_before"),
        ]

    def queue_fail(self, item_id: int, error: str) -> list[Operation]:
        value, priority, attempts, _ = self._items.pop(item_id)
        item = self._gone[item_id] = [value, priority, attempts + 1, error]
        return [self._remove("items", item_id), self._op("add", _failed(item), "failed", item_id)]

    def queue_revive(self, ids: list[int]) -> list[Operation]:
        patch = []
        for item_id in ids:
            value, priority, _, _ = self._gone.pop(item_id)
            patch += [self._remove("failed", item_id), self._wait(item_id, [value, priority, 0, None])]
        return patch

    def _wait(self, item_id: int, item: list[Any]) -> Operation:
        self._items[item_id] = item
        return self._op("add", _waiting(item), "items", item_id)

    def _op(self, op: str, value: Any, *keys: str | int) -> Operation:
        return {"op": op, "path": pointer(self.name, *keys), "value": value}

    def _remove(self, *keys: str | int) -> Operation:
        return {"op": "remove", "path": pointer(self.name, *keys)}
