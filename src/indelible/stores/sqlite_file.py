"""The file of a SQLite store: where it may lie, who may read it, and how it is opened.

Owns: the checks before a store is announced, permissions, journal mode and pragmas.
Must never: change a file that is not ours, or open and close one by other means than SQLite
(closing any descriptor of a file drops all locks that this process holds on it).
Invariant: a store that was opened can be written, and its files are 0600.
"""

from __future__ import annotations

import os
import shlex
import stat
import threading
import time
import warnings
from dataclasses import dataclass

import apsw

from indelible.errors import IndelibleError, Misuse, StoreUnavailable
from indelible.stores import migrations, mounts, sqlite_faults

SAFE_SQLITE = (3, 51, 3)
"""Older ones (from 3.7.0) can damage a database that two connections use in WAL mode."""
ALLOW_OLD = "INDELIBLE_ALLOW_OLD_SQLITE"

# By measurement, with appends of 2 to 5 KB: larger pages mean more bytes to sync for one append, smaller
# ones cost a group of fifty more; the size of the log makes no difference that can be measured.
PAGE_SIZE = 2048
CHECKPOINT_PAGES = 1000
CACHE_KIB = 8192

WAL_HEADER_BYTES = 32
_WAIT_FOR_WAL_S = 0.002
_creating = threading.Lock()


