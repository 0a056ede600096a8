"""Journals in one SQLite file, shared by all processes of a machine.

Owns: the rows behind each `Store` method.
Must never: read the process's clock, build SQL from text, or order anything by time.
Invariant: what a method acknowledges is committed, and with durability="full" also synced.

Deleting a run, or dropping a run's past, frees pages for later batches; the file itself shrinks
only by `reclaim`.
"""

from __future__ import annotations

import heapq
import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import apsw

from indelible.errors import IndelibleError, JournalDamaged, UnknownRun
from indelible.stores import refusals, sqlite_upkeep
from indelible.stores.base import Batch, Fact, Label, Page, Query, RunEntry, Write, inbox_of
from indelible.stores.sqlite_file import SqliteFile
from indelible.stores.sqlite_pool import SqlitePool

READ_BYTES = 1 << 20
READ_ROWS = 256
_NUMBERS_KEPT = 10_000

# What the values of a row are, if nothing has damaged them.
_REACH = (int, int, int, int)
_BATCH = (int, int, bytes)
_HELD = (int, int, str, float, int, float)
_LISTED = (int, int, str, int, int, object, str, object, object, str, float, float, float, int)

# In all statements ?1 is the time where a test gives it, else NULL: then the database's clock counts.
_ADVANCE = """
UPDATE runs SET head = ?2, stored_bytes = stored_bytes + ?3, updated_at = coalesce(?1, unixepoch('subsec')),
    lease_until = coalesce(?1, unixepoch('subsec')) + ttl_s,
    touched = iif(touched IS NULL, NULL, (SELECT coalesce(max(at), 0) FROM batches) + 1)
WHERE no = ?4 AND head = ?5 AND epoch = ?6 AND deleted = 0"""
_ADVANCE_LABELLED = """
UPDATE runs SET head = ?2, stored_bytes = stored_bytes + ?3, updated_at = coalesce(?1, unixepoch('subsec')),
    lease_until = coalesce(?1, unixepoch('subsec')) + ttl_s,
    touched = iif(touched IS NULL, NULL, (SELECT coalesce(max(at), 0) FROM batches) + 1),
    agent = ?7, status = ?8, wake_at = ?9, about = ?10
WHERE no = ?4 AND head = ?5 AND epoch = ?6 AND deleted = 0"""
_INSERT_BATCH = "INSERT INTO batches (no, after_seq, last_seq, data) VALUES (?, ?, ?, ?)"
_CREATE_RUN = """
INSERT INTO runs (run_id, touched, created_at, updated_at)
VALUES (?2, (SELECT coalesce(max(at), 0) FROM batches),
    coalesce(?1, unixepoch('subsec')), coalesce(?1, unixepoch('subsec')))"""
