"""The queue of work to do.

Owns: `Queue`, the order of service, and the signal that nothing is due yet.
Must never: touch the document; only `changes.apply` does. Lose an item: an item leaves the
document only by a change that counts it as done, removed or failed.
Invariant: added == done + removed + failed + waiting + taken in the open cycle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

from indelible.core.changes import (
    ATTEMPTS,
    DONE,
    ERROR,
    FAILED,
    ITEM_VALUE,
    ITEMS,
    NEXT_ID,
    NOT_BEFORE,
    PRIORITY,
    REMOVED,
    Change,
)
from indelible.core.fields import Piecewise
from indelible.errors import Misuse

T = TypeVar("T")


class NotDue(BaseException):
    """The queue holds items, but none is due before `at` (epoch seconds).

    A control signal, not an error: the run parks until then.
    """

    def __init__(self, at: float) -> None:
        super().__init__(at)
        self.at = at


@dataclass(frozen=True, slots=True)
class FailedItem(Generic[T]):
    """An item that was given up: its value, how often it was tried, and the last error's text."""

    value: T
    attempts: int
    error: str


class Queue(Piecewise, Generic[T]):
    """Work to do, served by priority (the lowest number first), then in the order of arrival.

    An item taken in a cycle leaves the queue with the cycle's commit. If the cycle rolls back, it
    is still there, with its attempt counted; given up, it is in `failed`. Values are copied in
    and copied out: to change one, remove it and append the new one.
    """

    __slots__ = ("_added", "_attempts", "_covered", "_later", "_ranks", "_ready", "_removed", "_revived", "_taken")

    def _setup(self) -> None:
        # A cache over the document: every waiting item has an entry in one of the two heaps, (priority, id)
        # in `ready` or (not_before, id) in `later`; an entry counts only if it still agrees with its item.
        # So an entry too many is harmless, and commit and roll-back need not clean up.
        self._ready: list[tuple[int, int]] | None = None
        self._later: list[tuple[float, int]] = []
        self._covered = 0  # ids below this have their entry
        self._taken: dict[int, None] = {}
        self._ranks: dict[int, int] = {}
        self._revived: dict[int, None] = {}

    def _forget(self) -> None:
        if self._ranks or self._revived:
            self._ready = None
        if self._ready is not None:
            # Entries of what was taken or removed have left the heaps; after a roll-back both wait again.
            for item_id in (*self._taken, *self._removed):
                item = self._field[ITEMS].get(item_id)
                if item is not None:
                    heappush(self._ready, (item[PRIORITY], item_id))
        self._covered = min(self._covered, self._field[NEXT_ID])
        self._added: dict[int, list[Any]] = {}  # as in the document; their ids are the ones the commit will give
        self._taken = {}
        self._removed: dict[int, None] = {}
        self._ranks = {}
        self._revived = {}
        self._attempts = 0

    def append(self, value: T, *, priority: int = 0, not_before: float | None = None) -> None:
        """Add an item, to be served no earlier than `not_before` (epoch seconds). Raises `NotStorable` at once."""
        self._begin()
        item_id = self._field[NEXT_ID] + len(self._added)
        plain = self._encode(value, len(self))
        self._added[item_id] = [plain, self._priority(priority), 0, self._moment(not_before)]

    def extend(self, values: Iterable[T], *, priority: int = 0) -> None:
        """Append each of `values`; if one cannot be stored, none is added."""
        self._begin()
        priority = self._priority(priority)
        start = len(self)
        plains = [self._encode(value, start + n) for n, value in enumerate(values)]
        next_id = self._field[NEXT_ID] + len(self._added)
        for item_id, plain in enumerate(plains, next_id):
            self._added[item_id] = [plain, priority, 0, None]

    def take(self) -> T:
        """The next item that is due; it leaves the queue with the commit of this cycle.

        Raises `IndexError` on an empty queue. If there are items but none is due yet, the run
        parks until the earliest is.
        """
        self._begin()
        item_id, item = self._first()
        value: T = self._decode(item[ITEM_VALUE], "next")
        assert self._ready is not None
        heappop(self._ready)
        self._taken[item_id] = None
        self._attempts = item[ATTEMPTS] + 1
        return value

    def peek(self) -> T:
        """The item `take` would return, and the same errors."""
        value: T = self._decode(self._first()[1][ITEM_VALUE], "next")
        return value

    def remove(self, value: T) -> bool:
        """Take out the next waiting item equal to `value`; False if there is none."""
        self._begin()
        found = [item_id for item_id in self._waiting() if self._value(item_id) == value]
        if found:
            self._removed[min(found, key=self._service)] = None
        return bool(found)

    def reprioritise(self, fn: Callable[[T], int]) -> None:
        """Give each waiting item the priority `fn(value)`; nothing changes if `fn` raises."""
        self._begin()
        ranks = {item_id: self._priority(fn(self._value(item_id))) for item_id in self._waiting()}
        for item_id, priority in ranks.items():
            if item_id in self._added:
                self._added[item_id][PRIORITY] = priority
            else:
                self._ranks[item_id] = priority
        self._ready = None

    def retry_failed(self) -> int:
        """Put the failed items back with no attempt counted; returns how many."""
        self._begin()
        back = [item_id for item_id in self._field[FAILED] if item_id not in self._revived]
        self._revived.update(dict.fromkeys(back))
        self._ready = None
        return len(back)

    @property
    def failed(self) -> list[FailedItem[T]]:
        """The items that were given up."""
        return [
            FailedItem(self._decode(item[ITEM_VALUE], "failed"), item[ATTEMPTS], item[ERROR])
            for item_id, item in self._field[FAILED].items()
            if item_id not in self._revived
        ]

    @property
    def attempts(self) -> int:
        """Which attempt this is at the item taken last in this cycle, from 1; 0 if none was taken."""
        return self._attempts

    @property
    def added(self) -> int:
        """How many items were ever added."""
        return int(self._field[NEXT_ID]) + len(self._added)

    @property
    def done(self) -> int:
        """How many items were taken by cycles that committed."""
        return int(self._field[DONE])

    @property
    def removed(self) -> int:
        """How many items were removed."""
        return int(self._field[REMOVED]) + len(self._removed)

    def __len__(self) -> int:
        """How many items wait, those not yet due included."""
        out = len(self._taken) + len(self._removed)
        return len(self._field[ITEMS]) + len(self._added) + len(self._revived) - out

    def __iter__(self) -> Iterator[T]:
        """Copies of the waiting values in the order of service, those not yet due last."""
        return iter([self._value(item_id) for item_id in sorted(self._waiting(), key=self._service)])

    def __repr__(self) -> str:
        failed = len(self._field[FAILED]) - len(self._revived)
        return f"<Queue {self._name}: {len(self)} waiting, {failed} failed>"

    def _item(self, item_id: int) -> list[Any] | None:
        """The item as this cycle sees it, if it is waiting."""
        if item_id in self._taken or item_id in self._removed:
            return None
        item: list[Any] | None = self._added.get(item_id) or self._field[ITEMS].get(item_id)
        if item is None and item_id in self._revived:
            failed = self._field[FAILED][item_id]
            item = [failed[ITEM_VALUE], failed[PRIORITY], 0, None]
        if item is not None and item_id in self._ranks:
            item = [item[ITEM_VALUE], self._ranks[item_id], item[ATTEMPTS], item[NOT_BEFORE]]
        return item

    def _waiting(self) -> list[int]:
        ids = [*self._field[ITEMS], *self._revived, *self._added]
        return [item_id for item_id in ids if item_id not in self._taken and item_id not in self._removed]

    def _value(self, item_id: int) -> Any:
        item = self._item(item_id)
        assert item is not None
        return self._decode(item[ITEM_VALUE], "item")

    def _service(self, item_id: int) -> tuple[float, int, int]:
        item = self._item(item_id)
        assert item is not None
        not_before: float = -math.inf if item[NOT_BEFORE] is None else item[NOT_BEFORE]
        return (-math.inf if not_before <= self._desk.now else not_before, item[PRIORITY], item_id)

    def _first(self) -> tuple[int, list[Any]]:
        """The next due item; its entry is then the first of `ready`."""
        if len(self) == 0:
            raise IndexError(f"queue {self._name!r} is empty; test it first: if run.state.{self._name}: ...")
        ready, later, now = self._cover(), self._later, self._desk.now
        while True:
            while later and later[0][0] <= now:
                self._requeue(heappop(later)[1])
            while ready:
                priority, item_id = ready[0]
                item = self._item(item_id)
                if item is not None and item[PRIORITY] == priority:
                    if item[NOT_BEFORE] is None or item[NOT_BEFORE] <= now:
                        return item_id, item
                    heappush(later, (item[NOT_BEFORE], item_id))
                heappop(ready)
            at, item_id = later[0]
            item = self._item(item_id)
            if item is not None and item[NOT_BEFORE] == at:
                raise NotDue(at)
            self._requeue(heappop(later)[1])

    def _requeue(self, item_id: int) -> None:
        item = self._item(item_id)
        if item is not None and self._ready is not None:
            heappush(self._ready, (item[PRIORITY], item_id))

    def _cover(self) -> list[tuple[int, int]]:
        """`ready`, with an entry for every waiting item in one of the heaps."""
        if self._ready is None:
            self._later = []
            self._ready = [(item[PRIORITY], i) for i in self._waiting() if (item := self._item(i)) is not None]
            heapify(self._ready)
        else:
            for item_id in range(self._covered, self.added):
                self._requeue(item_id)
        self._covered = self.added
        return self._ready

    def _priority(self, priority: int) -> int:
        if type(priority) is not int or not -(2**63) <= priority < 2**63:
            raise Misuse(
                f"{self._path}: a priority is an int of 64 bits, not {type(priority).__name__}",
                hint=f"{self._path}.append(value, priority=1)  # the lowest is served first",
            )
        return priority

    def _moment(self, not_before: float | None) -> float | None:
        if not_before is None:
            return None
        moment = math.nan
        with suppress(TypeError, ValueError, OverflowError):
            moment = float(not_before)
        if not math.isfinite(moment):
            raise Misuse(
                f"{self._path}: not_before is epoch seconds",
                hint=f"{self._path}.append(value, not_before=run.now() + 60)",
            )
        return moment

    def _changes(self) -> list[Change]:
        name = self._name
        changes: list[Change] = []
        if self._added:
            # `attempts` is left out: of an item just added it is 0.
            changes.append([name, "add", [[item[0], item[1], item[3]] for item in self._added.values()]])
        if self._revived:
            changes.append([name, "revive", list(self._revived)])
        if self._ranks:
            ranks = [[i, p] for i, p in self._ranks.items() if i not in self._taken and i not in self._removed]
            changes.append([name, "rank", [[i, p] for i, p in ranks if self._stored_priority(i) != p]])
        if self._removed:
            changes.append([name, "remove", list(self._removed)])
        if self._taken:
            changes.append([name, "take", list(self._taken)])
        return [change for change in changes if change[2]]

    def _stored_priority(self, item_id: int) -> int:
        stored = self._field[ITEMS].get(item_id) or self._field[FAILED][item_id]
        return int(stored[PRIORITY])

    def _applied(self, change: Change) -> None:
        if change[1] in ("rank", "revive"):
            self._ready = None
