"""Group commit, and what becomes of writes whose fate is unknown."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NoReturn

import pytest

from indelible.core import events as ev
from indelible.core.codec import pack
from indelible.core.journal import Batch, Journal, seed
from indelible.errors import IndelibleError, NotStorable, StaleWriter, StoreUnavailable
from indelible.stores.base import Write
from indelible.stores.memory import MemoryStore
from indelible.stores.patience import REMOTE_S, Patient
from indelible.stores.writer import Writer, _Waiting


class Faulty(MemoryStore):
    """A store that fails as it is told: before or after the write was applied."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.plan: list[str] = []
        self.groups: list[int] = []
        self.hold: threading.Event | None = None
        self.held = threading.Event()

    def append(self, writes: Sequence[Write]) -> list[IndelibleError | None]:
        self.groups.append(len(writes))
        if self.hold is not None:
            self.held.set()
            self.hold.wait()
        step = self.plan.pop(0) if self.plan else "fine"
        if step == "interrupt":
            raise KeyboardInterrupt
        if step == "before":
            raise StoreUnavailable("down")
        answers = super().append(writes)
        if step == "after":
            raise StoreUnavailable("reply lost")
        return answers


def writes(store: MemoryStore, run_id: str, count: int) -> list[Write]:
    epoch = store.claim(run_id, f"owner of {run_id}", 30.0)
    journal, made = Journal(seed(run_id)), []
    for n in range(count):
        journal.append(ev.ValueRecorded(float(n), 1, f"now:{n}", pack(n)))
        made.append(Write(run_id, epoch, journal.seal().batch))
        journal.landed()
    return made


def no_pause(seconds: float) -> None:
    raise AssertionError(f"the writer waited {seconds} s")


@pytest.fixture
def store() -> Faulty:
    return Faulty()


def stored(store: MemoryStore, run_id: str) -> list[Batch]:
    return list(store.read(run_id))


