"""Object storage in which something is missing, foreign or newer, and a folder that others look into."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from indelible.errors import (
    FormatTooNew,
    IndelibleError,
    JournalDamaged,
    Misuse,
    RunBusy,
    StaleWriter,
    StoreUnavailable,
)
from indelible.stores import open_store
from indelible.stores.base import Batch, Query, Write, inbox_of
from indelible.stores.objects import ObjectStore
from indelible.stores.objects_bucket import Remote
from indelible.stores.objects_entry import Names, segment
from indelible.stores.objects_folder import Folder
from indelible.stores.owner import Owner, enter, leave
from indelible.testing.conformance_kit import SteppedClock
from tests.conformance.children import Child
from tests.servers import seaweed


@pytest.fixture(autouse=True)
def _owner() -> Iterator[None]:
    enter("test")
    yield
    leave("test")


def filled(count: int = 5) -> tuple[ObjectStore, Remote]:
    memory = MemoryStore()
    store = ObjectStore.over(memory, "memory-objects:", background=False)
    store.claim("a", Owner.here("test"), 30.0)
    store.append([Write("a", 1, Batch(at, at + 1, b"%d" % at)) for at in range(count)])
    return store, Remote(memory, "memory")


def fails(kind: type[IndelibleError], act: Callable[[], object]) -> IndelibleError:
    with pytest.raises(kind) as caught:
        act()
    assert caught.value.hint
    return caught.value


def test_a_lost_index_object_hides_no_run_for_good() -> None:
    """B19: the log is the truth; what says so is found, and made good by whoever goes on or tidies up."""
    store, bucket = filled()
    bucket.remove([Names.of("a").listed])
    assert [batch.last_seq for batch in store.read("a")] == [1, 2, 3, 4, 5]
    assert [entry.run_id for entry in store.list_runs(Query(run_ids=("a",))).runs] == ["a"], "by name it is there"
    assert store.list_runs(Query()).runs == []
    assert any(fact.name == "index" and fact.verdict == "bad" for fact in store.facts())
    store.reclaim()
    (entry,) = store.list_runs(Query()).runs
    assert (entry.run_id, entry.head, entry.epoch) == ("a", 5, 1)
    assert all(fact.verdict != "bad" for fact in store.facts())


@pytest.mark.parametrize("content", [b"", b"junk", b"indelible\x00\x01" + b"\x00" * 40])
def test_an_index_object_that_cannot_be_used(content: bytes) -> None:
    """B19."""
    store, bucket = filled()
    bucket.put(Names.of("a").listed, content)
    assert store.claim("a", Owner.here("test"), 30.0) == 1
    assert any(fact.name == "index" and fact.verdict == "bad" for fact in store.facts())
    store.reclaim()
    assert [entry.head for entry in store.list_runs(Query()).runs] == [5]


def test_a_stale_index_object_shows_nothing_stale() -> None:
    """B19: it says where to begin looking, not where the log ends."""
    store, bucket = filled(1)
    old = bucket.get(Names.of("a").listed)
    assert old is not None
    store.append([Write("a", 1, Batch(at, at + 1, b"more")) for at in range(1, 9)])
    store.claim("a", Owner.here("test"), 0.0)
    bucket.put(Names.of("a").listed, old.data)
    again = ObjectStore.over(bucket, "memory-objects:")
    assert [(entry.head, entry.owner) for entry in again.list_runs(Query()).runs] == [(9, "")]


def test_a_message_to_a_run_that_was_deleted_and_tidied_away() -> None:
    """B69: the slots of its inbox are empty again, but the tombstone's; who has not looked is refused as well."""
    clock = SteppedClock()
    memory = MemoryStore()
    # A server's clock goes by what it wrote; this one is told, and what was written is an hour old to it.
    store = ObjectStore.over(memory, "memory-objects:", clock=clock, since=clock, background=False)
    clock.now = time.time()
    store.claim("a", Owner.here("test"), 30.0)
    message = Write(inbox_of("a"), 0, Batch(0, 1, b"yes"))
    assert store.append([message]) == [None]
    store.delete("a")
    clock.advance(3600)
    store.reclaim()
    bucket = Remote(memory, "memory")
    assert bucket.get(Names.of(inbox_of("a")).entry(1)) is None
    again = ObjectStore.over(memory, "memory-objects:", clock=clock, since=clock, background=False)
    assert isinstance(again.append([message])[0], StaleWriter)
    assert bucket.get(Names.of(inbox_of("a")).entry(1)) is None


