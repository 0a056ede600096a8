"""A SQLite store kept in order: what is so of its file, and how free space goes back to the disk.

Owns: the facts that `indelible doctor` tells, and `VACUUM`.
Must never: change anything to find a fact out, or begin to reclaim where there is no room for it.
Invariant: the file's content is the same before and after, whatever happens in between: a `VACUUM` that fails, for
whatever reason, is rolled back by SQLite.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterator

import apsw

from indelible.errors import JournalDamaged, StoreUnavailable
from indelible.stores import mounts
from indelible.stores.base import Fact
from indelible.stores.sqlite_file import SAFE_SQLITE
from indelible.stores.sqlite_pool import SqlitePool

FREE_SHARE = 0.25
"""Above this share of free pages, and `FREE_BYTES`, a file is worth a word."""
FREE_BYTES = 1 << 20
LONG_LOG_BYTES = 64 << 20
"""A log (-wal) that long has not been taken into the file for many times its usual length."""
_SPARE = 1 << 20
_FAULTS_TOLD = 10

_ALIEN_BATCHES = """
SELECT count(*), coalesce(sum(length(data)), 0) FROM batches
WHERE no <> 0 AND no NOT IN (SELECT no FROM runs WHERE deleted = 0)"""
_ALIEN_SNAPSHOTS = """
SELECT count(*), coalesce(sum(length(data)), 0) FROM snapshots
WHERE no NOT IN (SELECT no FROM runs WHERE deleted = 0)"""
_SHORT = """
SELECT run_id FROM (
    SELECT run_id, head, begins,
        coalesce((SELECT max(last_seq) FROM batches WHERE batches.no = runs.no), begins) AS last,
        (SELECT min(after_seq) FROM batches WHERE batches.no = runs.no) AS first
    FROM runs WHERE deleted = 0)
WHERE last <> head OR first <> begins ORDER BY run_id LIMIT 11"""
_BASELESS = """
SELECT run_id FROM runs WHERE deleted = 0 AND begins > 0
    AND NOT EXISTS (SELECT 1 FROM snapshots WHERE snapshots.no = runs.no AND seq = begins) ORDER BY run_id LIMIT 11"""
_LEFT_INBOXES = """
SELECT run_id FROM runs AS box WHERE run_id LIKE '%/inbox' AND deleted = 0 AND NOT EXISTS (
    SELECT 1 FROM runs WHERE runs.run_id = substr(box.run_id, 1, length(box.run_id) - 6) AND runs.deleted = 0)
ORDER BY run_id LIMIT 11"""


def now(pool: SqlitePool) -> float:
    """The time on the database's clock, in epoch seconds."""
    return float(pool.consult(lambda con: con.execute("SELECT unixepoch('subsec')").get))


def facts(pool: SqlitePool) -> Iterator[Fact]:
    """See `Upkeep.facts`."""
    yield _version()
    yield from pool.consult(lambda con: list(_modes(pool, con)))
    yield _place(pool.file.path)
    yield from _permissions(pool.file.path)
    damaged = False
    for fact in _whole(pool):
        damaged |= fact.verdict == "bad"
        yield fact
    if not damaged:
        yield from pool.consult(lambda con: list(_rows(pool.file.path, con)))
    yield from pool.consult(lambda con: list(_space(pool.file.path, con)))


def reclaim(pool: SqlitePool) -> int:
    """See `Upkeep.reclaim`. Writers of other processes wait meanwhile; readers go on.

    It takes room: a copy of what is in use, twice (in the temporary folder, and in the log beside the file). Raises
    `StoreUnavailable` if there is not enough, or if another process keeps the file locked; nothing is lost by that.
    """
    before = _on_disk(pool.file.path)

    def vacuum(con: apsw.Connection) -> None:
        if int(con.pragma("freelist_count")) > 0:
            _check_room(pool.file.path, con)
            con.execute("VACUUM")
        con.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # else the file is as long as it was until somebody else does it

    pool.work(vacuum)
    return max(0, before - _on_disk(pool.file.path))


def _check_room(path: str, con: apsw.Connection) -> None:
    used = (int(con.pragma("page_count")) - int(con.pragma("freelist_count"))) * int(con.pragma("page_size"))
    folder = os.path.dirname(path)
    scratch = os.environ.get("SQLITE_TMPDIR") or tempfile.gettempdir()
    same = os.stat(folder).st_dev == os.stat(scratch).st_dev
    for where, needed in ((folder, used * (2 if same else 1)), (scratch, used)):
        room = shutil.disk_usage(where).free
        if room < needed + _SPARE:
            raise StoreUnavailable(
                f"{path}: giving back free space takes {needed + _SPARE:,} bytes in {where} for a while, and there are "
                f"{room:,}; what was deleted stays deleted, and its space is used again by what comes",
                hint=f"df -h {shlex.quote(where)}    (free some, or: SQLITE_TMPDIR=/with/room; then run again)",
                store=path,
            )


def _on_disk(path: str) -> int:
    return sum(_size(path + ending) for ending in ("", "-wal"))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _version() -> Fact:
    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")[:3]) < SAFE_SQLITE:
        return Fact("SQLite", f"{version}, which can damage a file in WAL mode", "bad", "pip install --upgrade apsw")
    return Fact("SQLite", version)


