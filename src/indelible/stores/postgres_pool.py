"""The connections of one PostgreSQL store: one that writes, and as many as read at once.

Owns: every connection, the turn that writers take, what a fork leaves behind, and the closing.
Must never: hand a connection to two threads, use one that was opened in another process, leave a
transaction open, or keep anything in a session (no SET, prepared statement, cursor, session lock):
behind a pooler the next transaction may run in another session.
Invariant: what `write` leaves by an exception is either not done, or its fate is unknown (`StoreUnavailable`).
"""

from __future__ import annotations

import os
import select
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from indelible.stores import postgres_faults, refusals
from indelible.stores.postgres_place import Place

MAX_IDLE_READERS = 4
ATTEMPTS = 10
"""How often a transaction that the server rolled back for the sake of another is tried, without a pause."""

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresPool:
    """Connections to one database, opened when first needed. Safe from any thread and across forks."""

    def __init__(self, place: Place, readonly: bool) -> None:
        self.place = place
        self.readonly = readonly
        self._closed = False
        self._begin()
        _pools.add(self)

    def _begin(self) -> None:
        self._turn = threading.Lock()
        self._gate = threading.Lock()
        self._writer: Connection | None = None
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()

    def write(self, change: Callable[[Connection], T]) -> T:
        """What `change` returns; it runs statements that commit by themselves, or one transaction.

        Raises `StoreUnavailable` and what else `postgres_faults` makes of the server's errors.
        """
        if self.readonly:
            raise refusals.read_only(self.place.url)
        with self._turn:
            self.check_open()
            con = self._writer
            if con is None or not self._is_alive(con):
                con = self._writer = self.connect()
            try:
                return self._attempt(con, change)
            finally:
                if not _is_idle(con):
                    self._writer = None
                    self._drop(con)

    def consult(self, ask: Callable[[Connection], T]) -> T:
        """What `ask` makes of a connection that reads. Raises as `write`."""
        self.check_open()
        with self._gate:
            con = self._idle.pop() if self._idle else None
        if con is None or not self._is_alive(con):
            con = self.connect()
        try:
            return self._attempt(con, ask)
        finally:
            with self._gate:
                kept = not self._closed and _is_idle(con) and len(self._idle) < MAX_IDLE_READERS
                if kept:
                    self._idle.append(con)
            if not kept:
                self._drop(con)

    def connect(self) -> Connection:
        """A new connection. Raises as `write`."""
        try:
            con = psycopg.connect(self.place.conninfo, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            raise postgres_faults.translate(error, self.place) from error
        con.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # of a transaction we begin; kept here, not there
        self._open.add(con)
        return con

    def check_open(self) -> None:
        """Raise `Misuse` if the store was closed."""
        if self._closed:
            raise refusals.closed(self.place.url)

    def close(self) -> None:
        """Close all connections once they are idle; idempotent."""
        with self._turn:
            self._closed = True
            if self._writer is not None:
                self._drop(self._writer)
                self._writer = None
        with self._gate:
            while self._idle:
                self._drop(self._idle.pop())

    def _attempt(self, con: Connection, act: Callable[[Connection], T]) -> T:
        for left in reversed(range(ATTEMPTS)):
            try:
                return act(con)
            except psycopg.Error as error:
                if con.pgconn.transaction_status == TransactionStatus.INERROR:
                    with suppress(psycopg.Error):
                        con.rollback()
                if left and error.sqlstate in postgres_faults.TRANSIENT and _is_idle(con):
                    continue
                raise postgres_faults.translate(error, self.place) from error
        raise AssertionError("unreachable")

    def _is_alive(self, con: Connection) -> bool:
        """False if the server said anything while this connection was idle: it hardly ever does but to say farewell.

        Then nothing need be sent to find out, and so nothing is lost whose fate would be unknown.
        """
        if not hasattr(select, "poll"):
            return True  # Windows: it is found out by sending
        poll = select.poll()
        with suppress(psycopg.Error, OSError, ValueError):
            poll.register(con.fileno(), select.POLLIN)
            if not poll.poll(0):
                return True
        self._drop(con)
        return False

    def _drop(self, con: Connection) -> None:
        self._open.discard(con)
        with suppress(psycopg.Error):
            con.close()

    def after_fork_in_child(self) -> None:
        """Start afresh; the parent's connections must not hear of it."""
        idle = [con for con in (self._writer, *self._idle) if con is not None]
        for con in self._open:
            _cut_off(con, con in idle and not self._turn.locked() and not self._gate.locked())
        self._begin()


def _is_idle(con: Connection) -> bool:
    status = con.pgconn.transaction_status
    return status == TransactionStatus.IDLE and con.pgconn.pipeline_status == PipelineStatus.OFF


_pools: weakref.WeakSet[PostgresPool] = weakref.WeakSet()
_strays: list[Connection] = []


def _cut_off(con: Connection, idle: bool) -> None:
    """Take the socket away from an inherited connection: else it would tell the server to end the parent's session,
    and would keep that session alive, with its locks, after the parent has died."""
    with suppress(OSError, psycopg.Error):
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, con.fileno())
        os.close(nowhere)
    if idle:
        con.close()
    else:
        _strays.append(con)  # a thread that is not in this process was using it; it is never touched again


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
