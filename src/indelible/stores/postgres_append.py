"""How batches get into the tables of a PostgreSQL store: as many as are waiting, in one round trip.

Owns: the statements of `append`, and in which order writes share them.
Must never: leave a batch without its head, or a head without its batch.
Invariant: a write lands only if the run's head, epoch and life are as it expects, in the statement that writes it.

One statement commits by itself. Several take one transaction, in one pipeline. Runs are locked in the order of
their names, so that two processes never wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from indelible.errors import IndelibleError, Misuse
from indelible.stores import refusals
from indelible.stores.base import Label, Write
from indelible.stores.postgres_pool import Connection

MAX_ROUND_BYTES = 32 * 1024 * 1024
"""So much goes into one statement at most, unless a single batch is larger."""

_APPEND = """
SELECT indelible_append(%(full)s, %(now)s::float8, %(run_id)s, %(epoch)s::int8, %(after)s::int8, %(last)s::int8,
    %(data)b, %(labelled)s, %(agent)s, %(status)s, %(wake_at)s::float8, %(about)b)"""
_APPEND_MANY = """
SELECT indelible_append_many(%(full)s, %(now)s::float8, %(run_ids)s::text[], %(ranks)s::int4[], %(epochs)s::int8[],
    %(afters)s::int8[], %(lasts)s::int8[], %(datas)b::bytea[], %(labelled)s::bool[], %(agents)s::text[],
    %(statuses)s::text[], %(wake_ats)s::float8[], %(abouts)b::bytea[])"""
_CREATE_INBOXES = """
INSERT INTO indelible_runs (run_id, listed, created_at, updated_at)
SELECT name, false, its.now, its.now
FROM (SELECT coalesce(%(now)s::float8, extract(epoch FROM clock_timestamp())::float8) AS now,
        set_config('lock_timeout', '10s', true)) AS its, unnest(%(names)s::text[]) AS name