def test_a_missing_entry_is_told_with_its_place() -> None:
    """B73 B83: what is whole is read, and the gap is no end."""
    store, bucket = filled()
    bucket.remove([Names.of("a").entry(4)])
    error = fails(JournalDamaged, lambda: list(store.read("a")))
    reading = store.read("a")
    assert [next(reading).last_seq, next(reading).last_seq] == [1, 2]
    assert error.ids["at"] == 2
    assert "0000000000000004" in str(error)


def test_an_entry_in_the_place_of_another() -> None:
    """B57 B58: entries name their place and the one before; a copy does not pass."""
    store, bucket = filled()
    copied = bucket.get(Names.of("a").entry(3))
    assert copied is not None
    bucket.put(Names.of("a").entry(4), copied.data)
    fails(JournalDamaged, lambda: list(store.read("a")))


@pytest.mark.parametrize("kind", ["flipped", "foreign"])
def test_a_damaged_entry(kind: str) -> None:
    store, bucket = filled()
    found = bucket.get(Names.of("a").entry(3))
    assert found is not None
    bucket.put(Names.of("a").entry(3), found.data[:-1] + b"\xee" if kind == "flipped" else b"hello, I am a file")
    error = fails(JournalDamaged, lambda: list(store.read("a")))
    assert "0000000000000003" in str(error)


def test_an_entry_of_a_newer_release() -> None:
    _store, bucket = filled()
    found = bucket.get(Names.of("a").entry(6))
    assert found is not None
    bucket.put(Names.of("a").entry(6), found.data[:10] + b"\x02" + found.data[11:])
    fails(FormatTooNew, lambda: list(ObjectStore.over(bucket, "x:").read("a")))
    mark = bucket.get("format")
    assert mark is not None
    bucket.put("format", mark.data[:10] + b"\x02" + mark.data[11:])
    fails(FormatTooNew, lambda: ObjectStore.over(bucket, "x:"))


def test_a_place_that_holds_something_else() -> None:
    memory = MemoryStore()
    bucket = Remote(memory, "memory")
    bucket.put("photos/cat.jpg", b"")
    error = fails(Misuse, lambda: ObjectStore.over(bucket, "x:"))
    assert "photos/cat.jpg" in str(error)
    assert [item.path for chunk in bucket.list("") for item in chunk] == ["photos/cat.jpg"]


def test_a_server_that_ignores_the_condition() -> None:
    """B50: there two writers would overwrite each other."""

    class Careless(Remote):
        def create(self, path: str, data: bytes) -> bool:
            self.put(path, data)
            return True

    error = fails(Misuse, lambda: ObjectStore.over(Careless(MemoryStore(), "careless"), "x:"))
    assert "If-None-Match" in str(error)
    store, bucket = filled()
    fails(Misuse, lambda: ObjectStore.over(Careless(bucket._store, "careless"), "x:"))
    assert len(list(store.read("a"))) == 5


def test_names_are_one_segment_and_differ() -> None:
    """B107 B123: for any id; also without regard to case, and within what file systems and servers allow."""
    ids = ["a", "A", "a.", "..", "a b", "con", "CON", "_63on", "é", "e\u0301", "%41", "_h", "x" * 120, "x" * 121,
           "X" * 512, "x" * 512, "../../etc/pwned", "a:b", "-", "_"]  # fmt: skip
    names = [segment(run_id) for run_id in ids]
    assert len({name.lower() for name in names}) == len(ids)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_") and len(name) <= 120 for name in names)
    assert "con" not in names


