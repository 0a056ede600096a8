"""How batches get into the tables of a PostgreSQL store: as many as are waiting, in one round trip.

Owns: the statements of `append`, and in which order writes share them.
Must never: leave a batch without its head, or a head without its batch.
Invariant: a write lands only if the run's head, epoch and life are as it expects, in the statement that writes it.

Every statement commits by itself, with its settings set for itself alone: `lock_timeout`, and
`synchronous_commit`. Several take one transaction, in one pipeline. Rows are locked by rising number,
so that two processes never wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from indelible.errors import IndelibleError, Misuse
from indelible.stores import refusals
from indelible.stores.base import Write
from indelible.stores.postgres_pool import Connection

MAX_ROUND_BYTES = 32 * 1024 * 1024
"""So much goes into one statement at most, unless a single batch is larger."""

_ADVANCE = """
WITH moved AS (
    UPDATE indelible_runs AS run SET head = %(last)s::int8, stored_bytes = stored_bytes + %(size)s::int8,
        touched = nextval('indelible_touches'), updated_at = its.now, lease_until = its.now + ttl_s
    FROM (SELECT coalesce(%(now)s::float8, extract(epoch FROM clock_timestamp())::float8) AS now,
        set_config('lock_timeout', '10s', true),
        set_config('synchronous_commit', CASE WHEN NOT %(full)s THEN 'off' WHEN current_setting('synchronous_commit') =
            'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)) AS its
    WHERE run_id = %(run_id)s AND head = %(after)s::int8 AND epoch = %(epoch)s::int8 AND NOT deleted
    RETURNING no)
INSERT INTO indelible_batches (no, after_seq, last_seq, data)
SELECT no, %(after)s::int8, %(last)s::int8, %(data)b FROM moved RETURNING 1"""
_ADVANCE_LABELLED = """
WITH moved AS (
    UPDATE indelible_runs AS run SET head = %(last)s::int8, stored_bytes = stored_bytes + %(size)s::int8,
        touched = nextval('indelible_touches'), updated_at = its.now, lease_until = its.now + ttl_s,
        agent = %(agent)s, status = %(status)s, wake_at = %(wake_at)s::float8, about = %(about)b
    FROM (SELECT coalesce(%(now)s::float8, extract(epoch FROM clock_timestamp())::float8) AS now,
        set_config('lock_timeout', '10s', true),
        set_config('synchronous_commit', CASE WHEN NOT %(full)s THEN 'off' WHEN current_setting('synchronous_commit') =
            'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)) AS its
    WHERE run_id = %(run_id)s AND head = %(after)s::int8 AND epoch = %(epoch)s::int8 AND NOT deleted
    RETURNING no)
INSERT INTO indelible_batches (no, after_seq, last_seq, data)
SELECT no, %(after)s::int8, %(last)s::int8, %(data)b FROM moved RETURNING 1"""
# `place` is the write's place in the call. The numbers of `touched` are drawn in that order, before anything is sorted.
_ADVANCE_MANY = """
WITH its AS MATERIALIZED (
    SELECT coalesce(%(now)s::float8, extract(epoch FROM clock_timestamp())::float8) AS now,
        set_config('lock_timeout', '10s', true),
        set_config('synchronous_commit', CASE WHEN NOT %(full)s THEN 'off' WHEN current_setting('synchronous_commit') =
            'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)),
asked AS MATERIALIZED (
    SELECT *, nextval('indelible_touches') AS touch
    FROM unnest(%(places)s::int4[], %(run_ids)s::text[], %(epochs)s::int8[], %(afters)s::int8[], %(lasts)s::int8[],
        %(labelled)s::bool[], %(agents)s::text[], %(statuses)s::text[], %(wake_ats)s::float8[], %(abouts)b::bytea[],
        %(datas)b::bytea[])
        AS one (place, run_id, epoch, after_seq, last_seq, labelled, agent, status, wake_at, about, data)),
held AS MATERIALIZED (
    SELECT run.no, asked.place FROM its, asked JOIN indelible_runs AS run ON run.run_id = asked.run_id
        AND run.head = asked.after_seq AND run.epoch = asked.epoch AND NOT run.deleted
    ORDER BY run.no FOR NO KEY UPDATE OF run),
moved AS (
    UPDATE indelible_runs AS run SET head = asked.last_seq, stored_bytes = stored_bytes + octet_length(asked.data),
        touched = asked.touch, updated_at = its.now, lease_until = its.now + ttl_s,
        agent = CASE WHEN asked.labelled THEN asked.agent ELSE run.agent END,
        status = CASE WHEN asked.labelled THEN asked.status ELSE run.status END,
        wake_at = CASE WHEN asked.labelled THEN asked.wake_at ELSE run.wake_at END,
        about = CASE WHEN asked.labelled THEN asked.about ELSE run.about END
    FROM held JOIN asked USING (place), its
    WHERE run.no = held.no
    RETURNING run.no, asked.place),
kept AS (
    INSERT INTO indelible_batches (no, after_seq, last_seq, data)
    SELECT moved.no, asked.after_seq, asked.last_seq, asked.data FROM moved JOIN asked USING (place))
SELECT place FROM moved"""
_CREATE_INBOXES = """
INSERT INTO indelible_runs (run_id, listed, created_at, updated_at)
SELECT name, false, its.now, its.now
FROM (SELECT coalesce(%(now)s::float8, extract(epoch FROM clock_timestamp())::float8) AS now,
        set_config('lock_timeout', '10s', true)) AS its, unnest(%(names)s::text[]) AS name
ORDER BY name ON CONFLICT (run_id) DO NOTHING"""
_LOCK = """
SELECT no FROM (SELECT set_config('lock_timeout', '10s', true) AS kept) AS its, indelible_runs
WHERE its.kept <> '' AND run_id = ANY(%(names)s::text[]) ORDER BY no FOR NO KEY UPDATE OF indelible_runs"""
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
    """Writes that can share a statement: of distinct runs, and not too large together; in their order."""
    some: list[int] = []
    runs: set[str] = set()
    size = 0
    for place in good:
        run_id, data = writes[place].run_id, writes[place].batch.data
        if some and (run_id in runs or size + len(data) > MAX_ROUND_BYTES):
            yield some
            some, runs, size = [], set(), 0
        some.append(place)
        runs.add(run_id)
        size += len(data)
    yield some


def _statement(writes: Sequence[Write], some: list[int], now: float | None, full: bool) -> tuple[Any, dict[str, Any]]:
    if len(some) > 1:
        return _ADVANCE_MANY, _many(writes, some, now, full)
    run_id, epoch, (after, last, data), label = writes[some[0]]
    asked: dict[str, Any] = {
        "run_id": run_id, "epoch": epoch, "after": after, "last": last, "data": data, "size": len(data), "now": now,
        "full": full,
    }  # fmt: skip
    if label is None:
        return _ADVANCE, asked
    asked |= {"agent": label.agent, "status": label.status, "wake_at": label.wake_at, "about": label.about}
    return _ADVANCE_LABELLED, asked


def _many(writes: Sequence[Write], some: list[int], now: float | None, full: bool) -> dict[str, Any]:
    chosen = [writes[place] for place in some]
    labels = [write.label for write in chosen]
    return {
        "now": now,
        "full": full,
        "places": some,
        "run_ids": [write.run_id for write in chosen],
        "epochs": [write.epoch for write in chosen],
        "afters": [write.batch.after_seq for write in chosen],
        "lasts": [write.batch.last_seq for write in chosen],
        "labelled": [label is not None for label in labels],
        "agents": ["" if label is None else label.agent for label in labels],
        "statuses": ["" if label is None else label.status for label in labels],
        "wake_ats": [None if label is None else label.wake_at for label in labels],
        "abouts": [b"" if label is None else label.about for label in labels],
        "datas": [write.batch.data for write in chosen],
    }


def _landed(rows: list[tuple[Any, ...]], some: list[int]) -> set[int]:
    if len(some) == 1:
        return set(some) if rows else set()
    return {row[0] for row in rows}


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
