"""JSON Patch and dumps: against results written by hand, and against the fold of real states."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indelible.bill.document import Operation, apply, dump, keys_of, pointer
from indelible.bill.jsonform import fields_of, key_of, patch_of, replaced
from indelible.core.changes import Change, log_field, plain_field, queue_field
from indelible.core.codec import GENERIC, to_plain, unpack
from indelible.errors import Misuse
from tests.property.test_state_fold import Cycles, cycles, memory_ops, queue_ops

BY_HAND: list[tuple[dict[str, Any], list[Operation], dict[str, Any]]] = [
    ({"a": []}, [{"op": "add", "path": "/a/-", "value": 1}], {"a": [1]}),
    ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
    ({"a": [1, 2]}, [{"op": "replace", "path": "/a/0", "value": 9}], {"a": [9, 2]}),
    ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
    ({}, [{"op": "add", "path": "/b", "value": {}}, {"op": "add", "path": "/b/c", "value": 1}], {"b": {"c": 1}}),
    ({"b": {"c": 1}}, [{"op": "add", "path": "/b/c", "value": 2}], {"b": {"c": 2}}),
    ({"b": 1, "c": 2}, [{"op": "remove", "path": "/b"}], {"c": 2}),
    ({"a/b": 1, "m~n": 2}, [{"op": "replace", "path": "/a~1b", "value": 3}, {"op": "remove", "path": "/m~0n"}],
     {"a/b": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("state", "patch", "after"), BY_HAND, ids=[str(n) for n in range(len(BY_HAND))])
def test_a_patch_does_what_the_standard_says(
    state: dict[str, Any], patch: list[Operation], after: dict[str, Any]
) -> None:
    state = copy.deepcopy(state)
    apply(state, patch)
    assert state == after


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/b", "value": 1},
        {"op": "remove", "path": "/b"},
        {"op": "remove", "path": "/a/7"},
        {"op": "add", "path": "/a/x", "value": 1},
        {"op": "add", "path": "/c/d/e", "value": 1},
    ],
)
def test_a_patch_that_does_not_fit_is_refused(operation: Operation) -> None:
    with pytest.raises(Misuse, match=f"does not fit the state before it: {operation['op']} {operation['path']}"):
        apply({"a": [], "c": 1}, [operation])


def test_a_state_shares_nothing_with_the_patch() -> None:
    patch: list[Operation] = [{"op": "add", "path": "/a", "value": {"b": [1]}}]
    state: dict[str, Any] = {}
    apply(state, patch)
    apply(state, [{"op": "add", "path": "/a/b/-", "value": 2}])
    assert state == {"a": {"b": [1, 2]}}
    assert patch[0]["value"] == {"b": [1]}


@given(st.lists(st.text()))
def test_a_pointer_names_its_keys(keys: list[str]) -> None:
    assert keys_of(pointer(*keys)) == keys


def test_a_dump_is_what_json_dumps_gives() -> None:
    value: Any = {"é": [1, 2.5, None, True, "\n\u2028", {}]}
    assert dump(value) == json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    assert dump("\ud800") == b'"\xed\xa0\x80"'


class Shown(Cycles):
    """A run beside the JSON form of its state, to which each change is applied as a patch."""

    def __init__(self) -> None:
        self.shown: dict[str, Any] = {}
        super().__init__()
        self.shown = fields_of(self.ws.doc)

    def record(self, changes: list[Change]) -> None:
        super().record(changes)
        stored: Any = unpack(self.history[-1])
        before = fields_of(self.ws.doc)
        apply(self.shown, patch_of(self.ws.doc, stored))
        assert fields_of(self.ws.doc) == before

    def reopen(self, forward: float) -> None:
        shown = fields_of(self.ws.doc)
        assert json.dumps(self.shown, sort_keys=True) == json.dumps(shown, sort_keys=True)
        super().reopen(forward)


@settings(max_examples=60, deadline=None, database=None)
@given(cycles(st.one_of(queue_ops, memory_ops)))
def test_the_patches_of_a_run_give_its_state(history: list[tuple[list[Any], Any]]) -> None:
    """Whatever is done to queues, logs, maps and plain fields, committed or rolled back."""
    machine = Shown()
    for ops, outcome in history:
        for name, arguments in [*ops, outcome]:
            getattr(machine, name)(*arguments)


def test_a_changed_shape_is_a_patch_of_whole_fields() -> None:
    before = {"gone": plain_field(1), "same": plain_field(2), "other": log_field(), "tasks": queue_field()}
    after = {"same": plain_field(2), "other": plain_field("text"), "new": log_field(), "tasks": queue_field()}
    patch = replaced(before, after)
    assert [(op["op"], op["path"]) for op in patch] == [("remove", "/gone"), ("replace", "/other"), ("add", "/new")]
    state = fields_of(before)
    apply(state, patch)
    assert state == fields_of(after)


def test_no_two_keys_of_a_map_look_alike() -> None:
    keys: list[Any] = [1, "1", "$1", "$$1", 1.5, True, "true", None, b"1", (1,), "(1,)", "\ud800", ""]
    assert len({key_of(to_plain(key, GENERIC)) for key in keys}) == len(keys)