_CREATE_INBOX = """
INSERT INTO runs (run_id, created_at, updated_at)
VALUES (?2, coalesce(?1, unixepoch('subsec')), coalesce(?1, unixepoch('subsec')))"""
_NUMBER = "SELECT no FROM runs WHERE run_id = ?"
_STANDING = "SELECT head, epoch, deleted FROM runs WHERE run_id = ?"
_HOLDER = """
SELECT no, epoch, owner, lease_until, deleted, coalesce(?1, unixepoch('subsec')) FROM runs WHERE run_id = ?2"""
_IDLE = """
SELECT owner, lease_until, coalesce(?1, unixepoch('subsec')) FROM runs
WHERE run_id = ?2 AND head = ?3 AND deleted = 0"""
_TAKE = """
UPDATE runs SET epoch = ?3, owner = ?4, ttl_s = ?5, lease_until = coalesce(?1, unixepoch('subsec')) + ?5
WHERE no = ?2"""
_RELEASE = "UPDATE runs SET owner = '', ttl_s = 0, lease_until = 0 WHERE no = ?"
_EXTENT = """
SELECT no, head, (SELECT coalesce(max(last_seq), begins) FROM batches WHERE batches.no = runs.no), begins
FROM runs WHERE run_id = ? AND deleted = 0"""
_EXTENT_BEFORE_2 = """
SELECT no, head, (SELECT coalesce(max(last_seq), 0) FROM batches WHERE batches.no = runs.no), 0
FROM runs WHERE run_id = ? AND deleted = 0"""
_BATCHES = """
SELECT after_seq, last_seq, data FROM batches WHERE no = ? AND last_seq > ? AND last_seq <= ? ORDER BY last_seq"""
_STATUSES = """
WITH RECURSIVE each (status) AS (
    SELECT min(status) FROM runs WHERE touched IS NOT NULL
    UNION ALL
    SELECT (SELECT min(status) FROM runs WHERE status > each.status AND touched IS NOT NULL) FROM each
    WHERE each.status IS NOT NULL)
SELECT status FROM each WHERE status IS NOT NULL"""
_LIST = """
SELECT touched, no, run_id, head, epoch, agent, status, wake_at, about, owner, lease_until, created_at, updated_at,
    stored_bytes, coalesce(?1, unixepoch('subsec'))
FROM runs WHERE status = ?6 AND touched IS NOT NULL AND (touched, no) < (?2, ?3) AND (?4 IS NULL OR agent = ?4)
ORDER BY touched DESC, no DESC LIMIT ?5"""
_LIST_NAMED = """
SELECT touched, no, run_id, head, epoch, agent, status, wake_at, about, owner, lease_until, created_at, updated_at,
    stored_bytes, coalesce(?1, unixepoch('subsec'))
FROM runs WHERE run_id IN (SELECT value FROM json_each(?6)) AND touched IS NOT NULL AND (touched, no) < (?2, ?3)
    AND (?4 IS NULL OR agent = ?4) AND (?7 IS NULL OR status IN (SELECT value FROM json_each(?7)))
ORDER BY touched DESC, no DESC LIMIT ?5"""
_PUT_SNAPSHOT = "INSERT OR REPLACE INTO snapshots (no, seq, data) VALUES (?, ?, ?)"
_PRUNE_SNAPSHOTS = """
DELETE FROM snapshots
WHERE no = ?1 AND seq <> ?2
    AND (seq < ?2 OR seq NOT IN (SELECT seq FROM snapshots WHERE no = ?1 ORDER BY seq DESC LIMIT 2))"""
_ENDS_A_BATCH = "SELECT 1 FROM batches WHERE no = ? AND last_seq = ?"
_DROP_PAST = "DELETE FROM batches WHERE no = ? AND last_seq <= ?"
_BEGIN = """
UPDATE runs SET begins = ?2,
    stored_bytes = (SELECT coalesce(sum(length(data)), 0) FROM batches WHERE batches.no = ?1)
WHERE no = ?1"""
# A row of no run, so that the numbers by which listings are ordered never go back.
_NEWEST = "SELECT coalesce(max(at), 0) FROM batches"
_KEEP_NEWEST = """
INSERT OR REPLACE INTO batches (at, no, after_seq, last_seq, data)
SELECT ?1, 0, 0, 1, x'' WHERE ?1 > (SELECT coalesce(max(at), 0) FROM batches)"""
_GET_SNAPSHOT = """
SELECT seq, coalesce(CAST(data AS BLOB), x'') FROM snapshots
WHERE no = (SELECT no FROM runs WHERE run_id = ? AND deleted = 0) AND seq <= ? AND typeof(seq) = 'integer'
ORDER BY seq DESC LIMIT 1"""
_BURY = """
INSERT INTO runs (run_id, deleted, created_at, updated_at)
VALUES (?2, 1, coalesce(?1, unixepoch('subsec')), coalesce(?1, unixepoch('subsec')))
ON CONFLICT (run_id) DO UPDATE SET deleted = 1, head = 0, begins = 0, stored_bytes = 0, touched = NULL, owner = '',
    ttl_s = 0, lease_until = 0, status = '', agent = NULL, wake_at = NULL, about = NULL,
    updated_at = excluded.updated_at"""
_DROP_BATCHES = "DELETE FROM batches WHERE no = (SELECT no FROM runs WHERE run_id = ?)"
_DROP_SNAPSHOTS = "DELETE FROM snapshots WHERE no = (SELECT no FROM runs WHERE run_id = ?)"


