"""Opening a SQLite store: what is checked, refused, repaired and left alone."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import apsw
import pytest

from indelible.errors import JournalDamaged, Misuse, StaleWriter, StoreUnavailable
from indelible.stores import mounts
from indelible.stores.sqlite import SqliteStore
from indelible.stores.sqlite_file import NetworkStoreWarning, check_sqlite
from indelible.testing.conformance_kit import entries, refused, write
from tests.conformance.children import Child

NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "agent.db")


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that other users may enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def filled(path: str) -> SqliteStore:
    store = SqliteStore(path)
    store.claim("a", "somebody", 30.0)
    assert store.append([write("a", at, b"%d" % at * 500) for at in range(5)]) == [None] * 5
    return store


def kill_a_writer(path: str) -> None:
    """Leave a file, a log with content and its index, as a killed process does."""

    def work(_test: Child) -> None:
        _store = filled(path)
        os.kill(os.getpid(), signal.SIGKILL)

    with Child(work) as child:
        assert child.ended() == -signal.SIGKILL


def mode(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def without_privileges(work: Callable[[Child], None]) -> None:
    """Run in a child that is not root, for whom no permission counts."""
    with Child(work, NOBODY if os.geteuid() == 0 else None) as child:
        assert child.ended() == 0


# Permissions


def test_files_are_for_their_owner_alone(path: str) -> None:
    """B109: under any umask."""
    before = os.umask(0o002)
    try:
        with closing(filled(path)):
            assert [mode(path + end) for end in ("", "-wal", "-shm")] == [0o600] * 3
    finally:
        os.umask(before)


def test_files_that_were_open_to_others_are_closed(path: str) -> None:
    """B109: also those that a former process has left behind."""

    kill_a_writer(path)
    names = [path + end for end in ("", "-wal", "-shm")]
    for name in names:
        os.chmod(name, 0o664)
    with closing(SqliteStore(path)) as store:
        assert len(list(store.read("a"))) == 5
        assert [mode(name) for name in names] == [0o600] * 3


def test_a_directory_that_may_not_be_written(public: Path) -> None:
    """B110: checked before anything is announced, with the path and the option in the message."""
    public.chmod(0o555)
    path = str(public / "agent.db")

    def work(_test: Child) -> None:
        error = refused(StoreUnavailable, lambda: SqliteStore(path))
        assert f"store={path!r}" in str(error)
        assert str(public) in error.hint
        assert not os.path.exists(path)

    without_privileges(work)


def test_a_file_that_may_not_be_written_can_be_read(public: Path) -> None:
    """B110: readers work in a read-only directory, and leave nothing there."""
    path = str(public / "agent.db")
    filled(path).close()
    os.chmod(path, 0o444)
    public.chmod(0o555)

    def work(_test: Child) -> None:
        refused(StoreUnavailable, lambda: SqliteStore(path))
        with closing(SqliteStore(path, readonly=True)) as store:
            assert [batch.last_seq for batch in store.read("a")] == [1, 2, 3, 4, 5]
            assert [entry.run_id for entry in entries(store)] == ["a"]
            assert store.get_snapshot("a", 5) is None
        assert os.listdir(public) == ["agent.db"]

    without_privileges(work)


# Reading only


def test_a_reader_writes_nothing(path: str) -> None:
    filled(path).close()
    content, folder = Path(path).read_bytes(), os.path.dirname(path)
    with closing(SqliteStore(path, readonly=True)) as store:
        assert len(list(store.read("a"))) == 5
        for use in (
            lambda: store.append([write("a", 5)]),
            lambda: store.claim("a", "me", 1.0),
            lambda: store.put_snapshot("a", 1, b""),
            lambda: store.delete("a"),
        ):
            assert "read-only" in str(refused(Misuse, use))
        assert os.listdir(folder) == ["agent.db"]
    assert Path(path).read_bytes() == content


def test_a_reader_sees_what_is_written_meanwhile(path: str) -> None:
    """Whether a log comes, goes or lies there, the answer is that of the last commit."""
    filled(path).close()
    with closing(SqliteStore(path, readonly=True)) as reader:
        for at in range(5, 20):
            with closing(SqliteStore(path)) as writer:
                assert writer.append([write("a", at, epoch=1)]) == [None]
                assert len(list(reader.read("a"))) == at + 1
            assert len(list(reader.read("a"))) == at + 1


def test_a_reader_of_a_killed_writers_log(path: str) -> None:
    """B89: the log holds commits that the file does not; they are shown."""

    kill_a_writer(path)
    assert os.stat(path + "-wal").st_size > 0
    with closing(SqliteStore(path, readonly=True)) as store:
        assert len(list(store.read("a"))) == 5
    os.unlink(path + "-shm")
    with closing(SqliteStore(path, readonly=True)) as store:
        assert len(list(store.read("a"))) == 5


def test_a_reader_of_a_log_that_has_a_header_only(path: str) -> None:
    """Its writer was killed between the header of the log and the first batch; the file itself can be read."""
    kill_a_writer(path)
    with open(path + "-wal", "r+b") as log:
        log.truncate(32)
    with closing(SqliteStore(path, readonly=True)) as store:
        assert not entries(store)


def test_a_log_that_cannot_be_read_is_not_passed_over(public: Path) -> None:
    """B89 B110: without its index, and no place to make one, old content would be shown as new."""
    path = str(public / "agent.db")

    kill_a_writer(path)
    os.unlink(path + "-shm")
    for name in (path, path + "-wal"):
        os.chmod(name, 0o444)
    public.chmod(0o555)

    def work(_test: Child) -> None:
        error = refused(StoreUnavailable, lambda: SqliteStore(path, readonly=True))
        assert "cp " in error.hint

    without_privileges(work)


def test_reading_needs_a_store(path: str) -> None:
    refused(StoreUnavailable, lambda: SqliteStore(path, readonly=True))
    Path(path).touch()
    refused(Misuse, lambda: SqliteStore(path, readonly=True))
    assert Path(path).read_bytes() == b""


# Files that are not ours


@pytest.mark.parametrize("size", [1, 5, 99, 100, 600, 5000])
def test_no_database_at_all(path: str, size: int) -> None:
    """B89: a clear error, and the file is left as it was."""
    content = (b"name,amount\nada,3\n" * 300)[:size]
    Path(path).write_bytes(content)
    os.chmod(path, 0o644)
    for readonly in (False, True):
        error = refused(JournalDamaged, partial(SqliteStore, path, readonly=readonly))
        assert path in str(error)
    assert Path(path).read_bytes() == content
    assert mode(path) == 0o644
    assert os.listdir(os.path.dirname(path)) == ["agent.db"]


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_a_database_of_another_application(path: str, journal: str) -> None:
    con = apsw.Connection(path)
    con.pragma("journal_mode", journal)
    con.execute("CREATE TABLE runs (id)")
    con.close()
    os.chmod(path, 0o644)
    content = Path(path).read_bytes()
    for readonly in (False, True):
        refused(Misuse, partial(SqliteStore, path, readonly=readonly))
    assert Path(path).read_bytes() == content
    assert mode(path) == 0o644


def test_an_application_with_an_id_but_no_tables(path: str) -> None:
    con = apsw.Connection(path)
    con.pragma("application_id", 7)
    con.close()
    refused(Misuse, lambda: SqliteStore(path))


def test_an_empty_file_becomes_a_store(path: str) -> None:
    Path(path).touch()
    os.chmod(path, 0o644)
    filled(path).close()
    assert mode(path) == 0o600


# Places


def test_paths_that_cannot_hold_a_store(tmp_path: Path) -> None:
    """B110."""
    error = refused(StoreUnavailable, lambda: SqliteStore(str(tmp_path / "no" / "agent.db")))
    assert error.hint == f"mkdir -p {tmp_path / 'no'}"
    (tmp_path / "file").touch()
    refused(StoreUnavailable, lambda: SqliteStore(str(tmp_path / "file" / "agent.db")))
    refused(Misuse, lambda: SqliteStore(str(tmp_path)))
    refused(Misuse, lambda: SqliteStore(str(tmp_path / "agent.db"), durability="perhaps"))
    assert os.listdir(tmp_path) == ["file"]


def test_the_path_does_not_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is one of where the store was opened, and odd names are only names."""
    monkeypatch.chdir(tmp_path)
    name = "a b%41?mode=ro#x'.db"
    with closing(SqliteStore(name)) as store:
        assert store.url == str(tmp_path / name)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert store.claim("a", "o", 1.0) == 1
    with closing(SqliteStore(store.url, readonly=True)) as again:
        assert len(entries(again)) == 1
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_file_that_was_replaced(path: str) -> None:
    """An append that nobody could read again is refused, not acknowledged."""
    with closing(filled(path)) as store:
        os.rename(path, path + ".old")
        refused(StoreUnavailable, lambda: store.append([write("a", 5)]))
        Path(path).touch()
        refused(StoreUnavailable, lambda: store.append([write("a", 5)]))
        os.rename(path + ".old", path)
        assert store.append([write("a", 5)]) == [None]


