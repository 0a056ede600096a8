"""What `indelible doctor` and `indelible prune` ask of object storage.

Owns: the facts, and the sweep through everything that is stored.
Must never: in `facts`, change anything: put-if-absent is tried on an object that is there.
Invariant: what `reclaim` removes, no reader looks at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from indelible.errors import IndelibleError
from indelible.stores.base import INBOX, Fact
from indelible.stores.objects_bucket import Item
from indelible.stores.objects_entry import (
    FORMAT,
    INBOXES,
    INDEX,
    RUNS,
    Entry,
    Index,
    Names,
    Standing,
    decode,
    number_of,
)
from indelible.stores.objects_folder import Folder
from indelible.stores.objects_log import KEEP_S, Logs
from indelible.stores.objects_tidying import Holding, Tidying, sort

_SHOWN = 3


def facts(logs: Logs, *, durable: bool, readonly: bool) -> Iterator[Fact]:
    """See `Upkeep.facts`."""
    bucket = logs.bucket
    yield Fact("object storage", bucket.where)
    yield Fact("durable", "yes" if durable else "not after a power cut", "ok" if durable else "note",
               "" if durable else 'durability="full"')  # fmt: skip
    if not readonly:
        found = bucket.get(FORMAT)
        honoured = found is not None and not bucket.create(FORMAT, found.data)
        yield Fact("put-if-absent", "honoured" if honoured else "ignored", "ok" if honoured else "bad",
                   "" if honoured else "use a server that honours If-None-Match")  # fmt: skip
        yield Fact("clock", f"{logs.clock.ask():.0f} s since 1970")
    if isinstance(bucket, Folder):
        others = list(bucket.readable_by_others())
        yield Fact("permissions", f"{len(others)} files may be opened by others" if others else "for this user only",
                   "bad" if others else "ok", f"chmod -R go= {bucket.root}" if others else "")  # fmt: skip
    yield from _runs(logs)


def _runs(logs: Logs) -> Iterator[Fact]:
    """Facts about what is stored, by looking at the end of every log."""
    held, indexed, now = _all(logs), _indexed(logs), logs.clock.now()
    wrong, damaged = _orphans(logs, held, indexed, now), list[str]()
    left = stale = objects = waiting = 0
    for base, holding in sorted(held.items()):
        objects += len(holding.entries) + len(holding.packs) + len(holding.snapshots) + len(holding.others)
        names = _names(logs, base, holding)
        tail = None if names is None else logs.look(names)
        if names is None or tail is None:
            damaged.append(base)
        elif tail.now.deleted:
            rest = [item for item in holding.entries if (number_of(item.path) or 0) < tail.now.index]
            left += len(holding.packs) + len(holding.snapshots) + sum(1 for item in rest if item.size)
            left += names.listed in indexed
            waiting += sum(1 for item in rest if not item.size)
        else:
            if names.listed and _contradicts(indexed.get(names.listed), tail.now):
                wrong.append(names.run_id)
            through = max(tail.now.packed, tail.now.floor)
            stale += sum(1 for item in holding.entries
                         if (number_of(item.path) or 0) <= through and item.modified + KEEP_S < now)  # fmt: skip
    yield Fact("objects", f"{objects} of {len(held)} runs and inboxes")
    yield Fact("unreadable", _some(damaged) or "none", "bad" if damaged else "ok",
               "indelible verify --all" if damaged else "")  # fmt: skip
    yield Fact("index", f"wrong for {_some(wrong)}" if wrong else "agrees with the logs", "bad" if wrong else "ok",
               "indelible prune" if wrong else "")  # fmt: skip
    yield Fact("left of deleted runs", f"{left} objects" if left else "nothing", "note" if left else "ok",
               "indelible prune" if left else "")  # fmt: skip
    yield Fact("merged entries not yet removed", str(stale), "note" if stale else "ok",
               "indelible prune" if stale else "")  # fmt: skip
    yield Fact("placeholders", str(waiting))


def reclaim(logs: Logs, tidying: Tidying) -> int:
    """See `Upkeep.reclaim`."""
    freed = 0
    now = logs.clock.ask()
    indexed, held = _indexed(logs), _all(logs)
    if isinstance(logs.bucket, Folder):
        freed += logs.bucket.sweep(now)
    for path in _orphans(logs, held, indexed, now):
        _remove_orphan(logs, path, indexed[path][1])
    for base, holding in held.items():
        names = _names(logs, base, holding)
        if names is None:
            continue
        log = logs.of(names.run_id)
        with log.lock:
            tail = logs.refresh(log)
            if tail is None:
                continue
            if tail.now.deleted:
                freed += tidying.clear(names, tail.now)
            else:
                freed += tidying.sweep(names, tail.now, now)
                if names.listed and _contradicts(indexed.get(names.listed), tail.now):
                    logs.put_index(log, tail.now)
        if tail.now.deleted and names.listed:
            inbox = logs.of(names.inbox.run_id)
            with inbox.lock:
                tidying.bury(inbox)
    return freed


def _all(logs: Logs) -> dict[str, Holding]:
    """Everything below each run's and each inbox's prefix."""
    found: dict[str, Holding] = defaultdict(lambda: Holding([], [], [], []))
    for top in (RUNS, INBOXES):
        for chunk in logs.bucket.list(f"{top}/"):
            for item in chunk:
                base = "/".join(item.path.split("/", 2)[:2])
                sort(found[base], base, item)
    return found


def _names(logs: Logs, base: str, holding: Holding) -> Names | None:
    """Whose prefix this is, as the last entry tells; None if that cannot be read."""
    last: Item | None = max(holding.entries, key=lambda item: number_of(item.path) or 0, default=None)
    if last is None:
        return None
    run_id = _owner_of(logs, last.path)
    names = None if run_id is None else Names.of(run_id)
    return names if names is not None and names.base == base else None


def _owner_of(logs: Logs, path: str) -> str | None:
    found = logs.bucket.get(path)
    try:
        return None if found is None else decode(Entry, found.data, path).now.run_id
    except IndelibleError:
        return None


def _indexed(logs: Logs) -> dict[str, tuple[Item, Index | None]]:
    """What the index says, by path; None where it cannot be read."""
    items = [item for chunk in logs.bucket.list(f"{INDEX}/") for item in chunk]

    def read(item: Item) -> Index | None:
        found = logs.bucket.get(item.path)
        try:
            return None if found is None else decode(Index, found.data, item.path)
        except IndelibleError:
            return None

    return {item.path: (item, index) for item, index in zip(items, logs.each(read, items), strict=True)}


def _orphans(
    logs: Logs, held: dict[str, Holding], indexed: dict[str, tuple[Item, Index | None]], now: float
) -> list[str]:
    """Index objects of runs that have no entry, and are not just being made."""
    bases = {f"{INDEX}/{base.partition('/')[2]}" for base in held if base.startswith(f"{RUNS}/")}
    grain = logs.bucket.grain_s
    return [path for path, (item, _) in indexed.items() if path not in bases and item.modified + grain + KEEP_S < now]


def _remove_orphan(logs: Logs, path: str, index: Index | None) -> None:
    """Remove it, and put it back if the run has come to be meanwhile."""
    logs.bucket.remove([path])
    if index is not None:
        log = logs.of(index.now.run_id)
        with log.lock:
            tail = logs.refresh(log)
            if tail is not None and not tail.now.deleted:
                logs.put_index(log, tail.now)


def _contradicts(found: tuple[Item, Index | None] | None, now: Standing) -> bool:
    """It is missing, tells of an entry that is not there, or passes for exact and is not."""
    index = None if found is None else found[1]
    return index is None or index.now.index > now.index or (index.settled and index.now.nonce != now.nonce)


def _some(names: list[str]) -> str:
    shown = ", ".join(name[:60].removesuffix(INBOX) for name in names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
