"""Object storage when any one request fails, or the process ends between any two."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from obstore.store import MemoryStore

from indelible.errors import IndelibleError, StaleWriter, StoreUnavailable, UnknownRun
from indelible.stores.base import Batch, Label, Query, Write, inbox_of
from indelible.stores.objects import ObjectStore
from indelible.stores.objects_bucket import Remote
from indelible.stores.owner import Owner, enter, leave
from indelible.stores.patience import Patient
from indelible.stores.writer import Writer
from indelible.testing.conformance_kit import SteppedClock
from tests.crash.object_faults import Crash, Failing, Fault

LATER = 4_000_000_000.0
"""A store's time at which everything that real time has written is long past the age at which slots may be emptied."""
BATCHES = 14
TRIMMED = 9
LABEL = Label("research", "active", None, b"about")


@pytest.fixture(autouse=True)
def _small_packs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("indelible.stores.objects_tidying.MERGE", 4)
    enter("one")
    enter("two")
    yield
    leave("one")
    leave("two")


class Told:
    """What the work was told is done."""

    def __init__(self) -> None:
        self.claimed = False
        self.acknowledged = 0
        self.tried = 0
        self.begins = 0
        self.message = False
        self.released = False
        self.deleting = False
        self.deleted = False


def pause(_seconds: float) -> None:
    """Time is not waited for here."""


def opened(bucket: Failing, clock: Callable[[], float]) -> ObjectStore:
    return ObjectStore.over(bucket, "faulty:", clock=clock, background=False)


def work(store: Patient, told: Told) -> None:
    """Claim, write, merge, snapshot, trim, release, claim anew, delete another run."""
    writer = Writer(store, pause)
    epoch = store.claim("a", Owner.here("one"), 30.0)
    told.claimed = True
    for at in range(BATCHES):
        if at == 11:
            try:
                store.claim("a", Owner.here("one"), 0.0)
            except StoreUnavailable:  # it is not repeated by itself
                store.claim("a", Owner.here("one"), 0.0)
            told.released = True
            epoch = store.claim("a", Owner.here("two"), 30.0)
        told.tried = at + 1
        write = Write("a", epoch, Batch(at, at + 1, b"%d" % at), LABEL if at % 3 == 0 else None)
        writer.write(lambda write=write: write)  # type: ignore[misc]
        told.acknowledged = at + 1
        if at == 3:
            writer.write(lambda: Write(inbox_of("a"), 0, Batch(0, 1, b"hello")))
            told.message = True
        if at == TRIMMED:
            store.put_snapshot("a", TRIMMED + 1, b"snapshot", begins=True)
            told.begins = TRIMMED + 1
    told.deleting = True
    store.delete("a")
    told.deleted = True


def judge(memory: MemoryStore, told: Told, *, crashed: bool) -> None:
    """Open it again and compare with what was told."""
    with_time = SteppedClock(LATER + 1000)
    store = ObjectStore.over(memory, "faulty:", clock=with_time, background=False)
    entries = {entry.run_id: entry for entry in store.list_runs(Query()).runs}
    batches = list(store.read("a"))
    if told.deleted or (told.deleting and not entries):
        assert not entries
        assert batches == []
        assert store.get_snapshot("a", 100) is None
        with pytest.raises(UnknownRun):
            store.claim("a", Owner.here("two"), 30.0)
        (late,) = store.append([Write("a", 2, Batch(BATCHES, BATCHES + 1, b"late"))])
        assert isinstance(late, StaleWriter), "B69"
    elif told.claimed:
        assert list(entries) == ["a"], "B19: nothing is missing from a listing"
        assert told.acknowledged <= entries["a"].head <= told.tried
        first = batches[0].after_seq if batches else entries["a"].head
        assert first in (told.begins, TRIMMED + 1 if told.tried > TRIMMED else 0)
        assert batches == [Batch(at, at + 1, b"%d" % at) for at in range(first, entries["a"].head)]
        assert entries["a"].stored_bytes == sum(len(batch.data) for batch in batches)
        if told.begins:
            assert store.get_snapshot("a", 100) == (TRIMMED + 1, b"snapshot")
        if told.message:
            assert [batch.data for batch in store.read(inbox_of("a"))] == [b"hello"]
        with_time.advance(100)
        epoch = store.claim("a", "somebody else", 30.0)
        head = entries["a"].head
        assert store.append([Write("a", epoch, Batch(head, head + 1, b"on"))]) == [None]
        assert store.list_runs(Query()).runs[0].head == head + 1
    with_time.advance(4000)
    store.reclaim()
    with_time.advance(4000)
    store.reclaim()
    assert [fact for fact in store.facts() if fact.verdict != "ok"] == [], "B70: nothing is left lying about"
    if not crashed:
        assert told.deleted