def test_network_file_systems(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "fstype_at", lambda _path: "fuse.sshfs")
    assert "fuse.sshfs" in str(refused(StoreUnavailable, lambda: SqliteStore(path)))
    assert not os.path.exists(path)
    monkeypatch.setattr(mounts, "fstype_at", lambda _path: "cifs")
    with pytest.warns(NetworkStoreWarning, match="cifs"):
        store = filled(path)
    con = apsw.Connection(path)
    assert con.pragma("journal_mode") == "delete"
    con.close()
    assert not os.path.exists(path + "-wal")
    with closing(SqliteStore(path, readonly=True)) as reader:
        assert len(list(reader.read("a"))) == 5
        assert store.append([write("a", 5)]) == [None]
        assert len(list(reader.read("a"))) == 6
    store.close()


def test_mount_tables() -> None:
    table = (
        "22 1 0:2 / / rw - ext4 /dev/a rw\n"
        "23 22 0:3 / /home rw shared:1 - nfs4 srv:/home rw\n"
        "24 23 0:4 / /home/my\\040disk rw - xfs /dev/b rw\n"
        "25 22 0:5 / /mnt rw - ext4 /dev/c rw\n"
        "26 22 0:6 / /mnt rw - fuse.sshfs h: rw\n"
        "nonsense\n"
    )
    found = [
        mounts.fstype_in(table, path)
        for path in ("/x", "/home/a.db", "/home/my disk/a.db", "/homeless", "/mnt/a", "/mnt")
    ]
    assert found == ["ext4", "nfs4", "xfs", "ext4", "fuse.sshfs", "fuse.sshfs"]
    assert mounts.fstype_in("", "/x") == ""
    kinds = [mounts.kind_of(name) for name in ("ext4", "", "nfs", "9p", "fuse.sshfs")]
    assert kinds == [mounts.LOCAL, mounts.LOCAL, mounts.NETWORK, mounts.NETWORK, mounts.LOCKLESS]


