"""The State class a user writes, and the working copy of it a cycle changes.

Owns: what a State class declares (`Shape`), the user's view of it, and the life of a working
copy: open, change, then commit or discard (`Workspace`).
Must never: change the document but through `changes.apply`, or hold a value the document
does not have once the cycle is closed.
Invariant: after a commit the document equals the fold of all changes so far, and the State
object shows exactly that document.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, get_args, get_origin, get_type_hints

from indelible.core.changes import (
    ITEMS,
    VALUE,
    Change,
    Doc,
    FieldDoc,
    apply,
    log_field,
    map_field,
    plain_field,
    queue_field,
)
from indelible.core.codec import Plain, Types, digest, from_plain, to_plain
from indelible.core.collections import Log, Map, Queue
from indelible.core.fields import ATOMS, Cell, Desk, Piecewise, attach, brief, differs
from indelible.errors import Misuse, NotStorable, StateInvalid

_KINDS: dict[Any, str] = {Queue: "queue", Log: "log", Map: "map"}
_EMPTY = {"queue": queue_field, "log": log_field, "map": map_field}
_EXAMPLES: dict[Any, str] = {int: "0", float: "0.0", str: '""', bool: "False", list: "[]", dict: "{}", set: "set()"}
_MISSING = object()


class State:
    """An agent's whole working memory. Derive from it and declare typed fields:

        class Research(State):
            tasks: Queue[str]
            findings: Log[Finding]
            prefs: Map[str, int]
            iteration: int = 0

    Plain fields need a default. Change fields inside a cycle only; what the cycle changed
    becomes durable with its commit, or not at all.
    """

    def __init__(self) -> None:
        raise Misuse(
            f"a {type(self).__name__} is made by the run, not by hand",
            hint=f"run.state  # inside the cycle function of an agent(state={type(self).__name__})",
        )

    def __repr__(self) -> str:
        plains: _Plains = self.__dict__["_indelible"]
        parts = [f"{name}={brief(plains.glance(name))}" for name in plains.fields]
        parts += [brief(field) for name, field in self.__dict__.items() if name != "_indelible"]
        return f"<{type(self).__name__} {' '.join(parts)}>"

    if not TYPE_CHECKING:  # A type checker shall go on to refuse attributes that are not declared.

        def __setattr__(self, name: str, value: Any) -> None:
            plains: _Plains = self.__dict__["_indelible"]
            if name in plains.fields:
                plains.write(name, value)
            elif hasattr(getattr(type(self), name, None), "__set__"):
                object.__setattr__(self, name, value)  # the user's own property
            else:
                raise _not_settable(self, name, value)

        def __delattr__(self, name: str) -> None:
            raise Misuse(f"field {name!r} of {type(self).__name__} cannot be deleted", hint=f"state.{name} = ...")


class _Plains:
    """The plain fields of one State: the document, and the live values of the open cycle."""

    __slots__ = ("desk", "fields", "live")

    def __init__(self, fields: dict[str, FieldDoc], desk: Desk) -> None:
        self.fields = fields
        self.desk = desk
        self.live: dict[str, Cell] = {}

    def read(self, name: str) -> Any:
        cell = self.live.get(name)
        if cell is not None:
            return cell.value
        plain = self.fields[name][VALUE]
        value = from_plain(plain, self.desk.types, "state.", name)
        if self.desk.is_open and type(value) not in ATOMS:
            self.live[name] = Cell(value, plain)
        return value

    def write(self, name: str, value: Any) -> None:
        if not self.desk.is_open:
            self.desk.must_be_open(f"state.{name}")
        self.live[name] = Cell(value, to_plain(value, self.desk.types, "state.", name))

    def glance(self, name: str) -> Any:
        """The value for a repr: never lent, never raising."""
        if name in self.live:
            return self.live[name].value
        try:
            return from_plain(self.fields[name][VALUE], self.desk.types, "state.", name)
        except StateInvalid as error:
            return error

    def changes(self) -> list[Change]:
        changes: list[Change] = []
        for name, cell in self.live.items():
            plain = cell.now(self.desk.types, "state.", name)
            if differs(plain, self.fields[name][VALUE]):
                changes.append([name, "set", plain])
        return changes


class _PlainField:
    """The attribute of a plain field; writing goes through `State.__setattr__`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, state: State | None, owner: type) -> Any:
        if state is None:
            return self
        plains: _Plains = state.__dict__["_indelible"]
        return plains.read(self.name)

    def __set__(self, state: State, value: Any) -> None:
        plains: _Plains = state.__dict__["_indelible"]
        plains.write(self.name, value)