class NetworkStoreWarning(UserWarning):
    """The store lies on a network file system: slower, and only as safe as its locks."""


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """One store's file and how to use it. `path` is absolute, with links resolved.

    `busy_s` is how long to wait for another connection's lock, in seconds. `vfs` names the
    SQLite VFS that does the reading and writing; None is the operating system's.
    """

    path: str
    durability: str
    readonly: bool
    busy_s: float
    wal: bool
    vfs: str | None = None

    @classmethod
    def open(cls, path: str, *, durability: str, readonly: bool, busy_s: float, vfs: str | None = None) -> SqliteFile:
        """Check that a store can live at `path`, create or migrate it, and verify its tables.

        Raises `StoreUnavailable`, `Misuse`, `FormatTooNew` or `JournalDamaged`; a file that
        is not ours is left as it was.
        """
        if durability not in ("full", "os"):
            raise Misuse(f"durability={durability!r} is not known", hint='durability="full" or durability="os"')
        check_sqlite(apsw.sqlite_lib_version(), os.environ.get(ALLOW_OLD, ""))
        real = os.path.realpath(os.path.expanduser(path))
        _check_place(real, readonly)
        kind = mounts.kind_of(mounts.fstype_at(real))
        if not readonly:
            _check_file_system(real, kind)
        file = cls(real, durability, readonly, busy_s, kind == mounts.LOCAL, vfs)
        if readonly:
            con = file.connect_to_read()
            try:
                file._check_version(con)
            finally:
                con.close()
        else:
            with _creating:
                file._prepare()
        return file

    def connect(self) -> apsw.Connection:
        """A connection that may write. Raises as `open`."""
        try:
            con = apsw.Connection(self.path, flags=apsw.SQLITE_OPEN_READWRITE, vfs=self.vfs)
            try:
                self._configure(con)
            except BaseException:
                con.close()
                raise
        except sqlite_faults.ERRORS as error:
            raise sqlite_faults.translate(error, self.path, self.busy_s) from error
        return con

    def connect_to_read(self) -> apsw.Connection:
        """A connection of a read-only store, which writes nothing, if possible not even beside the file.

        While a log (-wal) with content lies beside the file, it is read through the index
        (-shm) that its writer keeps; only if that is missing is one made, which takes a
        writable directory. Without a log the file is read as it is, without locks: then
        compare `signature` before and after, and read again if it has changed.
        """
        try:
            if self._log_size() == 0:
                con = self._uri("immutable=1")
                if con.read("main", 0, 18, 1)[1] == b"\x02":
                    return con
                con.close()  # no WAL here: read it under its own locks
                return self._uri("mode=ro")
            try:
                return self._uri("mode=ro&readonly_shm=1")
            except (apsw.CantOpenError, apsw.ReadOnlyError):
                return self._uri("mode=ro")
        except (apsw.CantOpenError, apsw.ReadOnlyError) as error:
            raise StoreUnavailable(
                f"{self.path}: its log can be read only where files may be made beside it",
                hint=f"cp {shlex.quote(self.path)}* /tmp/ && indelible ls --store /tmp/{os.path.basename(self.path)}",
                store=self.path,
            ) from error
        except sqlite_faults.ERRORS as error:
            raise sqlite_faults.translate(error, self.path, self.busy_s) from error

    def signature(self) -> tuple[int, ...]:
        """Changes whenever the file, or whether it has a log, changes."""
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise _missing(self.path) from error
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, int(self._log_size() > 0)

    def inode(self) -> int:
        """Which file lies at the path now; raises `StoreUnavailable` if none does."""
        try:
            return os.stat(self.path).st_ino
        except OSError as error:
            raise _missing(self.path) from error

    def _log_size(self) -> int:
        """What the log holds beyond its header, with which alone SQLite tries for 10 s to read it and gives up."""
        try:
            return max(0, os.stat(self.path + "-wal").st_size - WAL_HEADER_BYTES)
        except FileNotFoundError:
            return 0

    def _uri(self, parameters: str) -> apsw.Connection:
        name = f"file:{_quoted(self.path)}?{parameters}"
        con = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, vfs=self.vfs)
        try:
            con.set_busy_handler(_Patience(self.busy_s))
            con.pragma("schema_version")  # the first read, which needs the log
        except BaseException:
            con.close()
            raise
        return con

    def _check_version(self, con: apsw.Connection) -> None:
        try:
            found = migrations.inspect(con, self.path)
            if found < migrations.OLDEST_READ:
                raise Misuse(
                    f"{self.path} has schema {found or 'none'}, and a read-only store is not brought up to date",
                    hint="open it once with readonly=False",
                    store=self.path,
                )
            migrations.verify(con, self.path, migrations.steps()[:found])
        except sqlite_faults.ERRORS as error:
            raise sqlite_faults.translate(error, self.path, self.busy_s) from error

    def _prepare(self) -> None:
        _create(self.path)
        try:
            con = apsw.Connection(self.path, flags=apsw.SQLITE_OPEN_READWRITE, vfs=self.vfs)
            try:
                # Until we know that the file is ours, closing it must not tidy it up.
                con.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                con.set_busy_handler(_Patience(self.busy_s))
                migrations.inspect(con, self.path)
                con.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
                _close_to_others(self.path)
                con.pragma("page_size", PAGE_SIZE)
                self._set_journal_mode(con)
                self._configure(con)
                migrations.migrate(con, self.path)
            finally:
                con.close()
        except sqlite_faults.ERRORS as error:
            raise sqlite_faults.translate(error, self.path, self.busy_s) from error

    def _set_journal_mode(self, con: apsw.Connection) -> None:
        mode = "wal" if self.wal else "delete"
        until = time.monotonic() + self.busy_s
        while True:
            try:
                # SQLite does not wait here by itself: the switch needs the file for itself alone.
                if con.pragma("journal_mode", mode) == mode:
                    return
                raise StoreUnavailable(
                    f"{self.path}: SQLite cannot use journal_mode={mode} here", hint="move it to a local disk"
                )
            except apsw.BusyError:
                if time.monotonic() > until:
                    raise
                time.sleep(_WAIT_FOR_WAL_S)

    def _configure(self, con: apsw.Connection) -> None:
        con.set_busy_handler(_Patience(self.busy_s))
        # EXTRA also syncs the directory after a rollback journal is gone, which WAL has no need of.
        full = "full" if self.wal else "extra"
        con.pragma("synchronous", full if self.durability == "full" else "normal")
        con.pragma("fullfsync", 1)
        con.pragma("checkpoint_fullfsync", 1)
        con.pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        con.pragma("cache_size", -CACHE_KIB)


class _Patience:
    """How a connection waits for another's lock: often and briefly.

    SQLite's own way, ever longer pauses up to 100 ms, starves whoever waits beside a process
    that commits without a pause.
    """

    def __init__(self, busy_s: float) -> None:
        self._busy_s = busy_s
        self._until = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._until = now + self._busy_s
        if now >= self._until:
            return False
        # Uneven, and not alike in two processes, so that they do not meet again and again.
        time.sleep(min(tries + 1, 8) * 0.0005 * (1 + (os.getpid() * 7 + tries * 5) % 11 / 11))
        return True


