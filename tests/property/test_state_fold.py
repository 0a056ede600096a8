"""Random cycles, committed or rolled back: live state, folded state and a plain-Python model agree.

The model is ordinary lists and dicts that are deep-copied when a cycle opens and put back when
it rolls back. After each cycle: the document equals a fresh one folded from every change as
stored, the State shows what the model holds, and the queue's counters add up.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indelible.core.changes import Change, apply, retry_changes
from indelible.core.codec import GENERIC, pack, unpack
from indelible.core.collections import Log, Map, NotDue, Queue
from indelible.core.natural import from_natural, natural
from indelible.core.state import Shape, State, Workspace

ATTEMPTS_LIMIT = 2


@dataclass
class Note:
    text: str
    tags: list[Any] = field(default_factory=list)


class Memory(State):
    tasks: Queue[Any]
    notes: Log[Note | str]
    prefs: Map[Any, Any]
    bag: dict[str, Any] = {}  # noqa: RUF012
    count: int | float | bool = 0


@dataclass
class Item:
    id: int
    value: Any
    priority: int
    not_before: float | None
    attempts: int = 0


@dataclass
class Model:
    items: list[Item] = field(default_factory=list)
    failed: list[Item] = field(default_factory=list)
    added: int = 0
    done: int = 0
    removed: int = 0
    notes: list[Any] = field(default_factory=list)
    summary: Any = None
    prefs: dict[Any, Any] = field(default_factory=dict)
    bag: dict[str, Any] = field(default_factory=dict)
    count: int | float | bool = 0

    def served(self, now: float) -> list[Item]:
        def key(item: Item) -> tuple[bool, float, int, int]:
            late = item.not_before is not None and item.not_before > now
            return (late, item.not_before if late and item.not_before is not None else 0.0, item.priority, item.id)

        return sorted(self.items, key=key)


SHAPE = Shape.of(Memory)
texts = st.sampled_from(["a", "b", "", "\ud800", "$t", "long" * 20])
atoms = st.one_of(texts, st.integers(-2, 2), st.booleans(), st.none(), st.sampled_from([-0.0, 0.0, 1.0, 2**70]))
values = st.recursive(atoms, lambda inner: st.lists(inner, max_size=2) | st.tuples(inner), max_leaves=3)
keys = st.one_of(st.integers(0, 2), st.booleans(), st.sampled_from(["a", "b", 1.0, (1, "x")]))
notes = st.builds(Note, texts, st.lists(atoms, max_size=2)) | texts
times = st.none() | st.floats(0.0, 40.0)
moves = st.floats(-3.0, 10.0)
priorities = st.integers(-1, 1)


def exact(value: Any) -> Any:
    """A form in which 1, 1.0 and True, and 0.0 and -0.0, differ."""
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *(exact(item) for item in value)]
    if isinstance(value, dict):
        return ["dict", *([exact(key), exact(item)] for key, item in value.items())]
    if isinstance(value, Note):
        return ["Note", exact(value.text), exact(value.tags)]
    return [type(value).__name__, repr(value)]


class Cycles:
    """A run beside its model."""

    def __init__(self) -> None:
        self.ws = Workspace(SHAPE, SHAPE.initial_doc())
        assert isinstance(self.ws.state, Memory)
        self.state = self.ws.state
        self.history: list[bytes] = []
        self.model = Model()
        self.saved = Model()
        self.now = 0.0
        self.taken: list[int] = []

        self.open(0.0)

    def reopen(self, forward: float) -> None:
        """Between two cycles: what must hold of a closed state, then the next cycle."""
        self.a_fold_of_all_changes_is_the_document()
        self.values_read_are_independent()
        self.natural_data_leads_back()
        self.open(forward)

    def open(self, forward: float) -> None:
        self.now += forward
        self.ws.open(self.now)
        self.saved = copy.deepcopy(self.model)
        self.taken = []

    def commit(self, forward: float) -> None:
        changes = self.ws.changes()
        self.ws.check_storable()
        assert self.ws.changes() == changes
        self.record(changes)
        self.ws.commit(changes)
        self.reopen(forward)

    def roll_back(self, fails: bool, not_before: float | None, forward: float) -> None:
        taken = self.ws.taken()
        self.ws.discard()
        self.model = self.saved
        in_document = [item for item in self.model.items if item.id in self.taken]
        assert sorted(item_id for _, item_id in taken) == sorted(item.id for item in in_document)
        if fails:
            self.count_attempt(taken, in_document, not_before)
        self.reopen(forward)

    def count_attempt(self, taken: list[tuple[str, int]], in_document: list[Item], not_before: float | None) -> None:
        before = msgspec.msgpack.encode(self.ws.doc)
        changes, gave_up = retry_changes(self.ws.doc, taken, "error", ATTEMPTS_LIMIT, not_before)
        assert msgspec.msgpack.encode(self.ws.doc) == before
        self.record(changes)
        self.ws.commit(changes)
        assert gave_up == any(item.attempts + 1 >= ATTEMPTS_LIMIT for item in in_document)
        for item in in_document:
            item.attempts += 1
            item.not_before = not_before
            if item.attempts >= ATTEMPTS_LIMIT:
                self.model.items.remove(item)
                self.model.failed.append(item)

    def record(self, changes: list[Change]) -> None:
        self.history.append(pack(changes))  # type: ignore[arg-type]

    def the_view_is_the_model(self) -> None:
        self.agrees(self.state, self.now)
        queue = self.state.tasks
        assert queue.added == queue.done + queue.removed + len(queue.failed) + len(queue) + len(self.taken)

    def agrees(self, state: Memory, now: float) -> None:
        model = self.model
        if state is self.state:
            assert exact(list(state.tasks)) == exact([item.value for item in model.served(now)])
        assert sorted(map(repr, state.tasks)) == sorted(repr(item.value) for item in model.items)
        shown = sorted((repr(item.value), item.attempts) for item in state.tasks.failed)
        assert shown == sorted((repr(item.value), item.attempts) for item in model.failed)
        assert (state.tasks.added, state.tasks.removed) == (model.added, model.removed)
        assert exact(list(state.notes)) == exact(model.notes)
        assert exact(state.notes.summary) == exact(model.summary)
        assert exact(dict(state.prefs.items())) == exact(model.prefs)
        assert (len(state.prefs), len(state.notes), len(state.tasks)) == (
            len(model.prefs),
            len(model.notes),
            len(model.items),
        )
        assert exact(state.bag) == exact(model.bag)
        assert exact(state.count) == exact(model.count)

    def a_fold_of_all_changes_is_the_document(self) -> None:
        """B81, B82: what is rebuilt equals what was live, order included."""
        folded = SHAPE.initial_doc()
        for stored in self.history:
            apply(folded, unpack(stored))  # type: ignore[arg-type]
        assert msgspec.msgpack.encode(folded) == msgspec.msgpack.encode(self.ws.doc)
        assert self.state.tasks.done == self.model.done
        reloaded = Workspace(SHAPE, msgspec.msgpack.decode(msgspec.msgpack.encode(self.ws.doc))).state
        assert isinstance(reloaded, Memory)
        self.agrees(reloaded, 0.0)

    def values_read_are_independent(self) -> None:
        """B85: mutating what a read returned never reaches the document."""
        before = msgspec.msgpack.encode(self.ws.doc)
        self.state.bag["mutated"] = "outside"
        for read in [*self.state.notes, *self.state.prefs.values(), *self.state.tasks]:
            if isinstance(read, Note):
                read.tags.append("outside")
            elif isinstance(read, list):
                read.append("outside")
        assert msgspec.msgpack.encode(self.ws.doc) == before

    def natural_data_leads_back(self) -> None:
        again, unknown = from_natural(natural(self.ws.doc, GENERIC), SHAPE, self.ws.doc)
        assert msgspec.msgpack.encode(again) == msgspec.msgpack.encode(self.ws.doc)
        assert unknown == {}

    def queue_append(self, added: list[tuple[Any, int, float | None]]) -> None:
        for value, priority, not_before in added:
            self.state.tasks.append(value, priority=priority, not_before=not_before)
            self.model.items.append(Item(self.model.added, copy.deepcopy(value), priority, not_before))
            self.model.added += 1

    def queue_extend(self, more: list[Any], priority: int) -> None:
        self.state.tasks.extend(more, priority=priority)
        for value in more:
            self.model.items.append(Item(self.model.added, copy.deepcopy(value), priority, None))
            self.model.added += 1

    def queue_take(self, times: int) -> None:
        for _ in range(times):
            self.take_one()

    def take_one(self) -> None:
        waiting = self.model.served(self.now)
        due = [item for item in waiting if item.not_before is None or item.not_before <= self.now]
        if not waiting:
            with pytest.raises(IndexError):
                self.state.tasks.take()
        elif not due:
            with pytest.raises(NotDue) as parked:
                self.state.tasks.take()
            assert parked.value.at == waiting[0].not_before
        else:
            assert exact(self.state.tasks.take()) == exact(due[0].value)
            assert self.state.tasks.attempts == due[0].attempts + 1
            self.model.items.remove(due[0])
            self.model.done += 1
            self.taken.append(due[0].id)

    def queue_remove(self, value: Any) -> None:
        found = [item for item in self.model.served(self.now) if item.value == value]
        assert self.state.tasks.remove(value) is bool(found)
        if found:
            self.model.items.remove(found[0])
            self.model.removed += 1

    def queue_reprioritise(self, turn: int) -> None:
        self.state.tasks.reprioritise(lambda value: len(repr(value)) % turn)
        for item in self.model.items:
            item.priority = len(repr(item.value)) % turn

    def queue_retry_failed(self) -> None:
        assert self.state.tasks.retry_failed() == len(self.model.failed)
        for item in self.model.failed:
            self.model.items.append(Item(item.id, item.value, item.priority, None))
        self.model.failed = []

    def log_extend(self, items: list[Any]) -> None:
        self.state.notes.extend(items)
        self.model.notes.extend(copy.deepcopy(items))

    def log_replace(self, index: int, item: Any) -> None:
        if not self.model.notes:
            return
        index %= len(self.model.notes)
        self.state.notes[index] = item
        self.model.notes[index] = copy.deepcopy(item)

    def log_mutate(self, index: int, tag: Any) -> None:
        if not self.model.notes:
            return
        index %= len(self.model.notes)
        lent, held = self.state.notes[index], self.model.notes[index]
        if isinstance(lent, Note):
            lent.tags.append(tag)
            held.tags.append(tag)

    def log_compact(self, keep: int, summary: Any) -> None:
        self.state.notes.compact(keep, summary)
        self.model.notes = self.model.notes[max(0, len(self.model.notes) - keep) :]
        self.model.summary = copy.deepcopy(summary)

    def summary_mutate(self, tag: Any) -> None:
        lent, held = self.state.notes.summary, self.model.summary
        if isinstance(lent, Note):
            lent.tags.append(tag)
            held.tags.append(tag)

    def map_put(self, key: Any, value: Any) -> None:
        self.state.prefs[key] = value
        self.model.prefs[key] = copy.deepcopy(value)

    def map_pop(self, key: Any) -> None:
        assert exact(self.state.prefs.pop(key, "absent")) == exact(self.model.prefs.pop(key, "absent"))

    def map_mutate(self, key: Any, value: Any) -> None:
        lent, held = self.state.prefs.get(key), self.model.prefs.get(key)
        if isinstance(lent, list):
            assert isinstance(held, list)
            lent.append(value)
            held.append(value)

    def map_clear(self) -> None:
        self.state.prefs.clear()
        self.model.prefs.clear()

    def plain_mutate(self, key: str, value: Any) -> None:
        self.state.bag[key] = value
        self.model.bag[key] = copy.deepcopy(value)

    def plain_set(self, value: int | float | bool) -> None:
        self.state.count = value
        self.model.count = value


def op(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, tuple[Any, ...]]]:
    """A call of the method of that name."""
    return st.tuples(st.just(name), st.tuples(*arguments))


takes = op("queue_take", st.integers(1, 3))
queue_ops = st.one_of(
    takes,
    takes,
    op("queue_append", st.lists(st.tuples(values, priorities, times), min_size=1, max_size=3)),
    op("queue_extend", st.lists(values, min_size=1, max_size=4), priorities),
    op("queue_remove", values),
    op("queue_reprioritise", st.integers(1, 3)),
    op("queue_retry_failed"),
)
memory_ops = st.one_of(
    op("log_extend", st.lists(notes, min_size=1, max_size=3)),
    op("log_replace", st.integers(0, 9), notes),
    op("log_mutate", st.integers(0, 9), atoms),
    op("log_compact", st.integers(0, 3), notes),
    op("summary_mutate", atoms),
    op("map_put", keys, values),
    op("map_pop", keys),
    op("map_mutate", keys, atoms),
    op("map_clear"),
    op("plain_mutate", texts, values),
    op("plain_set", st.sampled_from([0, 1, True, 1.0, -0.0])),
)
outcomes = st.one_of(
    op("commit", moves), op("commit", moves), op("roll_back", st.just(True), st.none() | times, moves),
    op("roll_back", st.just(False), st.none(), moves),
)  # fmt: skip


def cycles(ops: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[list[Any], Any]]]:
    return st.lists(st.tuples(st.lists(ops, min_size=1, max_size=5), outcomes), min_size=6, max_size=20)


def run(history: list[tuple[list[Any], Any]]) -> None:
    machine = Cycles()
    for ops, outcome in history:
        for name, arguments in [*ops, outcome]:
            getattr(machine, name)(*arguments)
            machine.the_view_is_the_model()


@settings(max_examples=150, deadline=None, database=None)
@given(cycles(queue_ops))
def test_a_queue_over_cycles(history: list[tuple[list[Any], Any]]) -> None:
    """B23, B81, B82, B85: see `Cycles.reopen` for what is checked between cycles."""
    run(history)


@settings(max_examples=150, deadline=None, database=None)
@given(cycles(memory_ops))
def test_logs_maps_and_plain_fields_over_cycles(history: list[tuple[list[Any], Any]]) -> None:
    """B81, B82, B85: see `Cycles.reopen` for what is checked between cycles."""
    run(history)