@pytest.mark.parametrize("fault", ["crash", "lost", "unheard", "echo"])
def test_every_request_fails_once(fault: Fault) -> None:
    """B19 B69 B70: nothing acknowledged is lost, nothing comes back; for request 1, 2, 3, ... until none is hit."""
    at = 0
    while True:
        at += 1
        memory, told = MemoryStore(), Told()
        failing = Failing(Remote(memory, "memory"))
        store = opened(failing, SteppedClock(LATER))
        failing.fault, failing.at, failing.count = fault, at, 0
        try:
            work(Patient(store, pause), told)
        except Crash:
            pass
        except IndelibleError:
            # The one thing that is not repeated is a deletion: its author is told, and may ask again.
            assert told.deleting
            with_again = opened(Failing(Remote(memory, "memory")), SteppedClock(LATER))
            try:
                with_again.delete("a")
            except UnknownRun:
                pass
            told.deleted = True
        judge(memory, told, crashed=fault == "crash" and failing.touched)
        if not failing.touched:
            break
    assert at > 60, "the work makes more requests than that"


def test_a_release_that_fails_is_one_that_runs_out() -> None:
    """A lost release is not repeated by `Patient`; then the lease ends by itself."""
    memory = MemoryStore()
    failing = Failing(Remote(memory, "memory"))
    clock = SteppedClock(LATER)
    store = opened(failing, clock)
    assert store.claim("a", Owner.here("one"), 30.0) == 1
    failing.fault, failing.at, failing.count = "lost", 3, 0
    with pytest.raises(IndelibleError):
        store.claim("a", Owner.here("one"), 0.0)
    assert store.append([Write("a", 1, Batch(0, 1, b"x"))]) == [None]
    other = ObjectStore.over(memory, "faulty:", clock=clock)
    assert (other.list_runs(Query()).runs[0].head, other.list_runs(Query()).runs[0].owner) == (1, Owner.here("one"))


class Stopwatch:
    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


@pytest.mark.parametrize("removed_by", ["merging", "trimming", "deleting"])
def test_a_writer_back_from_the_dead(removed_by: str) -> None:
    """B50 B69 B83: its slot is empty again, so its put succeeds; it looks, and does not take the entry for durable."""
    memory, since, clock = MemoryStore(), Stopwatch(), SteppedClock(LATER)
    bucket = Failing(Remote(memory, "memory"))
    zombie = ObjectStore.over(bucket, "old:", clock=clock, since=since, background=False)
    assert zombie.claim("a", Owner.here("one"), 30.0) == 1
    assert zombie.append([Write("a", 1, Batch(0, 1, b"0"))]) == [None]
    clock.advance(31)
    heir = ObjectStore.over(memory, "new:", clock=clock, background=False)
    assert heir.claim("a", Owner.here("two"), 30.0) == 2
    for at in range(1, 4 if removed_by != "merging" else 12):
        assert heir.append([Write("a", 2, Batch(at, at + 1, b"%d" % at))]) == [None]
    if removed_by == "trimming":
        heir.put_snapshot("a", 4, b"s", begins=True)
    elif removed_by == "deleting":
        heir.delete("a")
    paths = {item.path for chunk in Remote(memory, "memory").list("runs/") for item in chunk}
    assert "runs/a/log/0000000000000003" not in paths, "the slot behind what the old writer knows is empty again"
    before = list(heir.read("a"))
    since.at = 1300.0
    (answer,) = zombie.append([Write("a", 1, Batch(1, 2, b"late"))])
    assert isinstance(answer, StaleWriter)
    paths = {item.path for chunk in Remote(memory, "memory").list("runs/") for item in chunk}
    assert "runs/a/log/0000000000000003" in paths, "the server took it; so it is the looking that helps"
    assert list(heir.read("a")) == before
    assert list(ObjectStore.over(memory, "third:", clock=clock).read("a")) == before
    clock.advance(4000)
    heir.reclaim()
    assert list(heir.read("a")) == before


