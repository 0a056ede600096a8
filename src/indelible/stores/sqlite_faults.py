"""What SQLite's errors mean for someone who runs agents.

Owns: the way from a SQLite result code to one of our errors, with a hint.
Must never: pass on a SQLite message that may quote stored values.
Invariant: everything in `ERRORS` becomes an `IndelibleError`, with SQLite's as its cause.
"""

from __future__ import annotations

import shlex

import apsw

from indelible.errors import IndelibleError, JournalDamaged, Misuse, StoreUnavailable

ERRORS = (apsw.Error, UnicodeDecodeError)
"""What reading or writing a file can raise. SQLite does not look at text it reads: damaged, it may not be UTF-8."""

_Words = tuple[str, str]

_UNAVAILABLE: dict[type[BaseException], _Words] = {
    apsw.FullError: ("there is no space left for it", "df -h {folder}    (free some space, then run again)"),
    apsw.ReadOnlyError: ("it may not be written", "ls -l {path}    (or open it with readonly=True)"),
    apsw.CantOpenError: ("it cannot be opened", "ls -ld {folder} {path}"),
    apsw.PermissionsError: ("this user may not open it", "ls -l {path}"),
    apsw.IOError: ("the file system reported an error", "df -h {folder}; dmesg | tail"),
    apsw.NoMemError: ("this process ran out of memory", "run it with more memory"),
    apsw.ProtocolError: ("its locks are contended", "run again; if it lasts: fuser -v {path}"),
    apsw.InterruptError: ("the call was interrupted", "run again"),
}


def busy(path: str, waited_s: float) -> StoreUnavailable:
    """Another connection held the lock for all the time we were ready to wait."""
    return StoreUnavailable(
        f"{path}: another process kept it locked for more than {waited_s:g} s",
        hint=f"fuser -v {shlex.quote(path)}    (who holds it; a reader with an open transaction does, too)",
        store=path,
    )


def not_a_database(path: str) -> JournalDamaged:
    """The file is something else, or its beginning is lost."""
    return JournalDamaged(
        f"{path} is not a SQLite database, or its first page is damaged; it was left as it is",
        hint=f"file {shlex.quote(path)}    (or give another path for the store)",
        store=path,
    )


def translate(error: apsw.Error | UnicodeDecodeError, path: str, busy_s: float) -> IndelibleError:
    """Our error for one of SQLite's, to be raised from it."""
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return busy(path, busy_s)
    if isinstance(error, apsw.NotADBError):
        return not_a_database(path)
    if isinstance(error, (apsw.CorruptError, apsw.FormatError, UnicodeDecodeError)):
        return JournalDamaged(
            f"{path}: SQLite found a damaged page; nothing was changed",
            hint=f"cp {shlex.quote(path)}* /some/safe/place && indelible verify --store {shlex.quote(path)}",
            store=path,
        )
    if isinstance(error, apsw.ConstraintError):
        return JournalDamaged(
            f"{path}: its tables contradict each other; nothing was changed",
            hint=f"indelible verify --store {shlex.quote(path)}",
            store=path,
        )
    if isinstance(error, apsw.TooBigError):
        return Misuse(f"{path}: a batch is larger than SQLite can hold", hint="keep large data in files", store=path)
    for kind, (what, hint) in _UNAVAILABLE.items():
        if isinstance(error, kind):
            folder = path.rpartition("/")[0] or "."
            hint = hint.format(path=shlex.quote(path), folder=shlex.quote(folder))
            return StoreUnavailable(f"{path}: {what}", hint=hint, store=path)
    return StoreUnavailable(
        f"{path}: SQLite reported {type(error).__name__}",
        hint=f"indelible verify --store {shlex.quote(path)}",
        store=path,
    )
