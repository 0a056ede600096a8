"""The fields of a State that change by the piece: `Log` and `Map` here, `Queue` next door.

Owns: the overlay a cycle lays over a log or a map, and the changes it comes to.
Must never: touch the document; only `changes.apply` does.
Invariant: a mutable value read inside a cycle is *lent*: mutate it in place and the commit sees it.
Read outside a cycle it is a copy, and mutating it changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from typing import Any, TypeVar, overload

from indelible.core.changes import LOG_ITEMS, LOG_SUMMARY, MAP_ENTRIES, Change, Doc, apply
from indelible.core.codec import Plain, Types, from_plain, pack, to_plain
from indelible.core.fields import ATOMS, Cell, Piecewise, brief, differs
from indelible.core.queues import FailedItem, NotDue, Queue
from indelible.errors import Misuse, NotStorable

__all__ = ["Doc", "FailedItem", "Log", "Map", "NotDue", "Queue", "apply"]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class Log(Piecewise, Sequence[T]):
    """An append-only list that is stored by the item: appending costs the item, not the list.

    Items can be replaced (`log[i] = value`), mutated in place inside a cycle, and compacted.
    """

    __slots__ = ("_dropped", "_new", "_over", "_summary")

    def _setup(self) -> None:
        pass

    def _forget(self) -> None:
        self._dropped = 0  # how many of the document's items this cycle compacted away
        self._over: dict[int, Cell] = {}  # the document's items lent or replaced, by their index there
        self._new: list[Cell] = []
        self._summary: Cell | None = None

    def append(self, value: T) -> None:
        """Add `value` at the end. Raises `NotStorable` at once; stored as it is at the commit."""
        self._begin()
        self._new.append(Cell(value, self._encode(value, len(self))))

    def extend(self, values: Iterable[T]) -> None:
        """Append each of `values`; if one cannot be stored, none is appended."""
        self._begin()
        start = len(self)
        self._new.extend([Cell(value, self._encode(value, start + n)) for n, value in enumerate(values)])

    def recent(self, n: int) -> list[T]:
        """The last `n` items, or all if there are fewer, oldest first."""
        size = len(self)
        return [self._at(index) for index in range(max(0, size - max(0, n)), size)]

    def compact(self, keep: int, summary: Any) -> None:
        """Keep the last `keep` items and `summary` in place of the rest. One change, however long the log."""
        self._begin()
        if type(keep) is not int or keep < 0:
            raise Misuse(f"{self._path}.compact keeps {brief(keep)} items", hint=f"{self._path}.compact(20, summary)")
        cell = Cell(summary, to_plain(summary, self._desk.types, f"{self._path}.summary"))
        drop = max(0, len(self) - keep)
        of_document = min(drop, len(self._field[LOG_ITEMS]) - self._dropped)
        self._dropped += of_document
        self._over = {index: over for index, over in self._over.items() if index >= self._dropped}
        del self._new[: drop - of_document]
        self._summary = cell

    @property
    def summary(self) -> Any:
        """What stands for the items that were compacted away; None if none were."""
        if self._summary is not None:
            return self._summary.value
        plain = self._field[LOG_SUMMARY]
        value = from_plain(plain, self._desk.types, f"{self._path}.summary")
        if self._desk.is_open and type(value) not in ATOMS:
            self._summary = Cell(value, plain)
        return value

    def __len__(self) -> int:
        return len(self._field[LOG_ITEMS]) - self._dropped + len(self._new)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._at(i) for i in range(*index.indices(len(self)))]
        return self._at(self._index(index))

    def __setitem__(self, index: int, value: T) -> None:
        self._begin()
        index = self._index(index)
        cell = Cell(value, self._encode(value, index))
        place = index + self._dropped
        size = len(self._field[LOG_ITEMS])
        if place < size:
            self._over[place] = cell
        else:
            self._new[place - size] = cell

    def __iter__(self) -> Iterator[T]:
        index = 0
        while index < len(self):
            yield self._at(index)
            index += 1

    def __repr__(self) -> str:
        return f"<Log {self._name}: {len(self)} items>"

    def _index(self, index: int) -> int:
        size = len(self)
        found = range(size)[index] if -size <= index < size else None
        if found is None:
            raise IndexError(f"index {index} is outside log {self._name!r} of {size} items")
        return found

    def _at(self, index: int) -> T:
        place = index + self._dropped
        items = self._field[LOG_ITEMS]
        if place >= len(items):
            fresh: T = self._new[place - len(items)].value
            return fresh
        if place in self._over:
            lent: T = self._over[place].value
            return lent
        value: T = self._decode(items[place], index)
        if self._desk.is_open and type(value) not in ATOMS:
            self._over[place] = Cell(value, items[place])
        return value

    def _changes(self) -> list[Change]:
        name, types, items = self._name, self._desk.types, self._field[LOG_ITEMS]
        changes: list[Change] = []
        if self._summary is not None or self._dropped:
            old = self._field[LOG_SUMMARY]
            summary = old if self._summary is None else self._summary.now(types, f"{self._path}.summary")
            if self._dropped or differs(summary, old):
                changes.append([name, "compact", self._dropped, summary])
        for place, cell in self._over.items():
            index = place - self._dropped
            plain = cell.now(types, "state.", name, "[", index, "]")
            if differs(plain, items[place]):
                changes.append([name, "set", index, plain])
        if self._new:
            start = len(self) - len(self._new)
            new = [cell.now(types, "state.", name, "[", at, "]") for at, cell in enumerate(self._new, start)]
            changes.append([name, "append", new])
        return changes


class Map(Piecewise, MutableMapping[K, V]):
    """A dict that is stored by the entry. Keys are anything storable that is equal to itself once
    stored; as in a dict, 1, 1.0 and True are one key, and the one that was put first stays."""

    __slots__ = ("_gone", "_keys", "_new", "_over")

    def _setup(self) -> None:
        self._keys: dict[K, bytes] | None = None  # the document's keys; a cache, made when first needed

    def _forget(self) -> None:
        self._over: dict[bytes, Cell] = {}  # the document's entries lent or replaced
        self._gone: dict[bytes, None] = {}  # the document's entries deleted
        self._new: dict[K, tuple[Plain, Cell]] = {}

    def __getitem__(self, key: K) -> V:
        fresh = self._new.get(key)
        if fresh is not None:
            added: V = fresh[1].value
            return added
        packed = self._known().get(key)
        if packed is None or packed in self._gone:
            raise KeyError(key)
        if packed in self._over:
            lent: V = self._over[packed].value
            return lent
        plain = self._field[MAP_ENTRIES][packed][1]
        value: V = self._decode(plain, brief(key))
        if self._desk.is_open and type(value) not in ATOMS:
            self._over[packed] = Cell(value, plain)
        return value

    def __setitem__(self, key: K, value: V) -> None:
        self._begin()
        cell = Cell(value, self._encode(value, brief(key)))
        packed = self._known().get(key)
        if key in self._new:
            self._new[key] = (self._new[key][0], cell)
        elif packed is not None and packed not in self._gone:
            self._over[packed] = cell
        else:
            self._new[key] = (self._key(key), cell)

    def __delitem__(self, key: K) -> None:
        self._begin()
        if key in self._new:
            del self._new[key]
            return
        packed = self._known().get(key)
        if packed is None or packed in self._gone:
            raise KeyError(key)
        self._gone[packed] = None
        self._over.pop(packed, None)

    def __contains__(self, key: object) -> bool:
        if key in self._new:
            return True
        packed = self._known().get(key)  # type: ignore[arg-type]
        return packed is not None and packed not in self._gone

    def __iter__(self) -> Iterator[K]:
        kept = [key for key, packed in self._known().items() if packed not in self._gone]
        return iter([*kept, *self._new])

    def __len__(self) -> int:
        return len(self._field[MAP_ENTRIES]) - len(self._gone) + len(self._new)

    def clear(self) -> None:
        """Delete every entry; one change."""
        self._begin()
        self._forget()
        self._gone = dict.fromkeys(self._field[MAP_ENTRIES])

    def __repr__(self) -> str:
        return f"<Map {self._name}: {len(self)} entries>"

    def _known(self) -> dict[K, bytes]:
        if self._keys is None:
            entries = self._field[MAP_ENTRIES]
            self._keys = {self._decode(entry[0], "key"): packed for packed, entry in entries.items()}
        return self._keys

    def _key(self, key: K) -> Plain:
        plain = self._encode(key, brief(key))
        if type(key) not in ATOMS or key != key:
            back = self._decode(plain, brief(key))
            if back != key or hash(back) != hash(key):
                raise NotStorable(
                    f"{self._path}[{brief(key)}]: this {type(key).__name__} does not equal itself once stored",
                    hint="use text, numbers, tuples or frozen dataclasses as keys",
                )
        return plain

    def _changes(self) -> list[Change]:
        name, types, entries = self._name, self._desk.types, self._field[MAP_ENTRIES]
        changes: list[Change] = []
        if self._gone:
            if len(self._gone) == len(entries):
                changes.append([name, "clear"])
            else:
                changes.extend([name, "del", entries[packed][0]] for packed in self._gone)
        for packed, cell in self._over.items():
            key, old = entries[packed]
            plain = self._now(cell, types, key)
            if differs(plain, old):
                changes.append([name, "put", key, plain])
        for key, cell in self._new.values():
            changes.append([name, "put", key, self._now(cell, types, key)])
        return changes

    def _now(self, cell: Cell, types: Types, key: Plain) -> Plain:
        if type(cell.value) in ATOMS:  # The path costs a decoded key, so only what can have changed pays for one.
            return cell.plain
        return cell.now(types, f"{self._path}[{brief(self._decode(key, 'key'))}]")

    def _applied(self, change: Change) -> None:
        if self._keys is None:
            return
        _, op, *args = change
        if op == "clear":
            self._keys.clear()
        elif op == "del":
            self._keys.pop(self._decode(args[0], "key"), None)
        else:
            self._keys.setdefault(self._decode(args[0], "key"), pack(args[0]))