def test_a_slot_is_not_emptied_early() -> None:
    """B69: a deleted run's young slots keep a placeholder, so that a late put fails."""
    memory = MemoryStore()
    store = ObjectStore.over(memory, "x:", background=False)
    store.claim("a", Owner.here("one"), 30.0)
    store.append([Write("a", 1, Batch(at, at + 1, b"secret" * 20)) for at in range(9)])
    remote = Remote(memory, "memory")
    assert sum(1 for chunk in remote.list("runs/a/log/") for _ in chunk) == 10, "merged, and all still there"
    assert store.reclaim() == 0
    store.delete("a")
    items = [item for chunk in remote.list("runs/") for item in chunk]
    assert [item.size for item in items[:-1]] == [0] * 10, "nothing is left in them"
    assert not remote.create("runs/a/log/0000000000000004", b"late")
    later = ObjectStore.over(memory, "x:", clock=lambda: LATER)
    later.reclaim()
    assert [item.path for chunk in remote.list("runs/") for item in chunk] == [items[-1].path]


def test_a_long_journal_is_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """B63 B73: few requests read it from anywhere, and packs stand by themselves when what they came from is gone."""
    monkeypatch.setattr("indelible.stores.objects_tidying.MERGE", 256)
    memory, clock = MemoryStore(), SteppedClock(LATER)
    store = ObjectStore.over(memory, "x:", clock=clock, background=False)
    store.claim("a", Owner.here("one"), 1e9)
    store.append([Write("a", 1, Batch(at, at + 1, b"%d" % at)) for at in range(3000)])
    remote = Remote(memory, "memory")
    assert sum(1 for chunk in remote.list("runs/a/packs/") for _ in chunk) == 11
    assert sum(1 for chunk in remote.list("runs/a/log/") for _ in chunk) <= 257
    counting = Failing(remote)
    reader = ObjectStore.over(counting, "x:", clock=clock)
    for after in (0, 5, 1499, 2700, 2900, 2999, 3000):
        counting.count = 0
        assert [batch.last_seq for batch in reader.read("a", after)] == list(range(after + 1, 3001))
        assert counting.count < 300
    counting.count = 0
    assert next(reader.read("a", 2998)).after_seq == 2998
    assert counting.count < 20, "what lies before is not read"


def test_merging_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """B49: appends go on meanwhile, and closing waits for it."""
    memory, clock = MemoryStore(), SteppedClock(LATER)
    store = ObjectStore.over(memory, "x:", clock=clock)
    store.claim("a", Owner.here("one"), 1e9)
    for at in range(200):
        assert store.append([Write("a", 1, Batch(at, at + 1, b"%d" % at))]) == [None]
    store.close()
    again = ObjectStore.over(memory, "x:", clock=clock)
    assert [batch.data for batch in again.read("a")] == [b"%d" % at for at in range(200)]
    assert [(entry.head, entry.stored_bytes) for entry in again.list_runs(Query()).runs] == [(200, 490)]
    assert sum(1 for chunk in Remote(memory, "memory").list("runs/a/packs/") for _ in chunk) >= 1
