"""What committed state is, and the one way it changes.

Owns: the document (`Doc`) a run's state is kept as, and `apply`, which folds changes into it.
Must never: call user code, read a clock, or guess what a malformed change may have meant.
Invariant: the live run and the recovery of it both go through `apply`, so they cannot differ.

A document is plain data, and a snapshot packs it as it is. Per field one of

    ["plain", value]
    ["log",   items, summary]                        summary None: nothing was compacted
    ["map",   {packed key: [key, value]}]            in the order the keys were put
    ["queue", next_id, items, failed, done, removed]
              items  {id: [value, priority, attempts, not_before]}
              failed {id: [value, priority, attempts, error]}

Ids are given out from 0 in the order of arrival, so `next_id` is also the count of all items
ever added: next_id == done + removed + len(failed) + len(items), always.

A change is [field, op, *args]. Values in it are plain; the document takes them over, and nobody
mutates a plain value in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from indelible.core.codec import Plain, pack
from indelible.errors import JournalDamaged

FieldDoc = list[Any]
Doc = dict[str, FieldDoc]
Change = list[Any]

# Positions inside a field and inside a queue's item.
VALUE = 1
LOG_ITEMS, LOG_SUMMARY = 1, 2
MAP_ENTRIES = 1
NEXT_ID, ITEMS, FAILED, DONE, REMOVED = 1, 2, 3, 4, 5
ITEM_VALUE, PRIORITY, ATTEMPTS, NOT_BEFORE, ERROR = 0, 1, 2, 3, 3


def plain_field(value: Plain) -> FieldDoc:
    """A plain field holding `value`."""
    return ["plain", value]


def log_field() -> FieldDoc:
    """An empty log."""
    return ["log", [], None]


def map_field() -> FieldDoc:
    """An empty map."""
    return ["map", {}]


def queue_field() -> FieldDoc:
    """An empty queue."""
    return ["queue", 0, {}, {}, 0, 0]


def apply(doc: Doc, changes: Iterable[Change]) -> None:
    """Fold `changes` into `doc`, in place and in order.

    Raises `JournalDamaged`, naming field and op, for a change that does not fit the document;
    `doc` is then to be thrown away, for the changes before it have been applied.
    """
    for change in changes:
        try:
            name, op, *args = change
            field = doc[name]
            _OPS[field[0], op](field, *args)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError):
            raise _damaged(change) from None


def retry_changes(
    doc: Doc, taken: Iterable[tuple[str, int]], error: str, attempts_limit: int, not_before: float | None = None
) -> tuple[list[Change], bool]:
    """What a failed attempt does to the items it had taken, and whether any was given up.

    Each item stays where it is with one attempt more (and, if given, not served before
    `not_before`, epoch seconds); at `attempts_limit` attempts it moves to the failed list
    with `error`. Items that are not in the document's queues are left alone.
    """
    changes: list[Change] = []
    gave_up = False
    for name, item_id in taken:
        item = doc[name][ITEMS].get(item_id)
        if item is None:
            continue
        if item[ATTEMPTS] + 1 >= attempts_limit:
            changes.append([name, "fail", item_id, error])
            gave_up = True
        else:
            changes.append([name, "attempt", item_id, None if not_before is None else float(not_before)])
    return changes, gave_up


def _set(field: FieldDoc, value: Plain) -> None:
    field[VALUE] = value


def _log_append(field: FieldDoc, values: list[Plain]) -> None:
    field[LOG_ITEMS].extend(_listed(values))


def _log_set(field: FieldDoc, index: int, value: Plain) -> None:
    field[LOG_ITEMS][_counted(index)] = value


def _log_compact(field: FieldDoc, dropped: int, summary: Plain) -> None:
    if _counted(dropped) > len(field[LOG_ITEMS]):
        raise ValueError
    del field[LOG_ITEMS][:dropped]
    field[LOG_SUMMARY] = summary


def _map_put(field: FieldDoc, key: Plain, value: Plain) -> None:
    field[MAP_ENTRIES][pack(key)] = [key, value]


def _map_del(field: FieldDoc, key: Plain) -> None:
    del field[MAP_ENTRIES][pack(key)]


def _map_clear(field: FieldDoc) -> None:
    field[MAP_ENTRIES].clear()


def _queue_add(field: FieldDoc, items: list[list[Any]]) -> None:
    for value, priority, not_before in _listed(items):
        field[ITEMS][field[NEXT_ID]] = [value, _whole(priority), 0, _moment(not_before)]
        field[NEXT_ID] += 1


def _queue_take(field: FieldDoc, ids: list[int]) -> None:
    for item_id in _listed(ids):
        del field[ITEMS][item_id]
        field[DONE] += 1


def _queue_remove(field: FieldDoc, ids: list[int]) -> None:
    for item_id in _listed(ids):
        del field[ITEMS][item_id]
        field[REMOVED] += 1


def _queue_rank(field: FieldDoc, ranks: list[list[int]]) -> None:
    for item_id, priority in _listed(ranks):
        field[ITEMS][item_id][PRIORITY] = _whole(priority)


def _queue_attempt(field: FieldDoc, item_id: int, not_before: float | None) -> None:
    item = field[ITEMS][item_id]
    item[ATTEMPTS] += 1
    item[NOT_BEFORE] = _moment(not_before)


def _queue_fail(field: FieldDoc, item_id: int, error: str) -> None:
    if type(error) is not str:
        raise TypeError
    value, priority, attempts, _ = field[ITEMS].pop(item_id)
    field[FAILED][item_id] = [value, priority, attempts + 1, error]


def _queue_revive(field: FieldDoc, ids: list[int]) -> None:
    for item_id in _listed(ids):
        value, priority, _, _ = field[FAILED].pop(item_id)
        field[ITEMS][item_id] = [value, priority, 0, None]


def _listed(value: list[Any]) -> list[Any]:
    if type(value) is not list:
        raise TypeError
    return value


def _whole(value: int) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _counted(value: int) -> int:
    if _whole(value) < 0:
        raise ValueError
    return value


def _moment(value: float | None) -> float | None:
    if value is not None and type(value) is not float:
        raise TypeError
    return value


_OPS: dict[tuple[str, str], Callable[..., None]] = {
    ("plain", "set"): _set,
    ("log", "append"): _log_append,
    ("log", "set"): _log_set,
    ("log", "compact"): _log_compact,
    ("map", "put"): _map_put,
    ("map", "del"): _map_del,
    ("map", "clear"): _map_clear,
    ("queue", "add"): _queue_add,
    ("queue", "take"): _queue_take,
    ("queue", "remove"): _queue_remove,
    ("queue", "rank"): _queue_rank,
    ("queue", "attempt"): _queue_attempt,
    ("queue", "fail"): _queue_fail,
    ("queue", "revive"): _queue_revive,
}


def _damaged(change: Any) -> JournalDamaged:
    # Only names are shown: what follows them in a change is the user's data.
    parts = [ascii(part[:40]) if isinstance(part, str) else "?" for part in change[:2]] if type(change) is list else []
    field, op = (*parts, "?", "?")[:2]
    return JournalDamaged(
        f"the change {op} of state field {field} does not fit the state before it",
        hint="indelible verify",
        field=field.strip("'"),
        op=op.strip("'"),
    )
