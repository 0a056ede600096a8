"""A disk that SQLite writes to and that can fail: a VFS over the operating system's.

Owns: the way of each of SQLite's file operations past someone who watches it, and I/O faults.
Must never: change what an operation does unless a fault was asked for.
Invariant: every read, write, sync, truncation, size, lock, opening and deletion of a
database, its log and its rollback journal is met once, before it has any effect.

    with FaultyDisk(Trouble.NO_SPACE, at=7) as disk:
        store = SqliteStore(path, vfs=disk.name)

The wal-index (-shm) is memory shared by processes; SQLite takes it for volatile, and so does this.
"""

from __future__ import annotations

import itertools
import os
from enum import StrEnum
from typing import NamedTuple, Self, TypeAlias

import apsw

Name: TypeAlias = "str | apsw.URIFilename | None"

_numbers = itertools.count(1)


class Operation(StrEnum):
    """What SQLite asks of a file."""

    OPEN = "open"
    READ = "read"
    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    SIZE = "size"
    LOCK = "lock"
    DELETE = "delete"


class Disk(apsw.VFS):
    """The disk as it is. Subclasses watch, and raise an `apsw.Error` where something is to go wrong.

    `sector` (bytes) and `powersafe` are what SQLite is told about the disk; with `powersafe`
    False a write that is cut off may damage the whole sectors it touches.
    """

    def __init__(self, *, sector: int = 4096, powersafe: bool = True) -> None:
        self.name = f"indelible-disk-{os.getpid()}-{next(_numbers)}"
        self.sector = sector
        self.powersafe = powersafe
        self.synced = 0
        """How many syncs had their effect."""
        super().__init__(self.name, "", iVersion=2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.unregister()

    def excepthook(self, *_: object, **__: object) -> bool:
        """What cannot be passed on through SQLite is not news: the fault was asked for."""
        return True

    def xOpen(self, name: Name, flags: list[int]) -> apsw.VFSFile:
        """Open a file."""
        if name is None:
            return super().xOpen(name, flags)
        path = name if isinstance(name, str) else name.filename()
        self.meet(Operation.OPEN, path)
        existed = os.path.exists(path)
        file = _File(self, name, path, flags)
        self.opened(path, existed, flags[0])
        return file

    def xDelete(self, filename: str, syncdir: bool) -> None:
        """Delete a file."""
        self.meet(Operation.DELETE, filename)
        super().xDelete(filename, False)  # as with xSync
        self.deleted(filename, syncdir)

    def meet(self, operation: Operation, path: str) -> None:
        """An operation is about to happen; raise to prevent it."""

    def write_before_failing(self) -> bool:
        """True if a write that fails leaves its first half behind, as a full disk does."""
        return False

    def opened(self, path: str, existed: bool, flags: int) -> None:
        """A file was opened, and made if it had not existed."""

    def wrote(self, path: str, offset: int, data: bytes) -> None:
        """Bytes were written; they are not durable."""

    def truncated(self, path: str, size: int) -> None:
        """A file was cut to `size`; that is not durable."""

    def has_synced(self, path: str) -> None:
        """What was written to a file before is durable now."""

    def deleted(self, path: str, durably: bool) -> None:
        """A name was removed."""


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Name, path: str, flags: list[int]) -> None:
        self._disk = disk
        self._path = path
        super().__init__("", name, flags)

    def excepthook(self, *_: object, **__: object) -> bool:
        return True

    def xRead(self, amount: int, offset: int) -> bytes:
        self._disk.meet(Operation.READ, self._path)
        return super().xRead(amount, offset)

    def xWrite(self, data: object, offset: int) -> None:
        content = bytes(data)  # type: ignore[call-overload]
        try:
            self._disk.meet(Operation.WRITE, self._path)
        except apsw.Error:
            if self._disk.write_before_failing():
                half = content[: len(content) // 2]
                super().xWrite(half, offset)
                self._disk.wrote(self._path, offset, half)
            raise
        super().xWrite(content, offset)
        self._disk.wrote(self._path, offset, content)

    def xTruncate(self, newsize: int) -> None:
        self._disk.meet(Operation.TRUNCATE, self._path)
        super().xTruncate(newsize)
        self._disk.truncated(self._path, newsize)

    def xSync(self, flags: int) -> None:  # noqa: ARG002
        # Not passed on: what is durable is decided here, and a real sync takes most of a test's time.
        self._disk.meet(Operation.SYNC, self._path)
        self._disk.synced += 1
        self._disk.has_synced(self._path)

    def xFileSize(self) -> int:
        self._disk.meet(Operation.SIZE, self._path)
        return super().xFileSize()

    def xLock(self, level: int) -> None:
        self._disk.meet(Operation.LOCK, self._path)
        super().xLock(level)

    def xSectorSize(self) -> int:
        return self._disk.sector

    def xDeviceCharacteristics(self) -> int:
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE if self._disk.powersafe else 0


class Trouble(StrEnum):
    """What an operation can meet with."""

    NO_SPACE = "no space left"
    READ_ERROR = "I/O error when reading"
    WRITE_ERROR = "I/O error when writing"
    SYNC_ERROR = "I/O error when syncing"
    OPEN_ERROR = "cannot be opened"
    BUSY = "locked by another"


class _Kind(NamedTuple):
    operations: frozenset[Operation]
    error: type[apsw.Error]
    extended: int


_WRITES = frozenset({Operation.WRITE, Operation.TRUNCATE})
_READS = frozenset({Operation.READ, Operation.SIZE})
_KINDS: dict[Trouble, _Kind] = {
    Trouble.NO_SPACE: _Kind(frozenset({Operation.WRITE}), apsw.FullError, apsw.SQLITE_FULL),
    Trouble.READ_ERROR: _Kind(_READS, apsw.IOError, apsw.SQLITE_IOERR_READ),
    Trouble.WRITE_ERROR: _Kind(_WRITES | {Operation.DELETE}, apsw.IOError, apsw.SQLITE_IOERR_WRITE),
    Trouble.SYNC_ERROR: _Kind(frozenset({Operation.SYNC}), apsw.IOError, apsw.SQLITE_IOERR_FSYNC),
    Trouble.OPEN_ERROR: _Kind(frozenset({Operation.OPEN}), apsw.CantOpenError, apsw.SQLITE_CANTOPEN),
    Trouble.BUSY: _Kind(frozenset({Operation.LOCK}), apsw.BusyError, apsw.SQLITE_BUSY),
}


def raised(error: type[apsw.Error], extended: int, what: str) -> apsw.Error:
    """An error as SQLite's own VFS would report it."""
    made = error(what)
    made.extendedresult = extended  # type: ignore[attr-defined]
    return made


class FaultyDisk(Disk):
    """A disk on which the operation of that number, counted from 1 among those the trouble can meet, fails.

    `lasting`: all that follow fail as well, until `lift` is called. A write that finds no
    space, or an I/O error, leaves its first half behind.
    """

    def __init__(
        self, trouble: Trouble, at: int, *, lasting: bool = False, sector: int = 4096, powersafe: bool = True
    ) -> None:
        super().__init__(sector=sector, powersafe=powersafe)
        self._kind = _KINDS[trouble]
        self._trouble = trouble
        self._at = at
        self._lasting = lasting
        self.met = 0
        self.struck = 0
        """How many operations failed."""

    def lift(self) -> None:
        """Let everything succeed from here on: space was freed, the disk was mended."""
        self._lasting, self._at = False, 0

    def meet(self, operation: Operation, path: str) -> None:
        """Fail if it is this one's turn."""
        if operation not in self._kind.operations or not self._at:
            return
        self.met += 1
        if self.met == self._at or (self._lasting and self.met > self._at):
            self.struck += 1
            raise raised(self._kind.error, self._kind.extended, f"{self._trouble}: {os.path.basename(path)}")

    def write_before_failing(self) -> bool:
        """A full disk takes what fits."""
        return True
