"""Listing the runs of a Redis store, a page at a time.

Owns: how a page is put together from the index and the hashes of its runs.
Must never: read all of a large store into memory for one page.
Invariant: every run that is there is in the index; what is in the index alone is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from indelible.stores import refusals
from indelible.stores.base import Label, Page, Query, RunEntry
from indelible.stores.redis_keys import Keys, packed, plain
from indelible.stores.redis_link import Link

AT_ONCE = 500

_SHOWN = ("head", "deleted", "agent", "status", "epoch", "wake_at", "about", "owner", "lease_until", "created_at",
          "updated_at", "stored_bytes")  # fmt: skip


def page(link: Link, keys: Keys, query: Query, below: tuple[int, int], now: str) -> Page:
    """The runs that match, at most `query.limit`, last written first, from below that position on."""
    found: list[tuple[int, RunEntry]] = []
    live: dict[str, bool] = {}
    for some in _indexed(link, keys, query, below):
        time, *rows = link.ask(("TIME",), *(("HMGET", keys.of(plain(run_id))[0], *_SHOWN) for _, run_id in some))
        at = float(now) if now else int(link.good(time)[0]) + int(time[1]) / 1e6
        for (touched, run_id), row in zip(some, rows, strict=True):
            head, deleted, agent, status = link.good(row)[:4]
            if head is not None and deleted is None and _matches(query, agent, status):
                found.append((touched, _entry(plain(run_id), row, at, live)))
        if len(found) > query.limit:
            last = found[query.limit - 1][0]
            return Page([entry for _, entry in found[: query.limit]], refusals.cursor_at((last, 0)))
    return Page([entry for _, entry in found], None)


def _indexed(link: Link, keys: Keys, query: Query, below: tuple[int, int]) -> Iterator[list[tuple[int, bytes]]]:
    """What the index holds below that position, so many at once, last written first."""
    if query.run_ids is not None:
        yield from _named(link, keys, query.run_ids, below)
        return
    until, many = below[0], AT_ONCE if query.statuses is not None or query.agent else min(query.limit + 1, AT_ONCE)
    while True:
        answer = link.one("ZREVRANGEBYSCORE", keys.order, f"({until}", "-inf", "WITHSCORES", "LIMIT", 0, many)
        some = [(int(float(score)), run_id) for run_id, score in zip(answer[::2], answer[1::2], strict=True)]
        if not some:
            return
        yield some
        until = some[-1][0]


def _named(
    link: Link, keys: Keys, run_ids: tuple[str, ...], below: tuple[int, int]
) -> Iterator[list[tuple[int, bytes]]]:
    wanted = list(dict.fromkeys(packed(run_id) for run_id in run_ids))
    there: list[tuple[int, bytes]] = []
    for start in range(0, len(wanted), AT_ONCE):
        some = wanted[start : start + AT_ONCE]
        scores = link.one("ZMSCORE", keys.order, *some)
        numbered = (
            (int(float(score)), run_id) for score, run_id in zip(scores, some, strict=True) if score is not None
        )
        there += (one for one in numbered if one[0] < below[0])
    there.sort(reverse=True)
    for start in range(0, len(there), AT_ONCE):
        yield there[start : start + AT_ONCE]


def _matches(query: Query, agent: bytes | None, status: bytes | None) -> bool:
    if query.statuses is not None and (status is None or plain(status) not in query.statuses):
        return False
    return query.agent is None or (agent is not None and plain(agent) == query.agent)


def _entry(run_id: str, row: Any, now: float, live: dict[str, bool]) -> RunEntry:
    head, _, agent, status, epoch, wake_at, about, owner, lease_until, created_at, updated_at, stored_bytes = row
    holder, until = plain(owner or b""), float(lease_until or 0)
    if holder and until > now and holder not in live:
        live[holder] = refusals.is_live(holder, until, now)
    return RunEntry(
        run_id=run_id,
        head=int(head),
        epoch=int(epoch or 0),
        label=None if agent is None else Label(plain(agent), plain(status), float(wake_at) if wake_at else None, about),
        owner=holder,
        live=bool(holder) and until > now and live[holder],
        created_at=float(created_at),
        updated_at=float(updated_at or created_at),
        stored_bytes=int(stored_bytes or 0),
    )
