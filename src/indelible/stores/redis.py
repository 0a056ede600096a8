"""Journals in a Redis or Valkey server, shared by all machines that reach it.

Owns: what each `Store` method asks of the server.
Must never: read this machine's clock, call a write durable that is not as durable as was asked for, or go on with a run
whose acknowledged end may be missing.
Invariant: what a method acknowledges was done by one script, so all of it or nothing.

The layout is in `redis_scripts`, what a server guarantees in `redis_server`, what is done about a lost suffix in
`redis_recovery`.
"""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from indelible.errors import IndelibleError, JournalDamaged, Misuse, UnknownRun
from indelible.stores import redis_listing, refusals
from indelible.stores import redis_scripts as lua
from indelible.stores.base import Batch, Fact, Page, Query, Write, inbox_of
from indelible.stores.redis_keys import Keys, packed, plain
from indelible.stores.redis_link import MAX_BULK, Command, Link, evalsha
from indelible.stores.redis_memory import RUN_BYTES, STORE_BYTES, Memory
from indelible.stores.redis_recovery import Recovery, RedisStoreWarning
from indelible.stores.redis_url import parse

__all__ = ["RedisStore", "RedisStoreWarning"]

READ_BYTES = 1 << 20
READ_ROWS = 64


class RedisStore:
    """A `Store` at a URL such as `redis://user@host:6379/0?prefix=indelible`. Safe from any thread, and after a fork.

    The password stands in the URL, or in INDELIBLE_REDIS_PASSWORD; `url` leaves it out. `durability="full"`: a server
    that syncs its append-only file at each write is used as it is; with one that syncs it every second each commit
    waits for that (WAITAOF), and a warning says so; one without a file is refused. `"os"`: any server is used,
    `durable` is False, and a warning says what may be lost. Options: `wait=N` (replicas that must have a write in
    memory), `waitaof=LOCAL,REPLICAS` (that must have it on disk), `timeout_ms`, `prefix`, `ca` (a file, for TLS), and
    `lost=accept`, which goes on with a run although its end may be missing. `notices` holds what was written again
    after a failover. `clock` replaces the server's clock, for tests, as do `run_bytes` and `store_bytes` the bounds of
    what is kept in memory to be written again.
    """

    shared = True

    def __init__(
        self,
        url: str,
        *,
        durability: str = "full",
        readonly: bool = False,
        clock: Callable[[], float] | None = None,
        run_bytes: int = RUN_BYTES,
        store_bytes: int = STORE_BYTES,
    ) -> None:
        """Raises `StoreUnavailable`, `Misuse` or `FormatTooNew` before anything is promised."""
        if durability not in ("full", "os"):
            raise Misuse(f"durability={durability!r}: it is 'full' or 'os'", hint='durability="full"')
        place = parse(url)
        durability = place.durability or durability
        self.url = place.shown
        self._clock = clock
        self._keys = Keys(place.prefix)
        self._memory = Memory(store_bytes, run_bytes)
        self._pid = os.getpid()
        self._link = Link(place, durability, readonly)
        self._recovery = Recovery(self._link, self._keys, self._memory, self._now)
        self.notices = self._recovery.notices
        self.durable = durability == "full" and self._link.server.durable
        if not readonly:
            self._warn(durability)

    def append(self, writes: Sequence[Write]) -> list[IndelibleError | None]:
        """See `Store.append`. One round trip, and the waiting that was asked for."""
        self._mine()
        answers: list[IndelibleError | None] = [self._wrong(write) for write in writes]
        good = [at for at, answer in enumerate(answers) if answer is None]
        if not good:
            self._link.check_open()
            return answers
        sent = [writes[at] for at in good]
        heads = [held.head if (held := self._memory.of(write.run_id)) else 0 for write in sent]
        try:
            found = self._sent(sent)
            for at, write, head, answer in zip(good, sent, heads, found, strict=True):
                answers[at] = self._fate(write, head, answer)
        except BaseException:  # Ctrl-C as well: what is read back later must have been waited for
            for write in sent:
                self._memory.sent(write)
            raise
        return answers

    def read(self, run_id: str, after_seq: int = 0) -> Iterator[Batch]:
        """See `Store.read`; what is appended meanwhile is left out.

        A write whose fate is unknown is first made as durable as was asked for, so that whoever reads it back may
        rely on it. Raises `UnknownRun` if the run is deleted meanwhile, `JournalDamaged` if the journal ends before
        its head.
        """
        self._mine()
        self._link.check_open()
        return self._batches(run_id, after_seq)

    def list_runs(self, query: Query, cursor: str | None = None) -> Page:
        """See `Store.list_runs`. A run that changes while pages are turned moves to the front; a refused write may also
        move it there."""
        below = refusals.check_query(query, cursor)
        return redis_listing.page(self._link, self._keys, query, below, self._now())

    def claim(self, run_id: str, owner: str, ttl_s: float) -> int:
        """See `Store.claim`. Raises `JournalDamaged` if acknowledged events may be missing, see `redis_recovery`."""
        refusals.check_claim(run_id, owner, ttl_s)
        self._mine()
        return self._recovery.claim(run_id, owner, ttl_s)

    def put_snapshot(self, run_id: str, seq: int, data: bytes, begins: bool = False) -> None:
        """See `Store.put_snapshot`; raises `UnknownRun` for a run that is not there."""
        refusals.check_snapshot(run_id, seq, data)
        if len(data) >= MAX_BULK:
            raise self._too_large(run_id, len(data))
        if refusals.is_inbox(run_id):
            raise refusals.unknown(run_id)
        keys = (*self._keys.of(run_id), self._keys.snap(run_id))
        put = evalsha(lua.SNAPSHOT, keys, seq, data, int(begins), seq + 1)
        (answer,) = self._link.write(lambda _: [put])
        answer = self._link.good(answer)
        if answer != b"OK":
            word = plain(answer[0])
            if word == "between":
                raise refusals.no_batch_ends(run_id, seq)
            raise self._recovery.unknown(run_id, deleted=word == "deleted")

    def get_snapshot(self, run_id: str, at_most_seq: int) -> tuple[int, bytes] | None:
        """See `Store.get_snapshot`."""
        snap = self._keys.snap(run_id)
        while True:
            seqs = [int(seq) for seq in self._link.one("HKEYS", snap)]
            seq = max((seq for seq in seqs if seq <= at_most_seq), default=None)
            if seq is None:
                return None
            data = self._link.one("HGET", snap, seq)
            if data is not None:  # else it was replaced by a newer one in between
                return seq, data

    def delete(self, run_id: str) -> None:
        """See `Store.delete`."""
        if refusals.is_inbox(run_id):
            raise refusals.unknown(run_id)
        self._mine()
        keys = (*self._keys.of(run_id), self._keys.snap(run_id), *self._keys.of(inbox_of(run_id)))
        # The tombstone first: an index that names a run which is not there does no harm.
        bury = evalsha(lua.DELETE, keys, self._now())
        answers = self._link.write(lambda _: [bury, ("ZREM", self._keys.order, packed(run_id))])
        answer, _ = map(self._link.good, answers)
        self._memory.release(run_id, deleted=True)
        if answer != b"OK":
            raise self._recovery.unknown(run_id, deleted=answer[0] == b"deleted")

    def close(self) -> None:
        """See `Store.close`."""
        self._link.close()

    def now(self) -> float:
        """See `Upkeep.now`."""
        if self._clock is not None:
            return self._clock()
        seconds, micros = self._link.one("TIME")
        return int(seconds) + int(micros) / 1e6

    def facts(self) -> Iterator[Fact]:
        """See `Upkeep.facts`."""
        yield from self._link.look_again().facts()
        for notice in self.notices:
            yield Fact("written again", notice, "note")

    def reclaim(self) -> int:
        """See `Upkeep.reclaim`. Memory of deleted runs is free at once; this gives what the server has spare back."""
        before = self._link.look_again().memory
        self._link.one("MEMORY", "PURGE")
        return max(0, before - self._link.look_again().memory)

    def _mine(self) -> None:
        """In a fork nothing is held: the runs are the parent's."""
        if os.getpid() != self._pid:
            self._pid = os.getpid()
            self._memory.forget_all()
            self._recovery.after_fork()

    def _now(self) -> str:
        return "" if self._clock is None else repr(self._clock())

    def _warn(self, durability: str) -> None:
        server = self._link.server
        if durability == "os":
            text = f"{self.url}: durability='os', and {server.promise()}"
        elif server.awaited is not None and not (server.aof and server.fsync == "always"):
            text = (
                f"{self.url}: {server.when}, so each commit waits for the disk, up to a second or two; "
                "appendfsync always would take milliseconds: redis-cli CONFIG SET appendfsync always"
            )
        else:
            return
        warnings.warn(text, RedisStoreWarning, stacklevel=3)

    def _wrong(self, write: Write) -> IndelibleError | None:
        wrong = refusals.bad_write(write)
        if wrong is None and len(write.batch.data) >= MAX_BULK:
            wrong = self._too_large(write.run_id, len(write.batch.data))
        return wrong

    def _too_large(self, run_id: str, size: int) -> Misuse:
        return Misuse(
            f"run {run_id!r}: {size} bytes in one value, the server's limit is {MAX_BULK}",
            hint="keep large data in a file, and its path and digest in the state",
            run_id=run_id,
        )

    def _sent(self, writes: Sequence[Write]) -> list[Any]:
        """The answer to each. Raises if the server refused anything: then nothing was waited for."""
        found = self._link.write(
            lambda stamp: [*self._touching(writes), *(self._appending(write, stamp) for write in writes)]
        )
        return [self._link.good(answer) for answer in found][-len(writes) :]

    def _touching(self, writes: Sequence[Write]) -> list[Command]:
        """The index goes first, so that it is never behind the runs."""
        ids = [packed(write.run_id) for write in writes if not refusals.is_inbox(write.run_id)]
        return [evalsha(lua.TOUCH, (self._keys.order, self._keys.count), "XX", *ids)] if ids else []

    def _appending(self, write: Write, stamp: str) -> Command:
        run_id, epoch, (after_seq, last_seq, data), label = write
        held = self._memory.of(run_id)
        token = held.token if held is not None and held.epoch == epoch else ""
        creates = epoch == 0 and after_seq == 0 and refusals.is_inbox(run_id) and _may_exist(run_id)
        arguments: list[Any] = [after_seq, last_seq, data, epoch, token, self._now(), int(creates), stamp]
        if label is not None:
            wake_at = "" if label.wake_at is None else repr(label.wake_at)
            arguments += [packed(label.agent), packed(label.status), wake_at, label.about]
        return evalsha(lua.APPEND, self._keys.of(run_id), *arguments)

    def _fate(self, write: Write, head: int, answer: Any) -> IndelibleError | None:
        """What became of a write; one that came to a server which has lost what was before it is made good."""
        try:
            if answer != b"OK" and self._recovery.makes_good(write, head, answer):
                (answer,) = self._sent([write])
        except JournalDamaged as error:
            return error
        if answer == b"OK":
            self._memory.landed(write)
            return None
        return self._recovery.refused(write, answer)

    def _batches(self, run_id: str, after_seq: int) -> Iterator[Batch]:
        self._recovery.confirm(run_id)
        run, log = self._keys.of(run_id)
        reach = self._reach(run)
        if reach is None:
            return
        head, begins = reach
        at, rows = max(after_seq, begins), 1
        while at < head:
            found = self._link.one("XRANGE", log, f"({at}-18446744073709551615", f"{head}-18446744073709551615",
                                   "COUNT", rows)  # fmt: skip
            some = [_batch(entry) for entry in found]
            if not some or (some[0].after_seq > at and self._reach(run) != reach):
                raise self._cut_short(run_id, at, head)
            for batch in some:
                if batch.after_seq > at:
                    raise self._cut_short(run_id, at, head)
                yield batch
                at = batch.last_seq
            size = sum(len(batch.data) for batch in some)
            rows = max(1, min(READ_ROWS, rows * 4, READ_BYTES * len(some) // (size + 1)))

    def _reach(self, run: str) -> tuple[int, int] | None:
        head, begins, deleted = self._link.one("HMGET", run, "head", "begins", "deleted")
        return None if head is None or deleted == b"1" else (int(head), int(begins or 0))

    def _cut_short(self, run_id: str, at: int, head: int) -> IndelibleError:
        now = self._reach(self._keys.of(run_id)[0])
        if now is None:
            error: IndelibleError = UnknownRun(f"run {run_id!r} was deleted while it was read", hint="indelible ls")
        elif now[1] > at:
            return refusals.trimmed_meanwhile(run_id, self.url)
        else:
            error = JournalDamaged(
                f"{self.url}: the journal of run {run_id!r} breaks off at event {at}, but its head is {head}",
                hint=f"indelible verify {shlex.quote(run_id)} --store {shlex.quote(self.url)}",
            )
        error.ids.update(run_id=run_id, at=at, head=head)
        return error


def _may_exist(run_id: str) -> bool:
    try:
        refusals.check_journal_id(run_id)
    except IndelibleError:
        return False
    return True


def _batch(entry: Any) -> Batch:
    last, _, after = entry[0].partition(b"-")
    return Batch(int(after), int(last), entry[1][1])
