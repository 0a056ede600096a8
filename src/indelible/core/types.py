"""Which user classes a value may hold: taken from annotations, never from what is on disk.

Owns: `Types`, and `GENERIC`, which reads any journal without the user's code.
Must never: import a module by name, or create an instance.
Invariant: a name read from disk finds only a class that an annotation reaches, or a loaded
subclass of one; and one name never stands for two classes.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterator
from enum import Enum
from typing import Any

from indelible.core.plans import Misfit, Plan, hints_of, is_storable, plan_for
from indelible.errors import Misuse


class Types:
    """The classes that values of some annotations may hold."""

    generic = False

    def __init__(self, named: dict[str, type], bases: frozenset[type], unresolved: tuple[str, ...] = ()) -> None:
        self.named = named
        self.bases = bases
        self.unresolved = unresolved
        self.plans: dict[type, Plan] = {}
        self.memo: Any = None
        """The codec's table of writers for these types, made on first use."""
        self._found: dict[str, type] = {}
        self._named_plans: dict[str, Plan] = {}

    @classmethod
    def of(cls, *hints: object) -> Types:
        """Collect the classes that `hints` reach, fields of classes included.

        Raises `Misuse` if two different classes share a qualified name.
        """
        named: dict[str, type] = {}
        bases: set[type] = set()
        unresolved: list[str] = []
        seen: dict[int, object] = {}  # by identity, since a hint need not be hashable
        waiting = list(hints)
        while waiting:
            hint = waiting.pop()
            if id(hint) in seen:
                continue
            seen[id(hint)] = hint
            if isinstance(hint, (str, typing.ForwardRef)):
                unresolved.append(hint if isinstance(hint, str) else hint.__forward_arg__)
            if isinstance(hint, type):
                if is_storable(hint):
                    _name(named, hint)
                if is_storable(hint) or _is_users(hint):
                    bases.add(hint)
            waiting.extend(_inside(hint))
        return cls(named, frozenset(bases), tuple(unresolved))

    def merged(self, other: Types) -> Types:
        """Both sets of classes; raises `Misuse` if a name stands for two different ones."""
        named = dict(self.named)
        for held in other.named.values():
            _name(named, held)
        return Types(named, self.bases | other.bases, self.unresolved + other.unresolved)

    def find(self, name: str) -> type | None:
        """The class of that qualified name, or None. Subclasses loaded since are found too."""
        found = self.named.get(name) or self._found.get(name)
        if found is None:
            found = self._search(name)
            if found is not None:
                self._found[name] = found
        return found

    def plan(self, name: str) -> Plan:
        """How to put together the class of that name; raises `Misfit` if there is none."""
        plan = self._named_plans.get(name)
        if plan is None:
            cls = self.find(name)
            if cls is None or issubclass(cls, Enum):
                raise self._unknown(name)
            plan = self._named_plans[name] = self.plan_of(cls)
        return plan

    def enum(self, name: str) -> type[Enum]:
        """The enum class of that name; raises `Misfit` if there is none."""
        cls = self.find(name)
        if cls is None or not issubclass(cls, Enum):
            raise self._unknown(name)
        return cls

    def plan_of(self, cls: type) -> Plan:
        """The plan of a class already found here."""
        plan = self.plans.get(cls)
        if plan is None:
            plan = self.plans[cls] = plan_for(cls)
        return plan

    def admits(self, cls: type) -> bool:
        """True if instances of `cls` can be written and found again under its name.

        Raises `Misfit` if another class would be found instead.
        """
        name = cls.__qualname__
        if self.named.get(name) is cls:
            return True
        if not is_storable(cls) or not any(base in self.bases for base in cls.__mro__):
            return False
        self._named_plans.pop(name, None)
        self._found.pop(name, None)  # a class defined anew (a notebook cell) takes the place of the old one
        if self.find(name) is not cls:
            raise Misfit(f"two loaded classes are called {name}", f"rename one of the two classes {name}")
        return True

    def _search(self, name: str) -> type | None:
        found: dict[str, type] = {}
        for base in self.bases:
            for cls in _subclasses(base):
                if cls.__qualname__ == name and is_storable(cls):
                    # The newest of one module wins: dataclass(slots=True) leaves its first draft behind.
                    found[cls.__module__] = cls
        if len(found) > 1:
            raise Misfit(f"two loaded classes are called {name}", f"rename one of the two classes {name}")
        return next(iter(found.values()), None)

    def _unknown(self, name: str) -> Misfit:
        shown = ascii(name)[1:61].rstrip("'")
        hint = f"annotate the State field or the action with {shown}, or write a migration that replaces it"
        if self.unresolved:
            hint += f" (not resolved: {', '.join(sorted(set(self.unresolved))[:5])})"
        return Misfit(f"no class {shown} is reachable from the annotations", hint)


class _Generic(Types):
    """Admits every name, and gives stand-ins in place of instances."""

    generic = True

    def merged(self, other: Types) -> Types:  # noqa: ARG002  # everything is admitted already
        return self


GENERIC: Types = _Generic({}, frozenset())
"""Reads and writes values without the user's classes: `Record` and `EnumRef` stand in for them."""


def _name(named: dict[str, type], cls: type) -> None:
    held = named.setdefault(cls.__qualname__, cls)
    if held is not cls:
        raise Misuse(
            f"two classes are called {cls.__qualname__}: in {held.__module__} and in {cls.__module__}",
            hint=f"rename one of the two classes {cls.__qualname__}",
        )


def _is_users(cls: type) -> bool:
    """True for a class that values may be subclasses of: not a builtin, not a Protocol."""
    top = cls.__module__.partition(".")[0]
    return top not in sys.stdlib_module_names and not getattr(cls, "_is_protocol", False)


def _subclasses(cls: type) -> Iterator[type]:
    waiting: list[type] = list(type.__subclasses__(cls))
    seen: set[type] = set()
    while waiting:
        sub = waiting.pop(0)
        if sub not in seen:
            seen.add(sub)
            yield sub
            waiting.extend(type.__subclasses__(sub))


def _inside(hint: object) -> list[object]:
    """The hints one level inside `hint`."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return [typing.get_args(hint)[0]]
    if origin is typing.Literal:
        return [type(held) for held in typing.get_args(hint)]
    if origin is not None:
        return [origin, *typing.get_args(hint)]
    if isinstance(hint, (list, tuple)):  # the parameters of a Callable
        return list(hint)
    if isinstance(hint, typing.TypeVar):
        return [*([hint.__bound__] if hint.__bound__ else []), *hint.__constraints__]
    for name in ("__supertype__", "__value__"):  # NewType; the `type` statement
        if not isinstance(hint, type) and hasattr(hint, name):
            return [getattr(hint, name)]
    if isinstance(hint, type) and not issubclass(hint, Enum) and (is_storable(hint) or typing.is_typeddict(hint)):
        return [*hints_of(hint).values(), *getattr(hint, "__orig_bases__", ())]
    return []