def check_sqlite(version: str, allow_old: str) -> None:
    """Raise `StoreUnavailable` for a SQLite with the WAL-reset bug, unless `allow_old` is "1"."""
    numbers = tuple(int(part) for part in version.split(".")[:3])
    if numbers >= SAFE_SQLITE or allow_old == "1":
        return
    raise StoreUnavailable(
        f"SQLite {version} can damage a database that two connections use in WAL mode; 3.51.3 is the first without "
        "that fault",
        hint=f"pip install --upgrade apsw    (or, at your own risk: {ALLOW_OLD}=1)",
    )


def _check_place(path: str, readonly: bool) -> None:
    folder = os.path.dirname(path)
    try:
        found = os.stat(path)
        mode = found.st_mode
        if stat.S_ISREG(mode) and found.st_size == 1:
            raise sqlite_faults.not_a_database(path)  # SQLite would take a file of one byte for an empty one
    except (FileNotFoundError, NotADirectoryError):
        mode = 0
    except (OSError, ValueError) as error:
        raise StoreUnavailable(f"store={path!r} cannot be reached", hint=f"ls -ld {shlex.quote(folder)}") from error
    if mode and not stat.S_ISREG(mode):
        raise Misuse(f"store={path!r} is not a file", hint=f"store={os.path.join(path, 'agent.db')!r}", store=path)
    if readonly:
        if not mode:
            raise _missing(path)
        if not os.access(path, os.R_OK):
            raise StoreUnavailable(f"store={path!r} may not be read", hint=f"ls -l {shlex.quote(path)}", store=path)
        return
    if not os.path.isdir(folder):
        raise StoreUnavailable(
            f"store={path!r}: there is no directory {folder}", hint=f"mkdir -p {shlex.quote(folder)}", store=path
        )
    if not os.access(folder, os.W_OK | os.X_OK) or (mode and not os.access(path, os.W_OK)):
        what = folder if not os.access(folder, os.W_OK | os.X_OK) else path
        raise StoreUnavailable(
            f"store={path!r}: {what} may not be written by this user",
            hint=f"ls -ld {shlex.quote(what)}    (or give another path for the store; readers: readonly=True)",
            store=path,
        )


def _check_file_system(path: str, kind: str) -> None:
    if kind == mounts.LOCKLESS:
        raise StoreUnavailable(
            f"store={path!r} lies on a file system ({mounts.fstype_at(path)}) that does not pass on locks, "
            "so that two writers could damage it",
            hint="put the store on a local disk",
            store=path,
        )
    if kind == mounts.NETWORK:
        warnings.warn(
            f"store={path!r} lies on a network file system ({mounts.fstype_at(path)}): it is used without WAL, "
            "which is slower, and is only as safe as that system's locks",
            NetworkStoreWarning,
            stacklevel=5,
        )


def _create(path: str) -> None:
    """Make an empty file that only its owner can read, if there is none."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    except OSError as error:
        raise _cannot_create(path, error) from error
    os.close(descriptor)
    _sync_folder(os.path.dirname(path))


def _sync_folder(folder: str) -> None:
    """Make the new file's name survive a power cut."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some file systems cannot; then the name is theirs to keep
    finally:
        os.close(descriptor)


def _close_to_others(path: str) -> None:
    """Take the rights of group and others away from our own files. SQLite gives new ones the file's mode."""
    if os.name != "posix":
        return
    for name in (path, path + "-wal", path + "-shm", path + "-journal"):
        try:
            found = os.stat(name)
            if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o177:
                os.chmod(name, 0o600)
        except FileNotFoundError:
            continue


def _quoted(path: str) -> str:
    for character, code in (("%", "%25"), ("?", "%3f"), ("#", "%23")):
        path = path.replace(character, code)
    return path.replace("\\", "/") if os.name == "nt" else path


def _missing(path: str) -> IndelibleError:
    return StoreUnavailable(
        f"store={path!r}: there is no such file (any more)", hint=f"ls -l {shlex.quote(path)}", store=path
    )


def _cannot_create(path: str, error: OSError) -> IndelibleError:
    return StoreUnavailable(
        f"store={path!r} cannot be made: {error.strerror}",
        hint=f"touch {shlex.quote(path)}    (or give another path for the store)",
        store=path,
    )
