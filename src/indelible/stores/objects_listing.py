"""Listing the runs of object storage: one index object for each, made exact by the end of its log.

Owns: what of the index may be believed.
Must never: show what the index says of a run that somebody may be writing.
Invariant: an index object that is missing hides no run for good (`facts` finds it, `reclaim` writes it), and one that
is out of date shows no wrong entry.

A listing costs one request for each 1,000 runs, a read for each index object that has changed since this handle saw
it, and for each run that was not released one listing of the end of its log.
"""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import NamedTuple

from indelible.errors import IndelibleError
from indelible.stores import refusals
from indelible.stores.base import Page, Query, RunEntry
from indelible.stores.objects_bucket import Item
from indelible.stores.objects_entry import INDEX, Index, Lease, Names, Standing, decode, segment
from indelible.stores.objects_log import Logs, Tail

_FEW = 100
"""So many runs are looked up by name rather than found in a listing of all."""
_SEEN = 50_000


class _Run(NamedTuple):
    now: Standing
    modified: float | None


class Listing:
    """The index of a store, as one handle sees it."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._seen: dict[str, tuple[str, Index | None]] = {}
        """What index objects hold, by path, with their tags: read once for each content."""
        self._tails: dict[str, Tail] = {}

    def page(self, query: Query, cursor: str | None) -> Page:
        """See `Store.list_runs`."""
        below = refusals.check_query(query, cursor)
        found = sorted(
            ((_place(run.now), run) for run in self._runs(query) if _matches(run.now, query)),
            key=lambda pair: pair[0],
            reverse=True,
        )
        found = [pair for pair in found if pair[0] < below]
        gone: dict[str, bool] = {}
        now = self._logs.clock.now()
        entries = [self._entry(run, now, gone) for _, run in found[: query.limit]]
        more = len(found) > query.limit
        return Page(entries, refusals.cursor_at(found[query.limit - 1][0]) if more else None)

    def _runs(self, query: Query) -> list[_Run]:
        wanted = None if query.run_ids is None else {segment(run_id): run_id for run_id in query.run_ids}
        if wanted is not None and len(wanted) <= _FEW:
            names = [Names.of(run_id) for run_id in wanted.values() if not refusals.is_inbox(run_id)]
            read = self._logs.each(self._named, names)
        else:
            items = [
                item
                for chunk in self._logs.bucket.list(f"{INDEX}/")
                for item in chunk
                if wanted is None or item.path.rpartition("/")[2] in wanted
            ]
            if len(self._seen) > max(_SEEN, 2 * len(items)):
                self._seen.clear()
                self._tails.clear()
            read = self._logs.each(self._listed, items)
        return [run for run in read if run is not None]

    def _named(self, names: Names) -> _Run | None:
        index = self._logs.index(names)
        return self._exact(names, index) if index is not None else self._exact(names, None)

    def _listed(self, item: Item) -> _Run | None:
        self._logs.clock.saw(item.modified)
        tag, index = self._seen.get(item.path, ("", None))
        if not tag or tag != item.tag:
            found = self._logs.bucket.get(item.path)
            if found is None:
                return None
            try:
                index = decode(Index, found.data, item.path)
            except IndelibleError:
                index = None
            if index is not None and Names.of(index.now.run_id).listed != item.path:
                index = None
            self._seen[item.path] = (item.tag, index)
        if index is None:
            return None  # `facts` tells of it
        return self._exact(Names.of(index.now.run_id), index)

    def _exact(self, names: Names, index: Index | None) -> _Run | None:
        """The standing of a run now; None if it was deleted, or never came to be."""
        if index is not None and index.settled:
            return None if index.now.deleted else _Run(index.now, None)
        known = self._logs.of(names.run_id).tail or self._tails.get(names.run_id)
        if known is None and index is not None and index.now.index:
            known = Tail(index.now, None, -math.inf)
        tail = self._logs.look(names, known)
        if tail is None or tail.now.deleted:
            self._tails.pop(names.run_id, None)
            return None
        self._tails[names.run_id] = tail
        return _Run(tail.now, tail.modified)

    def _entry(self, run: _Run, now: float, gone: dict[str, bool]) -> RunEntry:
        standing = run.now
        live = bool(standing.owner)
        if live and standing.owner not in gone:
            gone[standing.owner] = not refusals.is_live(standing.owner, now + 1.0, now)
        if live:
            written = standing.at if run.modified is None else run.modified
            live = not gone[standing.owner] and lease_end(self._logs, standing, written, now) > now
        return RunEntry(
            run_id=standing.run_id,
            head=standing.head,
            epoch=standing.epoch,
            label=standing.label,
            owner=standing.owner,
            live=live,
            created_at=standing.created_at,
            updated_at=standing.updated_at,
            stored_bytes=standing.stored_bytes,
        )


def lease_end(logs: Logs, standing: Standing, written: float, now: float) -> float:
    """When the lease of the holder ends on the store's clock, at the latest; `written` is when its entry was.

    The renewal object is read only if the entry alone would not do.
    """
    given, grain = logs.clock.given, logs.bucket.grain_s
    until = (standing.at if given else written + grain) + standing.ttl_s
    if until > now:
        return until
    return max(until, renewed_until(logs, standing))


def renewed_until(logs: Logs, standing: Standing) -> float:
    """When the lease ends that the holder renewed last without writing; 0 if it did not."""
    path = Names.of(standing.run_id).lease(standing.epoch)
    found = logs.bucket.get(path)
    if found is None:
        return 0.0
    lease = decode(Lease, found.data, path)
    began = lease.at if logs.clock.given else found.modified + logs.bucket.grain_s
    return began + lease.ttl_s


def _place(now: Standing) -> tuple[int, int]:
    """Where a run comes in a listing; of two that were written in one microsecond the id decides."""
    digest = blake2b(now.run_id.encode(), digest_size=7).digest()
    return now.touched, int.from_bytes(digest, "big") % 10**17


def _matches(now: Standing, query: Query) -> bool:
    label = now.label
    if query.run_ids is not None and len(query.run_ids) <= _FEW and now.run_id not in query.run_ids:
        return False
    if query.statuses is not None and (label is None or label.status not in query.statuses):
        return False
    return query.agent is None or (label is not None and label.agent == query.agent)