ORDER BY name ON CONFLICT (run_id) DO NOTHING"""
_LOCK = """
SELECT no FROM (SELECT set_config('lock_timeout', '10s', true) AS kept) AS its, indelible_runs
WHERE its.kept <> '' AND run_id = ANY(%(names)s::text[]) ORDER BY run_id FOR NO KEY UPDATE OF indelible_runs"""
_NO_LABEL = Label("", "", None, b"")
_STANDING = "SELECT run_id, head, epoch, deleted FROM indelible_runs WHERE run_id = ANY(%s::text[])"


def append(con: Connection, writes: Sequence[Write], now: float | None, full: bool) -> list[IndelibleError | None]:
    """See `Store.append`; `now` is the time where a test gives it. Raises `psycopg.Error`."""
    answers = [refusals.bad_write(write) or _unstorable(write) for write in writes]
    good = [place for place, answer in enumerate(answers) if answer is None]
    if not good:
        return answers
    inboxes = sorted({writes[place].run_id for place in good if _begins_inbox(writes[place])})
    rounds = list(_rounds(writes, good))
    if len(rounds) == 1 and not inboxes:
        landed = _landed(con.execute(*_statement(writes, rounds[0], now, full)).fetchall(), rounds[0])
    else:
        landed = _in_one_transaction(con, writes, rounds, inboxes, now, full)
    refused = [place for place in good if place not in landed]
    if refused:
        names = [writes[place].run_id for place in refused]
        standing = {row[0]: row[1:] for row in con.execute(_STANDING, (names,))}
        for place in refused:
            answers[place] = _refusal(writes[place], standing.get(writes[place].run_id))
    return answers


def storable(text: str) -> bool:
    """False for a text that PostgreSQL cannot hold, so that no row bears it."""
    try:
        return "\0" not in text and bool(text.encode() or True)
    except UnicodeEncodeError:
        return False


def _in_one_transaction(
    con: Connection, writes: Sequence[Write], rounds: list[list[int]], inboxes: list[str], now: float | None, full: bool
) -> set[int]:
    names = list({writes[place].run_id for some in rounds for place in some})
    with con.pipeline(), con.transaction():
        if inboxes:
            con.execute(_CREATE_INBOXES, {"names": inboxes, "now": now})
        con.execute(_LOCK, {"names": names})
        cursors = [con.execute(*_statement(writes, some, now, full)) for some in rounds]
    landed: set[int] = set()
    for cursor, some in zip(cursors, rounds, strict=True):
        landed |= _landed(cursor.fetchall(), some)
    return landed


def _rounds(writes: Sequence[Write], good: list[int]) -> Iterator[list[int]]:
    """Writes that can share a statement: of distinct runs, and not too large together; sorted by their run."""
    some: list[int] = []
    runs: set[str] = set()
    size = 0
    for place in good:
        run_id, data = writes[place].run_id, writes[place].batch.data
        if some and (run_id in runs or size + len(data) > MAX_ROUND_BYTES):
            yield sorted(some, key=lambda at: writes[at].run_id.encode())
            some, runs, size = [], set(), 0
        some.append(place)
        runs.add(run_id)
        size += len(data)
    yield sorted(some, key=lambda at: writes[at].run_id.encode())


def _statement(writes: Sequence[Write], some: list[int], now: float | None, full: bool) -> tuple[Any, dict[str, Any]]:
    if len(some) > 1:
        return _APPEND_MANY, _many(writes, some, now, full)
    run_id, epoch, (after, last, data), label = writes[some[0]]
    agent, status, wake_at, about = label or _NO_LABEL
    return _APPEND, {
        "full": full, "now": now, "run_id": run_id, "epoch": epoch, "after": after, "last": last, "data": data,
        "labelled": label is not None, "agent": agent, "status": status, "wake_at": wake_at, "about": about,
    }  # fmt: skip


def _many(writes: Sequence[Write], some: list[int], now: float | None, full: bool) -> dict[str, Any]:
    chosen = [writes[place] for place in some]
    labels = [write.label or _NO_LABEL for write in chosen]
    rank = {place: at for at, place in enumerate(sorted(some), 1)}
    return {
        "full": full,
        "now": now,
        "run_ids": [write.run_id for write in chosen],
        "ranks": [rank[place] for place in some],
        "epochs": [write.epoch for write in chosen],
        "afters": [write.batch.after_seq for write in chosen],
        "lasts": [write.batch.last_seq for write in chosen],
        "datas": [write.batch.data for write in chosen],
        "labelled": [write.label is not None for write in chosen],
        "agents": [label.agent for label in labels],
        "statuses": [label.status for label in labels],
        "wake_ats": [label.wake_at for label in labels],
        "abouts": [label.about for label in labels],
    }


def _landed(rows: list[tuple[Any, ...]], some: list[int]) -> set[int]:
    ((landed,),) = rows
    if len(some) == 1:
        return set(some) if landed else set()
    return {some[at - 1] for at in landed or ()}


def _begins_inbox(write: Write) -> bool:
    if not refusals.is_inbox(write.run_id) or write.epoch != 0 or write.batch.after_seq != 0:
        return False
    try:
        refusals.check_journal_id(write.run_id)
    except Misuse:
        return False
    return True


def _refusal(write: Write, standing: tuple[Any, ...] | None) -> IndelibleError:
    if standing is not None:
        head, epoch, deleted = standing
        return refusals.stale(write, head=head, epoch=epoch, deleted=deleted)
    if not refusals.is_inbox(write.run_id) or write.epoch != 0 or write.batch.after_seq != 0:
        return refusals.stale(write, head=0 if refusals.is_inbox(write.run_id) else None)
    try:
        refusals.check_journal_id(write.run_id)
    except IndelibleError as error:
        return error
    return refusals.stale(write, head=None)


def _unstorable(write: Write) -> IndelibleError | None:
    label = write.label
    texts = (write.run_id,) if label is None else (write.run_id, label.agent, label.status)
    if all(storable(text) for text in texts):
        return None
    return Misuse(
        f"run {write.run_id[:60]!a}: a name holds NUL or half of a character pair",
        hint="leave such characters out of the names of runs and agents",
    )