def test_an_old_sqlite_is_refused() -> None:
    check_sqlite("3.51.3", "")
    check_sqlite("3.100.0", "")
    check_sqlite("3.40.1", "1")
    for version in ("3.51.2", "3.7.0"):
        assert "INDELIBLE_ALLOW_OLD_SQLITE=1" in refused(StoreUnavailable, partial(check_sqlite, version, "0")).hint


# Trouble with the disk


def test_a_full_disk(path: str) -> None:
    """B86 B87: what did not fit has left no trace, the error says so, and with space all goes on."""

    def work(_test: Child) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        store = filled(path)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.stat(path + "-wal").st_size + 50_000, limits[1]))
        at, error = 5, None
        while error is None:
            try:
                assert store.append([write("a", at, b"x" * 9000)]) == [None]
                at += 1
            except StoreUnavailable as raised:
                error = raised
        assert at < 15
        assert "df -h" in error.hint
        assert len(list(store.read("a"))) == at
        refused(StoreUnavailable, lambda: store.append([write("a", at, b"x" * 90_000)]))
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert store.append([write("a", at, b"after")]) == [None]
        assert isinstance(store.append([write("a", at)])[0], StaleWriter)
        store.close()
        with closing(SqliteStore(path)) as again:
            assert [batch.last_seq for batch in again.read("a")] == list(range(1, at + 2))

    with Child(work) as child:
        assert child.ended() == 0