def _modes(pool: SqlitePool, con: apsw.Connection) -> Iterator[Fact]:
    path = pool.file.path
    # By the file's header: one that is read without locks is taken for one without a log.
    mode = "wal" if con.read("main", 0, 18, 1)[1] == b"\x02" else "a rollback journal"
    # A read-only connection has its own settings; what counts is what this library writes with.
    yield Fact("schema", f"version {con.pragma('user_version')}")
    if mode != "wal" and pool.file.wal:
        yield Fact(
            "journal mode", mode, "note", f"indelible ls --store {shlex.quote(path)}   # after the next write: wal"
        )
    else:
        yield Fact("journal mode", mode)
    if pool.file.durability == "full":
        yield Fact("synchronous", "full: every acknowledged write is synced")
    else:
        yield Fact("synchronous", "os: power loss may take the last moments", "note", 'durability="full"')


def _place(path: str) -> Fact:
    name = mounts.fstype_at(path)
    kind = mounts.kind_of(name)
    if kind == mounts.LOCAL:
        return Fact("file system", f"{name or 'not known'}, local")
    verdict = "note" if kind == mounts.NETWORK else "bad"
    hint = "put the store on a local disk, or use postgresql://"
    return Fact("file system", f"{name}: {kind}", verdict, hint)  # type: ignore[arg-type]


def _permissions(path: str) -> Iterator[Fact]:
    """B109: state may hold secrets; its files are their owner's alone."""
    if os.name != "posix":
        return
    for name in (path, path + "-wal", path + "-shm"):
        try:
            mode = stat.S_IMODE(os.stat(name).st_mode)
        except FileNotFoundError:
            continue
        if mode & 0o077:
            hint = f"chmod 600 {shlex.quote(name)}"
            yield Fact("permissions", f"{os.path.basename(name)} is {mode:04o}: others may read it", "bad", hint)
        elif name == path:
            yield Fact("permissions", f"{mode:04o}")


def _whole(pool: SqlitePool) -> Iterator[Fact]:
    path = shlex.quote(pool.file.path)
    hint = f"cp {path}* /some/safe/place && indelible verify --all --store {path}"
    try:
        told = pool.consult(lambda con: [str(row[0]) for row in con.execute("PRAGMA integrity_check(10)")])
    except JournalDamaged as error:
        yield Fact("integrity", error.what, "bad", hint)
        return
    if told == ["ok"]:
        yield Fact("integrity", "ok")
    for line in told if told != ["ok"] else ():
        yield Fact("integrity", line.replace("\n", " ")[:200], "bad", hint)


def _rows(path: str, con: apsw.Connection) -> Iterator[Fact]:
    """B70 B71 B91: rows that belong to nothing, and journals whose parts disagree."""
    safe = shlex.quote(path)
    for name, query in (("batches without a run", _ALIEN_BATCHES), ("snapshots without a run", _ALIEN_SNAPSHOTS)):
        count, size = con.execute(query).fetchone() or (0, 0)
        if count:
            yield Fact(name, f"{count} ({size:,} bytes)", "bad", f"cp {safe}* /some/safe/place")
    if int(con.pragma("user_version")) >= 2:
        short = [str(run_id) for (run_id,) in con.execute(_SHORT)]
        if short:
            hint = f"indelible verify {shlex.quote(short[0])} --store {safe}"
            yield Fact("journals that do not reach their head", _named(short), "bad", hint)
        baseless = [str(run_id) for (run_id,) in con.execute(_BASELESS)]
        if baseless:
            hint = f"indelible verify {shlex.quote(baseless[0])} --store {safe}"
            yield Fact("pruned journals without the snapshot they begin at", _named(baseless), "bad", hint)
    left = [str(run_id).removesuffix("/inbox") for (run_id,) in con.execute(_LEFT_INBOXES)]
    if left:
        hint = f"indelible prune --run {shlex.quote(left[0])} --store {safe}"
        yield Fact("inboxes without a run", _named(left), "note", hint)


def _named(names: list[str]) -> str:
    shown = ", ".join(ascii(name)[1:-1] for name in names[:_FAULTS_TOLD])
    return shown + (" and more" if len(names) > _FAULTS_TOLD else "")


def _space(path: str, con: apsw.Connection) -> Iterator[Fact]:
    page = int(con.pragma("page_size"))
    size, free = int(con.pragma("page_count")) * page, int(con.pragma("freelist_count")) * page
    yield Fact("size", f"{size:,} bytes")
    reclaims = f"indelible prune --reclaim --yes --store {shlex.quote(path)}"
    if free > max(FREE_BYTES, FREE_SHARE * size):
        yield Fact("free space in the file", f"{free:,} bytes, never returned by themselves", "note", reclaims)
    else:
        yield Fact("free space in the file", f"{free:,} bytes")
    log = _size(path + "-wal")
    if log > LONG_LOG_BYTES:
        yield Fact(
            "log (-wal)", f"{log:,} bytes: a reader keeps it from shrinking", "note", f"fuser -v {shlex.quote(path)}"
        )
    else:
        yield Fact("log (-wal)", f"{log:,} bytes")