@dataclass(frozen=True, slots=True)
class Field:
    """One declared field. `hints` holds the value's type, a map's key type before it."""

    name: str
    kind: str
    hints: tuple[Any, ...]
    default: Plain = None


@dataclass(frozen=True, slots=True)
class Shape:
    """What a State class declares, ready to make documents and working copies of."""

    cls: type[State]
    fields: dict[str, Field]
    types: Types
    view: type[State]

    @classmethod
    def of(cls, state: type[State]) -> Shape:
        """Read the declarations of `state`. Raises `Misuse` naming the line to write."""
        if not isinstance(state, type) or not issubclass(state, State):
            raise Misuse(f"{brief(state)} is not a State class", hint="class Research(indelible.State): ...")
        if dataclasses.is_dataclass(state):
            raise Misuse(
                f"{state.__name__} is a dataclass as well as a State", hint=f"remove @dataclass above {state.__name__}"
            )
        declared = {name: hint for name, hint in _hints(state).items() if get_origin(hint) is not ClassVar}
        declared = {name: hint for name, hint in declared.items() if hint is not ClassVar}
        for name in declared:
            if name.startswith("_") or hasattr(State, name):
                raise Misuse(
                    f"{state.__name__}.{name} cannot be the name of a field", hint=f"{name.strip('_') or 'value'}: ..."
                )
        kinds = {name: _KINDS.get(get_origin(hint) or hint, "plain") for name, hint in declared.items()}
        hints = {name: _item_hints(kinds[name], hint) for name, hint in declared.items()}
        types = Types.of(*(hint for each in hints.values() for hint in each))
        fields = {
            name: Field(name, kind, hints[name], _default(state, name, kind, hints[name], types))
            for name, kind in kinds.items()
        }
        namespace: dict[str, Any] = {name: _PlainField(name) for name, kind in kinds.items() if kind == "plain"}
        for copied in ("__module__", "__qualname__", "__doc__"):
            namespace[copied] = getattr(state, copied)
        metaclass: Any = type(state)
        return cls(state, fields, types, metaclass(state.__name__, (state,), namespace))

    def initial_doc(self) -> Doc:
        """The document of a run that has not changed anything yet; each call a fresh one."""
        return {name: self.initial_field(name) for name in self.fields}

    def initial_field(self, name: str) -> FieldDoc:
        """As `initial_doc`, one field."""
        field = self.fields[name]
        return plain_field(field.default) if field.kind == "plain" else _EMPTY[field.kind]()

    @property
    def fingerprint(self) -> str:
        """Changes when a field, its kind or its type does; modules' names play no part."""
        named: list[Plain] = [
            [name, field.kind, *(re.sub(r"[\w.]+\.(\w+)", r"\1", str(hint)) for hint in field.hints)]
            for name, field in sorted(self.fields.items())
        ]
        return digest(named).hex()

    def matches(self, doc: Doc) -> bool:
        """Whether `doc` has exactly the declared fields, each of the declared kind."""
        declared = {name: field.kind for name, field in self.fields.items()}
        return declared == {name: field[0] for name, field in doc.items()}


