"""Recovery: snapshots, torn tails, damage, and what a second process may do."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import pytest

import indelible as ind
from indelible.core import snapshots
from indelible.core.record import Record
from indelible.errors import JournalDamaged, LeaseLost, RunBusy
from indelible.runtime.runstore import RunStore
from indelible.stores.base import Batch
from indelible.stores.memory import MemoryStore
from tests.unit.simple_agents import Memory, agent_of


@pytest.fixture
def small_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "FIRST_AFTER_BYTES", 600)


def noise(number: int) -> str:
    """Text that cannot be compressed much, as a real result cannot."""
    return blake2b(b"%d" % number, digest_size=25).hexdigest()


def work(store: RunStore, cycles: int) -> None:
    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        run.state.tasks.append("again")
        run.state.notes.append(f"note {run.state.count} " + noise(run.state.count))
        run.state.count += 1
        if run.state.count % cycles == 0:
            run.ask("go on?")

    agent_of(body).run("o", store=store, run_id="r")


def plain(record: Record) -> tuple[object, ...]:
    return record.doc, record.cycle, record.seq, record.status, record.keyed, record.usage


class Tampered(MemoryStore):
    """A copy of a store whose batches or snapshots were changed on disk."""

    def __init__(self, original: MemoryStore) -> None:
        super().__init__(lambda: 0.0)
        self.original = original
        self.batches: dict[int, bytes] = {}
        self.snapshots: dict[int, bytes] = {}
        self.read_from: list[int] = []

    def read(self, run_id: str, after_seq: int = 0) -> Iterator[Batch]:
        if run_id == "r":
            self.read_from.append(after_seq)
        for batch in self.original.read(run_id, after_seq):
            yield batch._replace(data=self.batches.get(batch.last_seq, batch.data))

    def get_snapshot(self, run_id: str, at_most_seq: int) -> tuple[int, bytes] | None:
        found = self.original.get_snapshot(run_id, at_most_seq)
        return None if found is None else (found[0], self.snapshots.get(found[0], found[1]))


def tampered(store: RunStore) -> tuple[Tampered, RunStore]:
    assert isinstance(store.store, MemoryStore)
    copy = Tampered(store.store)
    return copy, RunStore(copy, store.clock)


@pytest.mark.usefixtures("small_snapshots")
def test_a_snapshot_shortens_recovery_and_changes_nothing(store: RunStore) -> None:
    """B66, B73: recovery begins at the snapshot, which needs nothing before it."""
    work(store, 60)
    copy, reader = tampered(store)
    found = reader.recover("r")
    assert found.snapshot_size > 0
    assert copy.read_from[-1] > 0
    newest = store.store.get_snapshot("r", 10**9)
    assert newest is not None
    for batch in store.store.read("r"):
        if batch.last_seq <= newest[0]:
            copy.batches[batch.last_seq] = b"gone"
    assert plain(reader.recover("r").record) == plain(found.record)


@pytest.mark.usefixtures("small_snapshots")
def test_a_bad_snapshot_is_passed_over_for_an_older_one_and_said(store: RunStore) -> None:
    work(store, 60)
    expected = plain(store.recover("r").record)
    newest = store.store.get_snapshot("r", 10**9)
    assert newest is not None
    older = store.store.get_snapshot("r", newest[0] - 1)
    assert older is not None
    other = snapshots.decode(newest[1], "r", newest[0])
    other.doc["count"] = 17
    swapped = newest[1][:19] + snapshots.encode(other)[19:]  # whole and readable, but not what was written
    for damage in (newest[1][:-1], b"", newest[1][:25] + b"\xff" + newest[1][26:], older[1], swapped):
        copy, reader = tampered(store)
        copy.snapshots[newest[0]] = damage
        found = reader.recover("r")
        assert plain(found.record) == expected
        assert any(f"snapshot at event {newest[0]}" in notice for notice in found.notices)
    copy, reader = tampered(store)
    copy.snapshots = {newest[0]: b"bad", older[0]: b"bad"}
    assert plain(reader.recover("r").record) == expected


@pytest.mark.usefixtures("small_snapshots")
def test_snapshot_bytes_stay_linear_in_the_journal(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """B63: full states written again and again would grow with the square of the run."""
    written: list[int] = []
    put = store.store.put_snapshot

    def counting(run_id: str, seq: int, data: bytes) -> None:
        written.append(len(data))
        put(run_id, seq, data)

    monkeypatch.setattr(store.store, "put_snapshot", counting)
    work(store, 400)
    journal = sum(len(batch.data) for batch in store.store.read("r"))
    assert len(written) > 3
    assert sum(written) <= (1 + 1 / snapshots.GROWTH) * journal


def test_a_torn_tail_is_cut_with_a_notice_and_kept_aside(store: RunStore) -> None:
    """B29, B89: reading deletes nothing; the run goes on after the last good batch; no seq is used twice."""
    work(store, 3)
    batches = list(store.store.read("r"))
    copy, reader = tampered(store)
    copy.batches[batches[-1].last_seq] = batches[-1].data[:20]
    found = reader.recover("r")
    assert found.record.seq == batches[-2].last_seq
    assert found.cut_to == batches[-1].last_seq
    assert "cut off and kept aside" in found.notices[-1]


def test_damage_in_the_middle_stops_with_its_position(store: RunStore) -> None:
    """B89: never less than what is readable, never a silent stop."""
    work(store, 4)
    batches = list(store.store.read("r"))
    for victim in batches[:-1]:
        copy, reader = tampered(store)
        copy.batches[victim.last_seq] = victim.data[:-1] + bytes([victim.data[-1] ^ 1])
        with pytest.raises(JournalDamaged, match=f"events {victim.after_seq + 1} to {victim.last_seq}"):
            reader.recover("r")


def test_a_run_goes_on_after_a_cut_and_is_whole_again_for_every_reader() -> None:
    store = ind.open("memory:")
    memory = store.store
    assert isinstance(memory, MemoryStore)
    work(store, 3)
    before = store.recover("r").record
    tear_last_batch(memory)
    with store.run("r", agent_of(lambda run: None)) as run:
        assert run.state.count == 2
        with run.cycle():
            run.state.count = 77
    record = store.recover("r").record
    assert record.doc["count"][1] == 77
    assert record.seq > before.seq
    assert [seq for seq, _ in store.events("r")] == sorted({seq for seq, _ in store.events("r")})
    store.close()


def tear_last_batch(memory: MemoryStore) -> None:
    journal = memory._journals["r"]
    batch = journal.batches[-1]
    journal.batches[-1] = batch._replace(data=batch.data[:-3])


def test_a_former_owner_is_told_before_any_deed(store: RunStore) -> None:
    """B10, B50: the epoch in the intent's append fences off whoever lost the run."""
    sent: list[str] = []

    @ind.action(effect="irreversible")
    def send() -> None:
        sent.append("x")

    def body(run: ind.Run[Memory]) -> None:
        # Somebody else takes the run over in mid-cycle: as after a long pause of this process.
        memory = store.store
        assert isinstance(memory, MemoryStore)
        memory._journals["r"].lease_until = 0.0
        memory.claim("r", "the other", 30.0)
        send()

    with pytest.raises(LeaseLost):
        agent_of(body).run("o", store=store, run_id="r")
    assert sent == []
    with pytest.raises(RunBusy):
        agent_of(body).run("o", store=store, run_id="r")


def test_a_renewal_that_finds_the_run_taken_stops_the_next_action(store: RunStore) -> None:
    calls: list[int] = []

    @ind.action
    def complete() -> int:
        calls.append(1)
        return len(calls)

    def body(run: ind.Run[Memory]) -> None:
        complete()
        memory = store.store
        assert isinstance(memory, MemoryStore)
        memory._journals["r"].lease_until = 0.0
        memory.claim("r", "the other", 30.0)
        store._renewer.renew()
        complete()

    with pytest.raises(LeaseLost, match="no longer held"):
        agent_of(body).run("o", store=store, run_id="r")
    assert len(calls) == 1


def test_a_released_run_can_be_opened_at_once_and_a_failed_opening_releases(store: RunStore) -> None:
    work(store, 2)
    entry = next(iter(store.entries()))
    assert (entry.live, entry.owner) == (False, "")
    with pytest.raises(RuntimeError, match="mine"), store.run("r", agent_of(lambda run: None)):
        raise RuntimeError("mine")
    with store.run("r", agent_of(lambda run: None)) as run:
        assert run.state.count == 1