class SqliteStore:
    """A `Store` in the SQLite file at `path`. Safe from any thread, and in a process forked from this one.

    `durability="full"` syncs every commit to the disk; "os" leaves that to the operating
    system, so that a power cut may cost the last moments (the death of the process does
    not), and says so with `durable=False`. `busy_s` is how many seconds to wait while
    another process holds the file. `clock` replaces the database's clock and `vfs`
    names the SQLite VFS that stands for the disk, both for tests.
    With `readonly=True` nothing is written, if possible not even beside the file.
    """

    shared = True

    def __init__(
        self,
        path: str,
        *,
        durability: str = "full",
        readonly: bool = False,
        busy_s: float = 10.0,
        clock: Callable[[], float] | None = None,
        vfs: str | None = None,
    ) -> None:
        """Raises `StoreUnavailable`, `Misuse`, `FormatTooNew` or `JournalDamaged` before anything is promised."""
        file = SqliteFile.open(path, durability=durability, readonly=readonly, busy_s=busy_s, vfs=vfs)
        self.url = file.path
        self.durable = durability == "full"
        self._clock = clock
        self._pool = SqlitePool(file)
        # A run keeps its number for ever, also as a tombstone, so what is here is never out of date.
        self._numbers: dict[str, int] = {}

    def append(self, writes: Sequence[Write]) -> list[IndelibleError | None]:
        """See `Store.append`."""

        def change(con: apsw.Connection) -> list[IndelibleError | None]:
            now = self._now()
            return [self._write(con, write, now) for write in writes]

        try:
            return self._pool.write(change)
        except BaseException:
            self._numbers.clear()  # it may hold the number of a row that was rolled back
            raise

    def read(self, run_id: str, after_seq: int = 0) -> Iterator[Batch]:
        """See `Store.read`. Holds no lock between batches; what is appended meanwhile is left out.

        Raises `UnknownRun` if the run is deleted meanwhile, and `JournalDamaged` if the
        journal ends before its head.
        """
        self._pool.check_open()
        return self._batches(run_id, after_seq)

    def list_runs(self, query: Query, cursor: str | None = None) -> Page:
        """See `Store.list_runs`. A run that changes while pages are turned moves to the front."""
        below = refusals.check_query(query, cursor)
        rows = self._pool.consult(lambda con: self._rows(con, query, below))
        for row in rows:
            if not _fits(row, _LISTED):
                raise self._changed(row[2])
        gone: dict[str, bool] = {}
        entries = [_entry(row, gone) for row in rows[: query.limit]]
        return Page(entries, refusals.cursor_at(_touched(rows[query.limit - 1])) if len(rows) > query.limit else None)

    def claim(self, run_id: str, owner: str, ttl_s: float) -> int:
        """See `Store.claim`."""
        refusals.check_claim(run_id, owner, ttl_s)

        def change(con: apsw.Connection) -> int:
            now = self._now()
            row: Any = con.execute(_HOLDER, (now, run_id)).fetchone()
            if row is None:
                if ttl_s == 0:
                    raise refusals.unknown(run_id)
                con.execute(_CREATE_RUN, (now, run_id))
                row = con.execute(_HOLDER, (now, run_id)).fetchone()
            if not _fits(row, _HELD):
                raise self._changed(run_id)
            no, epoch, holder, lease_until, deleted, time = row
            if deleted:
                raise refusals.unknown(run_id, deleted=True)
            if ttl_s == 0:
                if holder == owner:
                    con.execute(_RELEASE, (no,))
                return int(epoch)
            epoch = refusals.epoch_for(run_id, owner, epoch=epoch, holder=holder, lease_until=lease_until, now=time)
            con.execute(_TAKE, (now, no, epoch, owner, ttl_s))
            return int(epoch)

        return self._pool.write(change)

    def put_snapshot(self, run_id: str, seq: int, data: bytes, begins: bool = False) -> None:
        """See `Store.put_snapshot`; raises `UnknownRun` for a run that is not there. Durable."""
        refusals.check_snapshot(run_id, seq, data)

        def change(con: apsw.Connection) -> None:
            no, beginning = self._known(con, run_id)
            if begins and seq != beginning:
                if con.execute(_ENDS_A_BATCH, (no, seq)).get is None:
                    raise refusals.no_batch_ends(run_id, seq)
                newest = con.execute(_NEWEST).get
                con.execute(_DROP_PAST, (no, seq))
                con.execute(_BEGIN, (no, seq))
                con.execute(_KEEP_NEWEST, (newest,))
                beginning = seq
            con.execute(_PUT_SNAPSHOT, (no, seq, data))
            con.execute(_PRUNE_SNAPSHOTS, (no, beginning))

        self._pool.write(change)

    def get_snapshot(self, run_id: str, at_most_seq: int) -> tuple[int, bytes] | None:
        """See `Store.get_snapshot`."""
        at_most = min(at_most_seq, refusals.MAX_SEQ)
        row: Any = self._pool.consult(lambda con: con.execute(_GET_SNAPSHOT, (run_id, at_most)).fetchone())
        return None if row is None else (row[0], row[1])

    def delete(self, run_id: str) -> None:
        """See `Store.delete`. Durable."""
        inbox = inbox_of(run_id)

        def change(con: apsw.Connection) -> None:
            orphan = con.execute(_NUMBER, (run_id,)).get is None and con.execute(_NUMBER, (inbox,)).get is not None
            if not orphan:  # an inbox that was written to before there was a run may go as well
                self._known(con, run_id)
            newest = con.execute(_NEWEST).get
            self._bury(con, run_id)
            con.execute(_KEEP_NEWEST, (newest,))

        self._pool.write(change)

    def delete_idle(self, runs: Sequence[tuple[str, int]]) -> list[bool]:
        """See `Sweeping.delete_idle`. Durable."""

        def change(con: apsw.Connection) -> list[bool]:
            newest = con.execute(_NEWEST).get
            gone = []
            for run_id, head in runs:
                row: Any = con.execute(_IDLE, (self._now(), run_id, head)).fetchone()
                gone.append(row is not None and not refusals.is_live(*row))
                if gone[-1]:
                    self._bury(con, run_id)
            con.execute(_KEEP_NEWEST, (newest,))
            return gone

        return self._pool.write(change)

    def _bury(self, con: apsw.Connection, run_id: str) -> None:
        for name in (run_id, inbox_of(run_id)):
            con.execute(_DROP_BATCHES, (name,))
            con.execute(_DROP_SNAPSHOTS, (name,))
            con.execute(_BURY, (self._now(), name))

    def now(self) -> float:
        """See `Upkeep.now`."""
        return sqlite_upkeep.now(self._pool) if self._clock is None else self._clock()

    def facts(self) -> Iterator[Fact]:
        """See `Upkeep.facts`."""
        return sqlite_upkeep.facts(self._pool)

    def reclaim(self) -> int:
        """See `Upkeep.reclaim`; what it takes is told in `sqlite_upkeep.reclaim`."""
        return sqlite_upkeep.reclaim(self._pool)

    def close(self) -> None:
        """See `Store.close`."""
        self._pool.close()

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock()

    def _write(self, con: apsw.Connection, write: Write, now: float | None) -> IndelibleError | None:
        wrong = refusals.bad_write(write)
        if wrong is not None:
            return wrong
        run_id, epoch, (after_seq, last_seq, data), label = write
        no = self._numbers.get(run_id) or self._number(con, write, now)
        if not isinstance(no, int):
            return no
        if label is None:
            con.execute(_ADVANCE, (now, last_seq, len(data), no, after_seq, epoch))
        else:
            con.execute(_ADVANCE_LABELLED, (
                now, last_seq, len(data), no, after_seq, epoch, label.agent, label.status, label.wake_at, label.about,
            ))  # fmt: skip
        if con.changes() != 1:
            return _refused(con, write)
        con.execute(_INSERT_BATCH, (no, after_seq, last_seq, data))
        return None

    def _number(self, con: apsw.Connection, write: Write, now: float | None) -> int | IndelibleError:
        run_id = write.run_id
        found = con.execute(_NUMBER, (run_id,)).get
        if found is None:
            inbox = refusals.is_inbox(run_id)
            if not inbox or write.epoch != 0 or write.batch.after_seq != 0:
                return refusals.stale(write, head=0 if inbox else None)
            try:
                refusals.check_journal_id(run_id)
            except IndelibleError as error:
                return error
            con.execute(_CREATE_INBOX, (now, run_id))
            found = con.last_insert_rowid()
        if len(self._numbers) >= _NUMBERS_KEPT:
            self._numbers.clear()
        number = self._numbers[run_id] = int(found)
        return number

    def _known(self, con: apsw.Connection, run_id: str) -> tuple[int, int]:
        """The number of a run, and where its journal begins."""
        row: Any = con.execute(_EXTENT, (run_id,)).fetchone()
        if row is None or refusals.is_inbox(run_id):
            raise refusals.unknown(run_id, deleted=con.execute(_STANDING, (run_id,)).fetchone() is not None)
        return int(row[0]), int(row[3])

    def _extent(self, run_id: str) -> Any:
        def ask(con: apsw.Connection) -> Any:
            # Only a read-only store can be older; another process may bring it up to date at any time.
            old = self._pool.file.readonly and int(con.pragma("user_version")) < 2
            return con.execute(_EXTENT_BEFORE_2 if old else _EXTENT, (run_id,)).fetchone()

        return self._pool.consult(ask)

    def _batches(self, run_id: str, after_seq: int) -> Iterator[Batch]:
        extent = self._extent(run_id)
        if extent is None:
            return
        if not _fits(extent, _REACH):
            raise self._changed(run_id)
        no, head, last, begins = extent
        at = max(after_seq, begins)
        while at < head:
            some = self._pool.consult(partial(_some, no=no, at=at, head=head))
            if not some:
                raise self._cut_short(run_id, at, head)
            if not all(_fits(batch, _BATCH) and 0 <= batch.after_seq < batch.last_seq for batch in some):
                raise self._changed(run_id)
            if some[0].after_seq > at:
                self._check_past(run_id, at)
            yield from some
            at = some[-1].last_seq
        if last != head:  # only now, so that what can be read is
            raise self._cut_short(run_id, last, head)

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

    def _check_past(self, run_id: str, at: int) -> Any:
        """The run's extent now, None if it was deleted; raises `StoreUnavailable` if what follows `at` was dropped."""
        now = self._extent(run_id)
        if now is not None and _fits(now, _REACH) and now[3] > at:
            raise refusals.trimmed_meanwhile(run_id, self.url)
        return now

    def _changed(self, run_id: object) -> IndelibleError:
        return JournalDamaged(
            f"{self.url}: what is stored of run {str(run_id)[:80]!a} has another form than it was written in",
            hint=f"indelible verify --store {self.url}",
            store=self.url,
        )

    def _rows(self, con: apsw.Connection, query: Query, below: tuple[int, int]) -> list[Any]:
        """The rows of a page and, if there is a next page, one more."""
        limit = query.limit + 1
        common = (self._now(), *below, query.agent, limit)
        wanted = query.statuses
        if query.run_ids is not None:
            statuses = None if wanted is None else json.dumps(sorted(wanted))
            return list(con.execute(_LIST_NAMED, (*common, json.dumps(query.run_ids), statuses)))
        # In one transaction, or a run that changes its status meanwhile could be seen twice or missed.
        con.execute("BEGIN")
        try:
            each = sorted(wanted) if wanted is not None else [status for (status,) in con.execute(_STATUSES)]
            lists = [con.execute(_LIST, (*common, status)).fetchall() for status in each]
        finally:
            con.execute("COMMIT")
        return list(heapq.merge(*lists, key=_touched, reverse=True))[:limit]


def _touched(row: Any) -> tuple[int, int]:
    return row[0], row[1]


def _some(con: apsw.Connection, no: int, at: int, head: int) -> list[Batch]:
    """As many batches as make one read worth its while."""
    some: list[Batch] = []
    size = 0
    cursor = con.cursor()
    for after_seq, last_seq, data in cursor.execute(_BATCHES, (no, at, head)):
        some.append(Batch(after_seq, last_seq, data))
        size += len(data) if isinstance(data, bytes) else 0
        if size >= READ_BYTES or len(some) >= READ_ROWS:
            break
    cursor.close(True)
    return some


def _fits(row: Sequence[object], kinds: tuple[type, ...]) -> bool:
    """False if damage has given a value another type: SQLite keeps it beside the value, and does not look again."""
    return all(isinstance(value, kind) for value, kind in zip(row, kinds, strict=False))


def _refused(con: apsw.Connection, write: Write) -> IndelibleError:
    row: Any = con.execute(_STANDING, (write.run_id,)).fetchone()
    head, epoch, deleted = row
    return refusals.stale(write, head=head, epoch=epoch, deleted=bool(deleted))


def _entry(row: Any, gone: dict[str, bool]) -> RunEntry:
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