class TestFolder:
    def test_files_are_for_this_user_only(self, tmp_path: Path) -> None:
        """B109: also under a careless umask; and what is there already and open to others is told."""
        before = os.umask(0)
        try:
            store = ObjectStore(f"file://{tmp_path}/store")
            store.claim("a", Owner.here("test"), 30.0)
            store.append([Write("a", 1, Batch(0, 1, b"secret"))])
            store.put_snapshot("a", 1, b"secret")
        finally:
            os.umask(before)
        for folder, folders, files in os.walk(tmp_path / "store"):
            for name in (*folders, *files, "."):
                mode = stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode)
                assert mode == (0o600 if name in files else 0o700), name
        assert {fact.name: fact.verdict for fact in store.facts()}["permissions"] == "ok"
        (tmp_path / "store" / "format").chmod(0o644)
        assert {fact.name: fact.verdict for fact in store.facts()}["permissions"] == "bad"

    @pytest.mark.parametrize("durability", ["full", "os"])
    def test_what_is_acknowledged_is_synced(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str
    ) -> None:
        """The file before its name appears, and then the folder that holds the name."""
        store = ObjectStore(f"file://{tmp_path}/store", durability=durability)
        store.claim("a", Owner.here("test"), 30.0)
        log = tmp_path / "store" / Names.of("a").log
        synced: list[tuple[str, bool]] = []
        real = os.fsync

        def fsync(handle: int) -> None:
            what = os.readlink(f"/proc/self/fd/{handle}")
            synced.append((what, (log / f"{2:016d}").exists()))
            real(handle)

        monkeypatch.setattr(os, "fsync", fsync)
        assert store.append([Write("a", 1, Batch(0, 1, b"x"))]) == [None]
        assert store.durable == (durability == "full")
        if durability == "os":
            assert synced == []
        else:
            (file, shown), (folder, shown_then) = synced
            assert (os.path.dirname(file), shown) == (str(log), False)
            assert (folder, shown_then) == (str(log), True)

    def test_processes_racing_for_slots(self, tmp_path: Path) -> None:
        """B50: put-if-absent holds between processes."""

        def work(child: Child) -> None:
            folder = Folder(str(tmp_path), sync=False)
            child.hear()
            won = [number for number in range(300) if folder.create(f"race/{number:03d}", b"%d" % child.pid)]
            child.say(" ".join(map(str, won)))

        with Child(work) as one, Child(work) as two, Child(work) as three:
            children = (one, two, three)
            for child in children:
                child.say("go")
            won = [int(number) for child in children for number in child.hear().split()]
        assert sorted(won) == list(range(300))
        assert all(not name.startswith(".") for name in os.listdir(tmp_path / "race"))

    def test_a_killed_process_leaves_no_torn_object(self, tmp_path: Path) -> None:
        """SIGKILL in the middle of writing: every object is whole, and what was acknowledged is there."""
        url = f"file://{tmp_path}/store"

        def work(child: Child) -> None:
            enter("child")
            store = ObjectStore(url)
            epoch = store.claim("a", Owner.here("child"), 30.0)
            for at in range(10_000):
                assert store.append([Write("a", epoch, Batch(at, at + 1, os.urandom(3000)))]) == [None]
                child.say(at + 1)

        with Child(work) as child:
            for _ in range(40):
                acknowledged = int(child.hear())
            child.kill()
            told = [int(line) for line in iter(child.hear, "") if line.isdigit()]
        store = ObjectStore(url)
        head = len(list(store.read("a")))
        assert head >= max(told, default=acknowledged)
        assert store.claim("a", Owner.here("test"), 30.0) == 2, "its process is gone, so nobody waits"
        assert store.append([Write("a", 2, Batch(head, head + 1, b"on"))]) == [None]

    def test_what_is_no_folder(self, tmp_path: Path) -> None:
        """B110: and a place that cannot be written, before a run id is handed out."""
        (tmp_path / "plain").write_text("x")
        for name in ("plain", "agent.db", "agent.sqlite3"):
            error = fails(Misuse, lambda name=name: open_store(f"file://{tmp_path}/{name}", clock=float))  # type: ignore[misc]
            assert error.hint == f"sqlite:///{tmp_path}/{name}"
        for url in ("file:", "file:///", "file://host/x", f"file://{tmp_path}/x?sync=no"):
            fails(Misuse, lambda url=url: ObjectStore(url))  # type: ignore[misc]
        fails(StoreUnavailable, lambda: ObjectStore(f"file://{tmp_path}/none", readonly=True))
        fails(StoreUnavailable, lambda: ObjectStore(f"file://{tmp_path}/plain/below"))
        fails(StoreUnavailable, lambda: ObjectStore("file:///proc/nothing"))

    def test_read_only(self, tmp_path: Path) -> None:
        """B110: a reader leaves no trace."""
        store = ObjectStore(f"file://{tmp_path}/store")
        store.claim("a", Owner.here("test"), 30.0)
        store.append([Write("a", 1, Batch(0, 1, b"x"))])
        before = sorted((str(path), path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
        reader = ObjectStore(store.url, readonly=True)
        assert [entry.live for entry in reader.list_runs(Query()).runs] == [True]
        assert len(list(reader.read("a"))) == 1
        assert all(fact.verdict == "ok" for fact in reader.facts())
        for act in (lambda: reader.claim("a", "o", 1.0), lambda: reader.delete("a"), lambda: reader.append([])):
            fails(Misuse, act)
        assert sorted((str(path), path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


class TestServer:
    @pytest.fixture(autouse=True)
    def _server(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = seaweed.server()
        self.set = monkeypatch.setenv
        self.url, environment = self.server.fresh()
        for name, value in environment.items():
            self.set(name, value)

    def test_time_is_the_servers(self) -> None:
        """B62: a lease of another machine's owner is judged by when the server says it was written."""
        store = ObjectStore(self.url)
        assert store.claim("a", "elsewhere", 1000.0) == 1
        error = fails(RunBusy, lambda: store.claim("a", Owner.here("test"), 30.0))
        left = error.ids["expires_in_s"]
        assert isinstance(left, float)
        assert 990 < left <= 1002
        assert store.list_runs(Query()).runs[0].live
        assert store.claim("b", "elsewhere", 0.001) == 1
        while True:
            try:
                assert store.claim("b", Owner.here("test"), 30.0) == 2
                break
            except RunBusy as busy:
                left = busy.ids["expires_in_s"]
            assert isinstance(left, float)
            assert 0 < left <= 1.002, "to the second, in favour of the holder"

    def test_refusals_name_the_place_and_no_secret(self) -> None:
        ObjectStore(self.url).close()
        self.set("AWS_SECRET_ACCESS_KEY", "wrong-and-secret")
        wrong = fails(Misuse, lambda: ObjectStore(self.url))
        for name, value in self.server.readers_environment.items():
            self.set(name, value)
        reading = fails(Misuse, lambda: ObjectStore(self.url))
        assert "AccessDenied" in str(reading)
        assert ObjectStore(self.url, readonly=True).list_runs(Query()).runs == []
        missing = fails(Misuse, lambda: ObjectStore(self.server.url("x", bucket="missing")))
        assert "no such bucket" in str(missing)
        gone = fails(StoreUnavailable, lambda: ObjectStore("s3://b/x?endpoint=http://127.0.0.1:1&region=us-east-1"))
        assert "connection refused" in str(gone)
        for error in (wrong, reading, missing, gone):
            assert "127.0.0.1" in str(error)
            assert "secret" not in str(error).replace("AWS_SECRET", "").lower()

    def test_urls_that_make_no_sense(self) -> None:
        for url in ("s3://", "s3://key:word@bucket/x", "s3://b/x?colour=red", "s3://b/x?endpoint=nowhere"):
            error = fails(Misuse, lambda url=url: open_store(url, clock=float))  # type: ignore[misc]
            assert "word" not in str(error)

    def test_a_fork_is_told(self) -> None:
        """B105: the library's threads stay behind; instead of waiting for ever, the child is told."""
        store = ObjectStore(self.url)
        store.claim("a", Owner.here("test"), 30.0)

        def work(child: Child) -> None:
            for act in (lambda: store.append([Write("a", 1, Batch(0, 1, b"x"))]), lambda: ObjectStore(self.url)):
                try:
                    act()
                except Misuse as error:
                    child.say("spawn" in str(error))

        with Child(work) as child:
            assert (child.hear(), child.hear()) == ("True", "True")
        assert store.append([Write("a", 1, Batch(0, 1, b"x"))]) == [None]

    def test_many_in_one_call(self) -> None:
        """B54: of 64 writes of different runs each is answered by itself."""
        store = ObjectStore(self.url)
        names = [f"run-{number}" for number in range(64)]
        for name in names:
            store.claim(name, Owner.here("test"), 30.0)
        answers = store.append([Write(name, 1, Batch(int(name[4:]) % 2, 2, b"x")) for name in names])
        assert [answer is None for answer in answers] == [number % 2 == 0 for number in range(64)]
        assert all(isinstance(answer, StaleWriter) for answer in answers[1::2])