def test_a_lone_caller_commits_in_its_own_thread(store: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[str] = set()
    append = store.append

    def noting(group: Sequence[Write]) -> list[IndelibleError | None]:
        threads.add(threading.current_thread().name)
        return append(group)

    monkeypatch.setattr(store, "append", noting)
    writer = Writer(store, no_pause)
    for write in writes(store, "r", 3):
        writer.write(lambda write=write: write)  # type: ignore[misc]
    assert store.groups == [1, 1, 1]
    assert threads == {threading.current_thread().name}


@pytest.mark.parametrize("step", ["before", "after"])
def test_a_write_whose_reply_was_lost_is_read_back_before_it_is_tried_again(store: Faulty, step: str) -> None:
    """B53, B55: applied-then-failed is found out, a real failure is retried, neither is stored twice."""
    pauses: list[float] = []
    writer = Writer(store, pauses.append)
    store.plan = [step]
    only = writes(store, "r", 1)
    writer.write(lambda: only[0])
    assert stored(store, "r") == [only[0].batch]
    assert len(pauses) == (1 if step == "before" else 0)
    assert len(store.groups) == (2 if step == "before" else 1)


def test_a_store_that_stays_away_is_given_up_on_and_the_write_can_be_offered_again(store: Faulty) -> None:
    """B49: bounded retry, then a typed error; what was to be written is still there."""
    pauses: list[float] = []
    writer = Writer(store, pauses.append)
    only = writes(store, "r", 1)
    store.plan = ["before"] * 4
    with pytest.raises(StoreUnavailable):
        writer.write(lambda: only[0])
    assert stored(store, "r") == []
    assert len(pauses) == 3
    writer.write(lambda: only[0])
    assert stored(store, "r") == [only[0].batch]


def test_a_group_waits_no_longer_than_one_of_it(store: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    """B49: the patience is for all of them together, reading back included; else a hundred runs waited for hours."""

    def away(*_: object) -> NoReturn:
        raise StoreUnavailable("down", hint="start it")

    slept: list[float] = []
    patient = Patient(store, slept.append)
    writer = Writer(patient, slept.append)
    made = [writes(store, f"r{n}", 1)[0] for n in range(3)]
    monkeypatch.setattr(store, "read", away)
    store.plan = ["before"] * 100
    for one in made:
        writer._queue.append(_Waiting(lambda one=one: one))  # type: ignore[misc]
    waiting = list(writer._queue)
    writer._lead(None)
    answers = [one.error for one in waiting]
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
    assert store.groups == [3]
    assert sum(slept) == pytest.approx(REMOTE_S)


def test_a_stale_writer_is_told_and_others_in_the_group_are_not_held_back(store: Faulty) -> None:
    writer = Writer(store, no_pause)
    mine, other = writes(store, "mine", 2), writes(store, "other", 1)
    stale = mine[1]._replace(epoch=99)
    writer.write(lambda: mine[0])
    outcomes: dict[str, Exception | None] = {}
    done = threading.Barrier(3)

    def submit(name: str, write: Write) -> None:
        def landed(error: Exception | None) -> None:
            outcomes[name] = error
            threading.Thread(target=done.wait).start()

        writer.submit(lambda: write, landed)

    submit("stale", stale)
    submit("other", other[0])
    done.wait(10)
    writer.close()
    assert isinstance(outcomes["stale"], StaleWriter)
    assert outcomes["other"] is None
    assert stored(store, "other") == [other[0].batch]
    assert stored(store, "mine") == [mine[0].batch]


def test_everything_that_waits_goes_into_one_transaction(store: Faulty) -> None:
    count = 12
    made = [writes(store, f"r{n}", 1)[0] for n in range(count)]
    store.hold, writer = threading.Event(), Writer(store, no_pause)
    first = threading.Thread(target=writer.write, args=(lambda: made[0],))
    first.start()
    store.held.wait(10)
    landed = threading.Semaphore(0)
    for write in made[1:]:
        writer.submit(lambda write=write: write, lambda error: landed.release() if error is None else None)  # type: ignore[misc]
    store.hold.set()
    for _ in made[1:]:
        assert landed.acquire(timeout=10)
    first.join(10)
    writer.close()
    assert sum(store.groups) == count
    assert len(store.groups) <= 3
    assert all(len(stored(store, f"r{n}")) == 1 for n in range(count))


def test_an_interrupted_leader_leaves_the_work_of_others_to_them(
    store: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B101: Ctrl-C in the thread that commits for all loses nobody's write."""
    mine, other = writes(store, "mine", 1)[0], writes(store, "other", 1)[0]
    writer = Writer(store, no_pause)
    monkeypatch.setattr(writer, "_start", lambda: None)  # the background thread is slow
    store.plan = ["interrupt"]
    told: list[tuple[Exception | None, str]] = []
    writer.submit(lambda: other, lambda error: told.append((error, threading.current_thread().name)))
    with pytest.raises(KeyboardInterrupt):
        writer.write(lambda: mine)
    writer.write(lambda: mine)
    assert stored(store, "other") == [other.batch]
    assert stored(store, "mine") == [mine.batch]
    assert told == []  # Ctrl-C in it would leave an event loop waiting, so it is not for the main thread
    monkeypatch.undo()
    writer._start()
    writer.close()
    assert told == [(None, "indelible-writer")]


def test_who_came_too_late_for_an_interrupted_group_is_not_left_waiting(store: Faulty) -> None:
    """B101: the interrupted write is still the first in the queue, and nobody waits for its bell."""
    mine, late = writes(store, "mine", 1)[0], writes(store, "late", 1)[0]
    writer = Writer(store, no_pause)
    store.plan, store.hold = ["interrupt"], threading.Event()

    def interrupted() -> None:
        with pytest.raises(KeyboardInterrupt):
            writer.write(lambda: mine)

    leading = threading.Thread(target=interrupted)
    leading.start()
    assert store.held.wait(10)
    waiting = threading.Thread(target=writer.write, args=(lambda: late,), daemon=True)
    waiting.start()
    while len(writer._queue) < 2 or writer._queue[1].bell is None:
        waiting.join(0.001)
    store.hold.set()
    leading.join(10)
    waiting.join(10)
    assert not waiting.is_alive()
    assert stored(store, "late") == [late.batch]


def test_closing_writes_what_waits(store: Faulty) -> None:
    """B95: what was handed over before the end is there after it."""
    writer = Writer(store, no_pause)
    landed: list[Exception | None] = []
    for write in writes(store, "r", 5):
        writer.submit(lambda write=write: write, landed.append)  # type: ignore[misc]
    writer.close()
    assert landed == [None] * 5
    assert len(stored(store, "r")) == 5


def test_a_batch_that_cannot_be_made_is_told_to_its_own_run_alone(store: Faulty) -> None:
    """A body above the limit is found when the writer seals it; the others in the group are written."""
    writer = Writer(store, no_pause)
    told: dict[str, Exception | None] = {}
    refused = NotStorable("too large")

    def fail() -> Write:
        raise refused

    good = writes(store, "good", 1)[0]
    writer.submit(fail, lambda error: told.update(bad=error))
    writer.submit(lambda: good, lambda error: told.update(good=error))
    writer.close()
    assert told == {"bad": refused, "good": None}
    assert stored(store, "good") == [good.batch]


def test_many_threads_that_write_at_once_are_all_served_and_share_transactions(store: Faulty) -> None:
    """Class fork & threads: nobody is left waiting, whoever leads."""
    threads, each = 24, 40
    made = {f"r{n}": writes(store, f"r{n}", each) for n in range(threads)}
    store.groups.clear()
    writer = Writer(store, lambda _: None)

    def one(run_id: str) -> None:
        for write in made[run_id]:
            writer.write(lambda write=write: write)  # type: ignore[misc]

    running = [threading.Thread(target=one, args=(run_id,)) for run_id in made]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60)
    assert not any(thread.is_alive() for thread in running)
    assert sum(store.groups) == threads * each
    assert all(stored(store, run_id) == [write.batch for write in made[run_id]] for run_id in made)