class Workspace:
    """A document with one State object laid over it.

    `state`, and its queues, logs and maps, stay the same objects for the life of the run.
    Raises `StateInvalid` if the document does not match the shape.
    """

    def __init__(self, shape: Shape, doc: Doc) -> None:
        if not shape.matches(doc):
            names = sorted(set(shape.fields) ^ set(doc)) or sorted(doc)
            raise StateInvalid(
                f"the stored state does not have the fields of {shape.cls.__name__}: see {', '.join(names)[:200]}",
                hint=f"@agent.migration(...)  # or give {shape.cls.__name__} back the fields it had",
            )
        self.doc = doc
        self._desk = Desk(shape.types)
        plain = {name: doc[name] for name, field in shape.fields.items() if field.kind == "plain"}
        self._plains = _Plains(plain, self._desk)
        kinds = {"queue": Queue, "log": Log, "map": Map}
        self._pieces: dict[str, Piecewise] = {
            name: attach(kinds[field.kind], name, doc[name], self._desk)
            for name, field in shape.fields.items()
            if field.kind != "plain"
        }
        self.state: State = object.__new__(shape.view)
        self.state.__dict__.update(self._pieces, _indelible=self._plains)

    @property
    def is_open(self) -> bool:
        """Whether a cycle is open."""
        return self._desk.is_open

    def open(self, now: float) -> None:
        """Begin a cycle. `now` (epoch seconds) decides what is due; give a re-entered cycle the same."""
        if self._desk.is_open:
            raise Misuse("a cycle is open already", hint="leave the first `with run.cycle():` before the next")
        self._desk.is_open = True
        self._desk.now = now

    def changes(self) -> list[Change]:
        """What the open cycle changed so far, encoded as it is now. Raises `NotStorable` with the path."""
        changes = self._plains.changes() if self._plains.live else []
        for piece in self._pieces.values():
            changes += piece._changes()
        return changes

    def check_storable(self) -> None:
        """Raise `NotStorable` if the cycle could not be committed as it is now."""
        self.changes()

    def commit(self, changes: list[Change]) -> None:
        """Apply `changes` to the document, then `settled`."""
        apply(self.doc, changes)
        self.settled(changes)

    def settled(self, changes: list[Change]) -> None:
        """The document has taken `changes`, of this cycle or made elsewhere: close the cycle, if one is open.

        What the cycle did beyond `changes` is forgotten.
        """
        self._close()
        for change in changes:
            piece = self._pieces.get(change[0])
            if piece is not None:
                piece._applied(change)

    def discard(self) -> None:
        """Forget what the cycle did and close it. Items it took are still in the document."""
        self._close()

    def taken(self) -> list[tuple[str, int]]:
        """The items (field, id) of the document taken so far in this cycle.

        An item that the cycle itself added and took is not listed: a roll-back forgets it.
        """
        taken: list[tuple[str, int]] = []
        for name, piece in self._pieces.items():
            if isinstance(piece, Queue):
                taken += [(name, item_id) for item_id in piece._taken if item_id in self.doc[name][ITEMS]]
        return taken

    def _close(self) -> None:
        self._desk.is_open = False
        self._plains.live = {}
        for piece in self._pieces.values():
            piece._forget()


def _hints(state: type[State]) -> dict[str, Any]:
    try:
        return get_type_hints(state)
    except NameError as error:
        raise Misuse(
            f"a type named {error.name!r} in the fields of {state.__name__} cannot be found",
            hint=f"define or import {error.name} at the top level of {state.__module__}, not in a function",
        ) from None
    except (TypeError, SyntaxError, AttributeError) as error:
        raise Misuse(
            f"the field types of {state.__name__} cannot be read: {error}",
            hint="tasks: Queue[str]  # a type after each colon",
        ) from None


def _item_hints(kind: str, hint: Any) -> tuple[Any, ...]:
    if kind == "plain":
        return (hint,)
    return get_args(hint) or ((Any, Any) if kind == "map" else (Any,))


def _default(state: type[State], name: str, kind: str, hints: tuple[Any, ...], types: Types) -> Plain:
    default = getattr(state, name, _MISSING)
    if kind != "plain":
        if default is not _MISSING:
            raise Misuse(
                f"{state.__name__}.{name} always starts empty", hint=f"{name}: {kind.title()}[...]  # no default"
            )
        return None
    hint = hints[0]
    shown = hint.__name__ if isinstance(hint, type) and get_origin(hint) is None else str(hint).replace("typing.", "")
    line = f"{name}: {shown} = {_EXAMPLES.get(get_origin(hint) or hint, 'None')}"
    if default is _MISSING:
        raise Misuse(f"{state.__name__}.{name} needs a default", hint=line)
    try:
        return to_plain(default, types, "state.", name)
    except NotStorable as error:
        raise Misuse(f"the default of {state.__name__}.{name} cannot be stored: {error.what}", hint=line) from None


def _not_settable(state: State, name: str, value: Any) -> Misuse:
    piece = state.__dict__.get(name)
    if isinstance(piece, Piecewise):
        how = "update" if isinstance(piece, Map) else "extend"
        return Misuse(
            f"{type(state).__name__}.{name} is a {type(piece).__name__} and changes by the piece",
            hint=f"state.{name}.{how}(...)",
        )
    kind = type(value).__name__
    return Misuse(
        f"{type(state).__name__} has no field {name!r}",
        hint=f"class {type(state).__name__}(State): {name}: {kind} = {_EXAMPLES.get(type(value), '...')}",
    )
