"""The connections of one SQLite store: one that writes, and as many as read at once.

Owns: every connection, the lock that writers take in turn, forks, and the closing.
Must never: hand a connection to two threads, carry one through a fork, or keep a read
transaction open while the caller's code runs (that would keep the log from shrinking).
Invariant: a transaction that `write` leaves by an exception has changed nothing.

Forks. SQLite's locks belong to a process, but its record of them is memory, which a child
inherits: a child that opens the file anew while the parent's connections are in its memory
believes that it holds locks which it does not, and its commits can be lost. So all
connections are closed before a fork, and both sides open theirs again when they need one.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import apsw

from indelible.errors import JournalDamaged, StoreUnavailable
from indelible.stores import refusals, sqlite_faults
from indelible.stores.sqlite_file import SqliteFile

MAX_IDLE_READERS = 8
READ_ATTEMPTS = 20

T = TypeVar("T")


class SqlitePool:
    """Connections to one file, opened when first needed. Safe from any thread and across forks."""

    def __init__(self, file: SqliteFile) -> None:
        self.file = file
        self._inode = file.inode()
        self._closed = False
        self._strayed = False
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        # Whoever wants to use a connection passes the door first, so that a fork, which closes
        # it, need not win a race against threads that never pause.
        self._door = threading.Lock()
        self._turn = threading.Lock()
        self._gate = threading.Condition()
        self._writer: apsw.Connection | None = None
        self._idle: list[apsw.Connection] = []
        self._reading = 0

    def write(self, change: Callable[[apsw.Connection], T]) -> T:
        """What `change` returns, having run in a write transaction: committed, or rolled back by an exception.

        Raises `StoreUnavailable` or `JournalDamaged` for SQLite's errors.
        """
        # Not context managers: Ctrl-C between their beginning and their block would leave the transaction open.
        return self.work(lambda con: _committed(con, change))

    def work(self, act: Callable[[apsw.Connection], T]) -> T:
        """What `act` makes of the connection that writes, without a transaction. Raises as `write`."""
        if self.file.readonly:
            raise refusals.read_only(self.file.path)
        with self._door:
            pass
        with self._turn:
            con = self._the_writer()
            try:
                try:
                    if con.in_transaction:
                        con.execute("ROLLBACK")  # Ctrl-C came twice
                    return act(con)
                except BaseException:
                    if con.in_transaction:
                        con.execute("ROLLBACK")
                    raise
            except sqlite_faults.ERRORS as error:
                if not isinstance(error, apsw.BusyError):
                    # What an I/O error left in this connection's caches is not worth finding out.
                    self._writer = None
                    _shut(con)
                raise sqlite_faults.translate(error, self.file.path, self.file.busy_s) from error

    def _the_writer(self) -> apsw.Connection:
        self.check_open()
        if self.file.inode() != self._inode:
            # An append to a file that has been deleted or replaced would be acknowledged and lost.
            raise StoreUnavailable(
                f"{self.file.path} is another file than the one that was opened",
                hint="stop whatever replaced it, then open the store again",
                store=self.file.path,
            )
        if self._writer is None:
            self._writer = self.file.connect()
        return self._writer

    def consult(self, ask: Callable[[apsw.Connection], T]) -> T:
        """What `ask` makes of a connection that reads; it runs a few short statements, maybe more than once.

        Raises as `write`.
        """
        if not self.file.readonly:
            return self._ask(ask)
        for _ in range(READ_ATTEMPTS):
            before = self.file.signature()
            try:
                answer = self._ask(ask)
            except JournalDamaged:
                if self.file.signature() == before:
                    raise
                continue
            if self.file.signature() == before:
                return answer
        raise StoreUnavailable(
            f"{self.file.path} changes faster than it can be read", hint="run again", store=self.file.path
        )

    def _ask(self, ask: Callable[[apsw.Connection], T]) -> T:
        con = self._check_out()
        try:
            return ask(con)
        except sqlite_faults.ERRORS as error:
            raise sqlite_faults.translate(error, self.file.path, self.file.busy_s) from error
        finally:
            self._check_in(con)

    def _check_out(self) -> apsw.Connection:
        with self._door, self._gate:
            self.check_open()
            self._reading += 1
            if self._idle:
                return self._idle.pop()
        try:
            if self.file.readonly:
                return self.file.connect_to_read()
            return self._new_reader()
        except BaseException:
            self._check_in(None)
            raise

    def _new_reader(self) -> apsw.Connection:
        con = self.file.connect()
        con.pragma("query_only", 1)
        return con

    def _check_in(self, con: apsw.Connection | None) -> None:
        with self._gate:
            self._reading -= 1
            # A read-only store looks anew each time: a log may have come or gone meanwhile.
            keep = not self._closed and not self.file.readonly and len(self._idle) < MAX_IDLE_READERS
            if con is not None and keep and not con.in_transaction:
                self._idle.append(con)
            elif con is not None:
                _shut(con)
            self._gate.notify_all()

    def check_open(self) -> None:
        """Raise `Misuse` if the store was closed."""
        if self._closed:
            raise refusals.closed(self.file.path)
        if self._strayed:
            raise StoreUnavailable(
                f"{self.file.path}: this process was forked while the store was in use and could not be released",
                hint="fork before the store is used, or start processes by spawn",
                store=self.file.path,
            )

    def close(self) -> None:
        """Close all connections once they are idle; idempotent."""
        with self._turn:
            self._closed = True
            self._release(self.file.busy_s)

    def _release(self, wait_s: float) -> bool:
        """Close what is open; False if a reader was still busy after `wait_s`. The turn is ours."""
        with self._gate:
            quiet = self._gate.wait_for(lambda: self._reading == 0, timeout=wait_s)
            while self._idle:
                _shut(self._idle.pop())
        if self._writer is not None:
            _shut(self._writer)
            self._writer = None
        return quiet

    def before_fork(self) -> bool:
        """Close everything and keep all locks; False if that was not possible in time."""
        until = time.monotonic() + self.file.busy_s + 1
        if not self._door.acquire(timeout=self.file.busy_s + 1):
            return False
        if self._turn.acquire(timeout=max(0.0, until - time.monotonic())):
            if self._release(max(0.0, until - time.monotonic())):
                self._gate.acquire()
                return True
            self._turn.release()
        self._door.release()
        return False

    def after_fork_in_parent(self) -> None:
        """Let go of the locks that `before_fork` took."""
        self._gate.release()
        self._turn.release()
        self._door.release()

    def after_fork_in_child(self, clean: bool) -> None:
        """Start afresh. If the parent was in the middle of a call, refuse to work here."""
        if not clean:
            self._strayed = True
            _abandon([con for con in (self._writer, *self._idle) if con is not None])
        self._reset()


_pools: weakref.WeakSet[SqlitePool] = weakref.WeakSet()
_forking: list[tuple[SqlitePool, bool]] = []


def _committed(con: apsw.Connection, change: Callable[[apsw.Connection], T]) -> T:
    con.execute("BEGIN IMMEDIATE")
    result = change(con)
    con.execute("COMMIT")
    return result


def _shut(con: apsw.Connection) -> None:
    """Close a connection. What cannot be tidied up on a failing disk is left to whoever opens the file next."""
    with suppress(apsw.Error):
        con.close()


def _abandon(connections: list[apsw.Connection]) -> None:
    """Keep inherited connections from ever being closed: that would touch the parent's locks."""
    import ctypes

    for con in connections:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(con))


def _before_fork() -> None:
    _forking[:] = [(pool, pool.before_fork()) for pool in list(_pools)]


def _after_fork_in_parent() -> None:
    for pool, clean in _forking:
        if clean:
            pool.after_fork_in_parent()
    _forking.clear()


def _after_fork_in_child() -> None:
    for pool, clean in _forking:
        pool.after_fork_in_child(clean)
    _forking.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
