"""Journals in a PostgreSQL database, shared by any number of machines.

Owns: the rows behind each `Store` method.
Must never: read the process's clock, build SQL from text, order anything by time, or leave a transaction open.
Invariant: what a method acknowledges is committed, and with durability="full" also synced; a statement that
writes a run checks its epoch itself.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from indelible.errors import IndelibleError, JournalDamaged, Misuse, UnknownRun
from indelible.stores import postgres_append, postgres_schema, postgres_upkeep, refusals
from indelible.stores.base import Batch, Fact, Label, Page, Query, RunEntry, Write, inbox_of
from indelible.stores.postgres_append import storable
from indelible.stores.postgres_place import place_of
from indelible.stores.postgres_pool import Connection, PostgresPool

READ_BYTES = 1 << 20
READ_ROWS = 256
ERA_BITS = 12
"""How much coarser `era` is than `touched`; see the first migration."""

# In all statements `now` is the time where a test gives it, else NULL: then the database's clock counts.
_EXTENT = """
SELECT no, head, begins, (SELECT coalesce(max(last_seq), begins) FROM indelible_batches AS batch
    WHERE batch.no = run.no)
FROM indelible_runs AS run WHERE run_id = %s AND NOT deleted"""
# `before` counts the bytes that come before a batch, without fetching them.
_BATCHES = """
SELECT after_seq, last_seq, data FROM (
    SELECT after_seq, last_seq, data, sum(octet_length(data)) OVER (ORDER BY last_seq ROWS UNBOUNDED PRECEDING)
        - octet_length(data) AS before
    FROM indelible_batches WHERE no = %(no)s AND last_seq > %(at)s AND last_seq <= %(head)s
    ORDER BY last_seq LIMIT %(rows)s) AS next
WHERE before < %(bytes)s ORDER BY last_seq"""
_LIST = """
SELECT touched, no, run_id, head, epoch, agent, status, wake_at, about, owner, lease_until, created_at, updated_at,
    stored_bytes, coalesce(%(now)s::float8, extract(epoch FROM clock_timestamp())::float8)
FROM indelible_runs
WHERE listed AND era <= %(era)s AND (touched, no) < (%(touched)s::int8, %(no)s::int8)
    AND (%(agent)s::text IS NULL OR agent = %(agent)s)
ORDER BY era DESC, touched DESC, no DESC LIMIT %(limit)s"""
_LIST_BY_STATUS = """
SELECT touched, no, run_id, head, epoch, agent, status, wake_at, about, owner, lease_until, created_at, updated_at,
    stored_bytes, coalesce(%(now)s::float8, extract(epoch FROM clock_timestamp())::float8)
FROM indelible_runs
WHERE listed AND era <= %(era)s AND (touched, no) < (%(touched)s::int8, %(no)s::int8)
    AND (%(agent)s::text IS NULL OR agent = %(agent)s) AND status = ANY(%(statuses)s::text[])
ORDER BY era DESC, touched DESC, no DESC LIMIT %(limit)s"""
_LIST_NAMED = """
SELECT touched, no, run_id, head, epoch, agent, status, wake_at, about, owner, lease_until, created_at, updated_at,
    stored_bytes, coalesce(%(now)s::float8, extract(epoch FROM clock_timestamp())::float8)
FROM indelible_runs
WHERE listed AND run_id = ANY(%(run_ids)s::text[]) AND (touched, no) < (%(touched)s::int8, %(no)s::int8)
    AND (%(agent)s::text IS NULL OR agent = %(agent)s)
    AND (%(statuses)s::text[] IS NULL OR status = ANY(%(statuses)s::text[]))