def test_a_full_database(path: str) -> None:
    """B86: SQLite's own word for it."""
    with closing(filled(path)) as store:
        con = store._pool._the_writer()
        con.pragma("max_page_count", con.pragma("page_count") + 2)
        error = refused(StoreUnavailable, lambda: store.append([write("a", 5, b"x" * 50_000)]))
        assert "no space left" in str(error)
        assert store.append([write("a", 5, b"fits")]) == [None]


def test_a_damaged_page(path: str) -> None:
    """B89 B93: loud every time it is met, what is readable is read, and nothing is rebuilt behind one's back."""
    store = SqliteStore(path)
    store.claim("a", "o", 30.0)
    assert store.append([write("a", at, b"%d" % at * 2000) for at in range(300)]) == [None] * 300
    store.close()
    content = bytearray(Path(path).read_bytes())
    middle = len(content) // 2 // 2048 * 2048
    content[middle : middle + 20 * 2048] = b"\xff" * (20 * 2048)
    Path(path).write_bytes(content)
    for _ in range(5):
        with closing(SqliteStore(path)) as store:
            read: list[int] = []

            def reading(store: SqliteStore = store, read: list[int] = read) -> None:
                read.extend(batch.last_seq for batch in store.read("a"))

            assert "damaged" in str(refused(JournalDamaged, reading))
        assert Path(path).read_bytes() == content


def test_a_file_that_was_cut_off(path: str) -> None:
    """B89."""
    filled(path).close()
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[: len(content) // 2])
    for readonly in (True, False):
        with pytest.raises(JournalDamaged), closing(SqliteStore(path, readonly=readonly)) as store:
            list(store.read("a"))


def test_batches_that_are_missing(path: str) -> None:
    """B90: a journal that ends before its head says so, after what there is of it."""
    filled(path).close()
    con = apsw.Connection(path)
    con.execute("DELETE FROM batches WHERE last_seq >= 4")
    con.close()
    with closing(SqliteStore(path)) as store:
        reading = store.read("a")
        assert [next(reading).last_seq for _ in range(3)] == [1, 2, 3]
        error = refused(JournalDamaged, lambda: next(reading))
        assert (error.ids["at"], error.ids["head"]) == (3, 5)


def test_durability(path: str) -> None:
    """B94: what is promised is what SQLite is told to do."""
    for durability, pragma in (("full", 2), ("os", 1)):
        with closing(SqliteStore(path, durability=durability)) as store:
            assert store.durable == (durability == "full")
            assert store._pool._the_writer().pragma("synchronous") == pragma
            assert store._pool._the_writer().pragma("journal_mode") == "wal"


def test_the_databases_clock(path: str) -> None:
    """B62: without a clock of the test's, SQLite's counts."""
    with closing(filled(path)) as store:
        con = apsw.Connection(":memory:")
        now = con.execute("SELECT unixepoch('subsec')").get
        con.close()
        (entry,) = entries(store)
        assert now - 60 < entry.created_at <= entry.updated_at <= now
        assert entry.live
