"""The State class and its working copy."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, assert_type

import msgspec
import pytest

from indelible.core.changes import Doc
from indelible.core.collections import Log, Map, Queue
from indelible.core.state import Shape, State, Workspace
from indelible.errors import Misuse, NotStorable, StateInvalid

if TYPE_CHECKING:
    from collections import OrderedDict


class Mood(enum.Enum):
    GOOD = 1
    BAD = 2


@dataclass
class Finding:
    task: str
    score: float = 0.0
    meta: dict[str, Any] = field(default_factory=dict)


class Base(State):
    """A documented base."""

    limit: ClassVar[int] = 7
    tasks: Queue[str]
    iteration: int = 0


class Research(Base):
    findings: Log[Finding]
    prefs: Map[str, int]
    bag: dict[str, list[int]] = {"seed": [1]}  # noqa: RUF012
    best: Finding | None = None
    mood: Annotated[Mood, "shown"] = Mood.GOOD
    ratio: float = 0.0
    anything: Any = None

    @property
    def goal(self) -> int:
        return self.iteration + 1

    @goal.setter
    def goal(self, value: int) -> None:
        self.iteration = value - 1

    def bump(self) -> None:
        self.iteration += 1


SHAPE = Shape.of(Research)


def workspace(doc: Doc | None = None) -> tuple[Workspace, Research]:
    ws = Workspace(SHAPE, SHAPE.initial_doc() if doc is None else doc)
    assert isinstance(ws.state, Research)
    return ws, ws.state


def committed(ws: Workspace) -> list[Any]:
    changes = ws.changes()
    ws.commit(changes)
    return changes


class TestShape:
    def test_reads_inherited_fields_in_order_and_ignores_class_variables(self) -> None:
        assert [(f.name, f.kind) for f in SHAPE.fields.values()] == [
            ("tasks", "queue"),
            ("iteration", "plain"),
            ("findings", "log"),
            ("prefs", "map"),
            ("bag", "plain"),
            ("best", "plain"),
            ("mood", "plain"),
            ("ratio", "plain"),
            ("anything", "plain"),
        ]
        assert SHAPE.fields["prefs"].hints == (str, int)
        assert SHAPE.fields["findings"].hints == (Finding,)

    def test_defaults_are_of_their_run_alone(self) -> None:
        (one, first), (_, second) = workspace(), workspace()
        one.open(0.0)
        first.bag["seed"].append(2)
        committed(one)
        assert first.bag == {"seed": [1, 2]}
        assert second.bag == workspace()[1].bag == Research.bag == {"seed": [1]}

    def test_a_document_is_packable_as_it_is(self) -> None:
        doc = SHAPE.initial_doc()
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(doc)) == doc

    def test_a_field_without_a_default_names_the_line_to_write(self) -> None:
        class Lacking(State):
            goal: str

        with pytest.raises(Misuse, match=r"Lacking\.goal needs a default") as refused:
            Shape.of(Lacking)
        assert refused.value.hint == 'goal: str = ""'

    def test_a_default_that_cannot_be_stored_is_refused(self) -> None:
        class Odd(State):
            notes: list[str] = field(default_factory=list)

        with pytest.raises(Misuse, match=r"default of Odd\.notes") as refused:
            Shape.of(Odd)
        assert refused.value.hint == "notes: list[str] = []"

    def test_a_collection_takes_no_default(self) -> None:
        wrong: Any = []

        class Given(State):
            tasks: Queue[str] = wrong

        with pytest.raises(Misuse, match="always starts empty"):
            Shape.of(Given)

    @pytest.mark.parametrize("name", ["_hidden", "__dict__"])
    def test_a_name_that_would_clash_is_refused(self, name: str) -> None:
        clashing: Any = type("Clashing", (State,), {"__annotations__": {name: int}, "__module__": __name__})
        with pytest.raises(Misuse, match="cannot be the name of a field"):
            Shape.of(clashing)

    def test_a_type_that_cannot_be_found_is_named(self) -> None:
        @dataclass
        class Inner:
            x: int

        class Local(State):
            items: Log[Inner]

        class Hidden(State):
            items: Log[OrderedDict[str, int]]

        assert Inner(1).x == 1
        for cls, name in ((Local, "Inner"), (Hidden, "OrderedDict")):
            with pytest.raises(Misuse, match=f"'{name}'") as refused:
                Shape.of(cls)
            assert f"import {name} at the top level" in refused.value.hint

    def test_a_class_in_a_function_works_if_its_types_can_be_found(self) -> None:
        class Local(State):
            tasks: Queue[Finding]

        assert Shape.of(Local).fields["tasks"].hints == (Finding,)

    def test_what_is_no_state_class_is_refused(self) -> None:
        wrong: Any = dict
        with pytest.raises(Misuse, match="not a State class"):
            Shape.of(wrong)

        @dataclass
        class Both(State):
            x: int = 0

        with pytest.raises(Misuse, match="dataclass as well"):
            Shape.of(Both)

    def test_a_bare_collection_holds_anything(self) -> None:
        class Bare(State):
            tasks: Queue  # type: ignore[type-arg]
            prefs: Map  # type: ignore[type-arg]

        shape = Shape.of(Bare)
        assert (shape.fields["tasks"].hints, shape.fields["prefs"].hints) == ((Any,), (Any, Any))


class TestPlainFields:
    def test_a_change_is_one_set_and_reload_agrees(self) -> None:
        ws, state = workspace()
        ws.open(0.0)
        state.iteration += 1
        state.best = Finding("t")
        state.best.meta["k"] = (1, 2)
        state.mood = Mood.BAD
        assert [change[:2] for change in committed(ws)] == [["iteration", "set"], ["best", "set"], ["mood", "set"]]
        again = workspace(msgspec.msgpack.decode(msgspec.msgpack.encode(ws.doc)))[1]
        assert (again.iteration, again.best, again.mood) == (1, Finding("t", meta={"k": (1, 2)}), Mood.BAD)

    def test_a_lent_value_mutated_in_place_is_seen(self) -> None:
        ws, state = workspace()
        ws.open(0.0)
        state.bag["new"] = []
        state.bag["new"].append(5)
        assert committed(ws) == [["bag", "set", {"seed": [1], "new": [5]}]]

    def test_reading_is_no_change(self) -> None:
        ws, state = workspace()
        ws.open(0.0)
        assert (state.bag, state.iteration, state.mood) == ({"seed": [1]}, 0, Mood.GOOD)
        assert repr(state)
        assert ws.changes() == []

    def test_values_of_other_types_differ(self) -> None:
        ws, state = workspace()
        for value, expected in (
            (1, 1),
            (True, 1),
            (1.0, 1),
            (1.0, 0),
            (-0.0, 1),
            (0.0, 1),
            ("1", 1),
            (float("nan"), 1),
        ):
            ws.open(0.0)
            state.anything = value
            assert len(committed(ws)) == expected
            assert type(state.anything) is type(value)
        ws.open(0.0)
        state.anything = float("nan")
        assert committed(ws) == []

    def test_a_roll_back_forgets_everything(self) -> None:
        ws, state = workspace()
        ws.open(0.0)
        state.bag["x"] = [1]
        state.iteration = 9
        ws.discard()
        assert (state.bag, state.iteration) == ({"seed": [1]}, 0)

    def test_what_was_lent_is_worth_nothing_after_the_cycle(self) -> None:
        """B85: a value kept beyond its cycle cannot reach into what was committed."""
        ws, state = workspace()
        ws.open(0.0)
        lent = state.bag
        lent["x"] = [1]
        committed(ws)
        lent["x"].append(2)
        state.bag["x"].append(3)
        assert state.bag["x"] == [1]
        ws.open(0.0)
        assert committed(ws) == []

    def test_an_assignment_that_cannot_be_stored_is_refused_at_once(self) -> None:
        ws, state = workspace()
        ws.open(0.0)
        with pytest.raises(NotStorable, match=r"state\.anything\[0\]"):
            state.anything = [object()]
        assert state.anything is None

    def test_a_mutation_that_cannot_be_stored_is_refused_before_a_deed(self) -> None:
        ws, state = workspace()
        ws.open(0.0)
        held: Any = state.bag
        held["x"] = object()
        with pytest.raises(NotStorable, match=r"state\.bag\.x"):
            ws.check_storable()
        del held["x"]
        ws.check_storable()
        assert committed(ws) == []

    def test_methods_and_properties_of_the_class_work(self) -> None:
        ws, state = workspace()
        ws.open(0.0)
        state.bump()
        state.goal = state.goal + 10
        committed(ws)
        assert (state.iteration, state.limit, type(state).__doc__) == (11, 7, Research.__doc__)

    def test_an_undeclared_attribute_names_the_line_to_add(self) -> None:
        ws, state = workspace()
        ws.open(0.0)
        with pytest.raises(Misuse, match="Research has no field 'typo'") as refused:
            state.typo = 3  # type: ignore[attr-defined]
        assert refused.value.hint == "class Research(State): typo: int = 0"
        with pytest.raises(AttributeError):
            state.typo  # type: ignore[attr-defined]  # noqa: B018

    def test_collections_are_not_assigned_and_nothing_is_deleted(self) -> None:
        ws, state = workspace()
        ws.open(0.0)
        wrong: Any = ["x"]
        with pytest.raises(Misuse, match="changes by the piece") as refused:
            state.tasks = wrong
        assert refused.value.hint == "state.tasks.extend(...)"
        with pytest.raises(Misuse, match="cannot be deleted"):
            del state.iteration

    def test_assigning_outside_a_cycle_is_refused(self) -> None:
        _, state = workspace()
        with pytest.raises(Misuse, match=r"state\.iteration can only be changed inside a cycle"):
            state.iteration = 1

    def test_a_state_is_not_made_by_hand(self) -> None:
        with pytest.raises(Misuse, match="made by the run"):
            Research()

    def test_repr_survives_a_value_whose_repr_raises(self) -> None:
        shape = Shape.of(Loudly)
        ws = Workspace(shape, shape.initial_doc())
        assert isinstance(ws.state, Loudly)
        ws.open(0.0)
        ws.state.loud = Loud(1)
        ws.state.text = "x" * 500
        assert repr(ws.state) == f"<Loudly loud=<Loud, its repr failed> text='{'x' * 56}...>"


@dataclass
class Loud:
    x: int

    def __repr__(self) -> str:
        raise RuntimeError


class Loudly(State):
    loud: Loud | None = None
    text: str = ""


def test_fields_have_the_types_they_were_declared_with() -> None:
    ws, state = workspace()
    ws.open(0.0)
    state.tasks.append("a")
    state.findings.append(Finding("f"))
    assert assert_type(state.tasks.take(), str) == "a"
    assert assert_type(state.findings.recent(1), list[Finding]) == [Finding("f")]
    assert assert_type(state.prefs.get("x"), int | None) is None
    assert assert_type(state.iteration, int) == 0


class TestWorkspace:
    def test_objects_are_stable_for_the_life_of_the_run(self) -> None:
        ws, state = workspace()
        tasks = state.tasks
        ws.open(0.0)
        tasks.append("a")
        committed(ws)
        assert ws.state is state
        assert state.tasks is tasks
        assert list(tasks) == ["a"]

    def test_a_cycle_is_not_opened_twice(self) -> None:
        ws, _ = workspace()
        ws.open(0.0)
        with pytest.raises(Misuse, match="open already"):
            ws.open(0.0)

    def test_branches_from_one_base_do_not_mix(self) -> None:
        """B81: two continuations of one document, each reloaded, hold their own changes only."""
        base, state = workspace()
        base.open(0.0)
        state.tasks.append("base")
        committed(base)
        packed = msgspec.msgpack.encode(base.doc)
        for branch in ("one", "two"):
            ws, state = workspace(msgspec.msgpack.decode(packed))
            ws.open(0.0)
            state.tasks.append(branch)
            state.findings.append(Finding(branch))
            committed(ws)
            reloaded = workspace(msgspec.msgpack.decode(msgspec.msgpack.encode(ws.doc)))[1]
            assert list(reloaded.tasks) == ["base", branch]
            assert list(reloaded.findings) == [Finding(branch)]
        assert msgspec.msgpack.encode(base.doc) == packed

    def test_done_and_its_follow_up_tasks_are_one_commit(self) -> None:
        """B21, B25, B30: the task done, its children, its finding and the counter change together or not at all."""
        ws, state = workspace()
        ws.open(0.0)
        state.tasks.append("root")
        committed(ws)
        before = msgspec.msgpack.encode(ws.doc)
        ws.open(0.0)
        state.findings.append(Finding(state.tasks.take()))
        state.tasks.extend(["child 1", "child 2"])
        state.iteration += 1
        assert msgspec.msgpack.encode(ws.doc) == before
        ws.discard()
        assert (list(state.tasks), list(state.findings), state.iteration) == (["root"], [], 0)

    def test_settled_closes_after_the_document_took_the_changes(self) -> None:
        ws, state = workspace()
        ws.open(0.0)
        state.tasks.extend(["a", "b"])
        state.prefs["x"] = 1
        changes = ws.changes()
        other = workspace()[0]
        other.commit(changes)
        ws.doc["tasks"][:] = other.doc["tasks"]
        ws.doc["prefs"][:] = other.doc["prefs"]
        ws.settled(changes)
        assert not ws.is_open
        assert (list(state.tasks), len(state.tasks), dict(state.prefs)) == (["a", "b"], 2, {"x": 1})

    def test_a_document_of_another_shape_is_refused(self) -> None:
        doc = SHAPE.initial_doc()
        del doc["prefs"]
        with pytest.raises(StateInvalid, match="prefs"):
            Workspace(SHAPE, doc)