ORDER BY touched DESC, no DESC LIMIT %(limit)s"""
# Makes the run, renews its owner's lease, or takes over one that has lapsed; no row if another's still runs.
_CLAIM = """
WITH its AS MATERIALIZED (
    SELECT coalesce(%(now)s::float8, extract(epoch FROM clock_timestamp())::float8) AS now,
        set_config('lock_timeout', '10s', true),
        set_config('synchronous_commit', CASE WHEN NOT %(full)s THEN 'off' WHEN current_setting('synchronous_commit') =
            'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true))
INSERT INTO indelible_runs AS run (run_id, listed, epoch, touched, created_at, updated_at, owner, ttl_s, lease_until)
SELECT %(run_id)s, true, 1, nextval('indelible_touches'), now, now, %(owner)s, %(ttl_s)s::float8,
    now + %(ttl_s)s::float8 FROM its
ON CONFLICT (run_id) DO UPDATE SET epoch = run.epoch + (run.owner <> excluded.owner)::int, owner = excluded.owner,
    ttl_s = excluded.ttl_s, lease_until = excluded.lease_until
WHERE NOT run.deleted AND (run.owner = excluded.owner OR run.owner = '' OR run.lease_until <= excluded.updated_at)
RETURNING epoch"""
_HOLDER = """
SELECT no, epoch, owner, lease_until, deleted,
    coalesce(%(now)s::float8, extract(epoch FROM clock_timestamp())::float8)
FROM indelible_runs WHERE run_id = %(run_id)s"""
_TAKE = """
WITH its AS MATERIALIZED (
    SELECT coalesce(%(now)s::float8, extract(epoch FROM clock_timestamp())::float8) AS now,
        set_config('lock_timeout', '10s', true),
        set_config('synchronous_commit', CASE WHEN NOT %(full)s THEN 'off' WHEN current_setting('synchronous_commit') =
            'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true))
UPDATE indelible_runs SET epoch = epoch + 1, owner = %(owner)s, ttl_s = %(ttl_s)s::float8,
    lease_until = its.now + %(ttl_s)s::float8
FROM its WHERE no = %(no)s AND epoch = %(epoch)s AND owner = %(holder)s AND NOT deleted RETURNING epoch"""
_RELEASE = """
UPDATE indelible_runs SET owner = '', ttl_s = 0, lease_until = 0
WHERE run_id = %(run_id)s AND owner = %(owner)s AND NOT deleted RETURNING epoch"""
_GET_SNAPSHOT = """
SELECT seq, data FROM indelible_snapshots
WHERE no = (SELECT no FROM indelible_runs WHERE run_id = %s AND NOT deleted) AND seq <= %s
ORDER BY seq DESC LIMIT 1"""
# Each of the next ones in a transaction that has locked the run, so that they see what was there then.
_LOCK = """
SELECT its.kept, run_id, deleted FROM (SELECT set_config('lock_timeout', '10s', true) AS lock, set_config(
    'synchronous_commit', CASE WHEN NOT %(full)s THEN 'off' WHEN current_setting('synchronous_commit') = 'off' THEN 'on'
    ELSE current_setting('synchronous_commit') END, true) AS kept) AS its, indelible_runs
WHERE run_id = ANY(%(names)s::text[]) ORDER BY run_id FOR UPDATE OF indelible_runs"""
_PUT_SNAPSHOT = """
INSERT INTO indelible_snapshots (no, seq, data)
SELECT no, %(seq)s, %(data)b FROM indelible_runs WHERE run_id = %(run_id)s AND NOT deleted
ON CONFLICT (no, seq) DO UPDATE SET data = excluded.data"""
_PUT_BEGINNING = """
INSERT INTO indelible_snapshots (no, seq, data)
SELECT no, %(seq)s, %(data)b FROM indelible_runs WHERE run_id = %(run_id)s AND NOT deleted AND begins = %(seq)s
ON CONFLICT (no, seq) DO UPDATE SET data = excluded.data"""
# The journal begins at `seq` from now on: nothing changes unless a batch ends there.
_BEGIN = """
UPDATE indelible_runs AS run SET begins = %(seq)s, stored_bytes = (SELECT coalesce(sum(octet_length(data)), 0)
    FROM indelible_batches AS batch WHERE batch.no = run.no AND last_seq > %(seq)s)
WHERE run_id = %(run_id)s AND NOT deleted AND EXISTS (
    SELECT FROM indelible_batches AS batch WHERE batch.no = run.no AND last_seq = %(seq)s)"""
_DROP_PAST = """
DELETE FROM indelible_batches AS batch USING indelible_runs AS run
WHERE run_id = %(run_id)s AND batch.no = run.no AND last_seq <= run.begins"""
_PRUNE_SNAPSHOTS = """
WITH run AS (SELECT no, begins FROM indelible_runs WHERE run_id = %(run_id)s AND NOT deleted)
DELETE FROM indelible_snapshots AS one USING run
WHERE one.no = run.no AND (seq < run.begins OR seq > run.begins AND seq NOT IN (
    SELECT seq FROM indelible_snapshots AS newest WHERE newest.no = run.no ORDER BY seq DESC LIMIT 2))"""
_BURY = """
INSERT INTO indelible_runs AS run (run_id, listed, deleted, created_at, updated_at)
SELECT name, false, true, its.now, its.now
FROM (SELECT coalesce(%(now)s::float8, extract(epoch FROM clock_timestamp())::float8) AS now) AS its,
    unnest(%(names)s::text[]) AS name
WHERE EXISTS (SELECT FROM indelible_runs WHERE run_id = ANY(%(names)s::text[]))
ORDER BY name
ON CONFLICT (run_id) DO UPDATE SET listed = false, deleted = true, head = 0, begins = 0, stored_bytes = 0, touched = 0,
    owner = '', ttl_s = 0, lease_until = 0, status = '', agent = NULL, wake_at = NULL, about = NULL,
    updated_at = excluded.updated_at
WHERE NOT run.deleted"""
_DROP_BATCHES = """
DELETE FROM indelible_batches WHERE no IN (SELECT no FROM indelible_runs WHERE run_id = ANY(%(names)s::text[]))"""
_DROP_SNAPSHOTS = """
DELETE FROM indelible_snapshots WHERE no IN (SELECT no FROM indelible_runs WHERE run_id = ANY(%(names)s::text[]))"""


class PostgresStore:
    """A `Store` in the PostgreSQL database at `url`. Safe from any thread, in a forked process, and behind a pooler.

    `durability="full"` commits synchronously, also where the server's own setting is not to; "os" does not wait for
    the server's disk, so that the death of the server may cost the last moments, and says so with `durable=False`.
    A password may stand in the URL, but is better kept in PGPASSWORD or ~/.pgpass; `store.url` leaves it out.
    `clock` replaces the database's clock, for tests. With `readonly=True` nothing but SELECT is sent.
    """

    shared = True

    def __init__(
        self, url: str, *, durability: str = "full", readonly: bool = False, clock: Callable[[], float] | None = None
    ) -> None:
        """Raises `StoreUnavailable`, `Misuse`, `FormatTooNew` or `JournalDamaged` before anything is promised."""
        if durability not in ("full", "os"):
            raise Misuse(f"durability={durability!r} is not known", hint='durability="full" or durability="os"')
        place = place_of(url, readonly)
        self.url = place.url
        self.durable = durability == "full"
        self._clock = clock
        self._pool = PostgresPool(place, readonly)
        try:
            self._pool.consult(partial(postgres_schema.prepare, place=place, full=self.durable, readonly=readonly))
        except BaseException:
            self._pool.close()
            raise

    def append(self, writes: Sequence[Write]) -> list[IndelibleError | None]:
        """See `Store.append`. One round trip for writes of distinct runs that are all accepted."""
        now = self._now()
        return self._pool.write(lambda con: postgres_append.append(con, writes, now, self.durable))

    def read(self, run_id: str, after_seq: int = 0) -> Iterator[Batch]:
        """See `Store.read`. Holds no lock between batches; what is appended meanwhile is left out.

        Raises `UnknownRun` if the run is deleted meanwhile, and `JournalDamaged` if the
        journal ends before its head.
        """
        self._pool.check_open()
        return self._batches(run_id, after_seq)

    def list_runs(self, query: Query, cursor: str | None = None) -> Page:
        """See `Store.list_runs`. A run that changes while pages are turned moves to the front."""
        touched, no = refusals.check_query(query, cursor)
        wanted, named = query.statuses, query.run_ids
        asked: dict[str, Any] = {
            "now": self._now(), "touched": touched, "no": no, "era": touched >> ERA_BITS, "agent": query.agent,
            "limit": query.limit + 1, "statuses": None if wanted is None else sorted(filter(storable, wanted)),
        }  # fmt: skip
        if query.agent is not None and not storable(query.agent):
            named = ()
        statement = _LIST if wanted is None else _LIST_BY_STATUS
        if named is not None:
            statement = _LIST_NAMED
            asked["run_ids"] = list(filter(storable, named))
        rows = self._pool.consult(lambda con: con.execute(statement, asked, binary=True).fetchall())
        gone: dict[str, bool] = {}
        entries = [_entry(row, gone) for row in rows[: query.limit]]
        return Page(entries, refusals.cursor_at(rows[query.limit - 1][:2]) if len(rows) > query.limit else None)

    def claim(self, run_id: str, owner: str, ttl_s: float) -> int:
        """See `Store.claim`. One round trip, but for the release and for an owner whose process may be gone."""
        refusals.check_claim(run_id, owner, ttl_s)
        if not storable(owner):
            raise Misuse("an owner's name holds NUL or half of a character pair", hint="Owner.here(nonce)")
        asked = {"now": self._now(), "run_id": run_id, "owner": owner, "ttl_s": ttl_s, "full": self.durable}
        return self._pool.write(partial(_release if ttl_s == 0 else _claim, asked=asked))

    def put_snapshot(self, run_id: str, seq: int, data: bytes, begins: bool = False) -> None:
        """See `Store.put_snapshot`; raises `UnknownRun` for a run that is not there. Durable."""
        refusals.check_snapshot(run_id, seq, data)
        asked = {"run_id": run_id, "names": [run_id], "seq": seq, "data": data, "full": self.durable}

        def change(con: Connection) -> tuple[list[Any], int]:
            with con.pipeline(), con.transaction():
                locked = con.execute(_LOCK, asked)
                if begins:
                    con.execute(_BEGIN, asked)
                    con.execute(_DROP_PAST, asked)
                put = con.execute(_PUT_BEGINNING if begins else _PUT_SNAPSHOT, asked)
                con.execute(_PRUNE_SNAPSHOTS, asked)
            return locked.fetchall(), put.rowcount

        found, put = self._pool.write(change) if storable(run_id) and not refusals.is_inbox(run_id) else ([], 0)
        if not found or found[0][2]:
            raise refusals.unknown(run_id, deleted=bool(found))
        if not put:
            raise refusals.no_batch_ends(run_id, seq)

    def get_snapshot(self, run_id: str, at_most_seq: int) -> tuple[int, bytes] | None:
        """See `Store.get_snapshot`."""
        asked = (run_id if storable(run_id) else "", min(at_most_seq, refusals.MAX_SEQ))
        row = self._pool.consult(lambda con: con.execute(_GET_SNAPSHOT, asked, binary=True).fetchone())
        return None if row is None else (row[0], row[1])

    def delete(self, run_id: str) -> None:
        """See `Store.delete`. Durable."""
        names = [run_id, inbox_of(run_id)]
        asked = {"names": names, "now": self._now(), "full": self.durable}

        def change(con: Connection) -> list[Any]:
            with con.pipeline(), con.transaction():
                locked = con.execute(_LOCK, asked)
                # First the tombstones, which wait for anyone who is just making the inbox.
                for statement in (_BURY, _DROP_BATCHES, _DROP_SNAPSHOTS):
                    con.execute(statement, asked)
            return locked.fetchall()

        if not storable(run_id) or refusals.is_inbox(run_id):
            raise refusals.unknown(run_id)
        dead = {row[1]: row[2] for row in self._pool.write(change)}
        # An inbox that was written to before there was a run may go as well.
        if dead.get(run_id, not dead):
            raise refusals.unknown(run_id, deleted=run_id in dead)

    def now(self) -> float:
        """See `Upkeep.now`."""
        return self._pool.consult(postgres_upkeep.now) if self._clock is None else self._clock()

    def facts(self) -> Iterator[Fact]:
        """See `Upkeep.facts`. It looks at every row's place, though not at what is stored."""
        return iter(self._pool.consult(lambda con: list(postgres_upkeep.facts(con))))

    def reclaim(self) -> int:
        """See `Upkeep.reclaim`. Only the owner of the tables may; see `postgres_upkeep.reclaim` for what it locks."""
        return self._pool.write(lambda con: postgres_upkeep.reclaim(con, self._pool.place))

    def close(self) -> None:
        """See `Store.close`."""
        self._pool.close()

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock()

    def _batches(self, run_id: str, after_seq: int) -> Iterator[Batch]:
        extent = self._extent(run_id)
        if extent is None:
            return
        no, head, begins, last = extent
        at = max(after_seq, begins)
        while at < head:
            asked = {"no": no, "at": at, "head": head, "rows": READ_ROWS, "bytes": READ_BYTES}
            some = self._pool.consult(partial(_some, asked=asked))
            if not some:
                raise self._cut_short(run_id, at, head)
            if some[0].after_seq > at:
                self._check_past(run_id, at)
            yield from some
            at = some[-1].last_seq
        if last != head:  # only now, so that what can be read is
            raise self._cut_short(run_id, last, head)

    def _extent(self, run_id: str) -> tuple[int, int, int, int] | None:
        if not storable(run_id):
            return None
        row = self._pool.consult(lambda con: con.execute(_EXTENT, (run_id,)).fetchone())
        return None if row is None else (row[0], row[1], row[2], row[3])

    def _cut_short(self, run_id: str, at: int, head: int) -> IndelibleError:
        if self._check_past(run_id, at) is None:
            error: IndelibleError = UnknownRun(f"run {run_id!r} was deleted while it was read", hint="indelible ls")
        else:
            error = JournalDamaged(
                f"{self.url}: the journal of run {run_id!r} ends at event {at}, but its head is {head}",
                hint=f"indelible verify {shlex.quote(run_id)} --store {shlex.quote(self.url)}",
            )
        error.ids.update(run_id=run_id, at=at, head=head)
        return error

    def _check_past(self, run_id: str, at: int) -> tuple[int, int, int, int] | None:
        """The run's extent now, None if it was deleted; raises `StoreUnavailable` if what follows `at` was dropped."""
        extent = self._extent(run_id)
        if extent is not None and extent[2] > at:
            raise refusals.trimmed_meanwhile(run_id, self.url)
        return extent


def _claim(con: Connection, asked: dict[str, Any]) -> int:
    while True:
        row = con.execute(_CLAIM, asked).fetchone()
        if row is None:
            # Somebody holds it, or did when we looked. Only the process that asks can know whether that one is gone.
            found = con.execute(_HOLDER, asked).fetchone()
            if found is None:
                continue
            no, epoch, holder, lease_until, deleted, now = found
            if deleted:
                raise refusals.unknown(asked["run_id"], deleted=True)
            refusals.epoch_for(
                asked["run_id"], asked["owner"], epoch=epoch, holder=holder, lease_until=lease_until, now=now
            )
            row = con.execute(_TAKE, {**asked, "no": no, "epoch": epoch, "holder": holder}).fetchone()
        if row is not None:
            return int(row[0])


def _release(con: Connection, asked: dict[str, Any]) -> int:
    row = con.execute(_RELEASE, asked).fetchone()
    if row is None:
        found = con.execute(_HOLDER, asked).fetchone()
        if found is None or found[4]:
            raise refusals.unknown(asked["run_id"], deleted=found is not None)
        row = found[1:2]
    return int(row[0])


def _some(con: Connection, asked: dict[str, Any]) -> list[Batch]:
    return [Batch(*row) for row in con.execute(_BATCHES, asked, binary=True)]


def _entry(row: tuple[Any, ...], gone: dict[str, bool]) -> RunEntry:
    (_, _, run_id, head, epoch, agent, status, wake_at, about, owner, lease_until, *times, size, now) = row
    live = bool(owner) and lease_until > now
    if live:
        if owner not in gone:
            gone[owner] = not refusals.is_live(owner, lease_until, now)
        live = not gone[owner]
    return RunEntry(
        run_id=run_id,
        head=head,
        epoch=epoch,
        label=None if agent is None else Label(agent, status, wake_at, about),
        owner=owner,
        live=live,
        created_at=times[0],
        updated_at=times[1],
        stored_bytes=size,
    )
