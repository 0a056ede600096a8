"""One run's way to its store: who is told what, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from indelible.core import events as ev
from indelible.core.cycle import AgentSpec, Live
from indelible.core.journal import Batch, Journal, seed
from indelible.core.record import Record
from indelible.core.state import Shape, Workspace
from indelible.errors import LeaseLost, StaleWriter, StoreUnavailable
from indelible.stores.base import Label, Write
from indelible.stores.feed import Feed
from indelible.stores.writer import Writer
from tests.unit.simple_agents import Memory


class Slow:
    """Stands for the writer: keeps what it was given until the test says what becomes of it."""

    def __init__(self) -> None:
        self.plan: list[BaseException | None] = []
        self.written: list[Batch] = []
        self.waiting: list[tuple[Callable[[], Write], Callable[[Exception | None], object]]] = []

    def write(self, make: Callable[[], Write]) -> None:
        made = make()
        error = self.plan.pop(0) if self.plan else None
        if error is not None:
            raise error
        self.written.append(made.batch)

    def submit(self, make: Callable[[], Write], landed: Callable[[Exception | None], object]) -> None:
        self.waiting.append((make, landed))


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def live() -> Live:
    shape = Shape.of(Memory)
    agent, workspace = AgentSpec("tester", shape, 1), Workspace(shape, shape.initial_doc())
    return Live(agent, Record("r", chain=seed("r")), Journal(seed("r")), workspace, 1, lambda name: None)


@pytest.fixture
def feed(slow: Slow, live: Live) -> Feed:
    return Feed(cast(Writer, slow), live, lambda record: Label("tester", record.status, None, b""))


def note(number: int) -> ev.Event:
    return ev.ValueRecorded(float(number), 1, f"now:{number}", b"\x00")


def spans(batches: list[Batch]) -> list[tuple[int, int]]:
    return [(batch.after_seq, batch.last_seq) for batch in batches]


def test_who_waits_for_a_later_event_is_not_told_of_an_earlier_batch(feed: Feed, slow: Slow) -> None:
    """A flush that returns too early is a result, or an intent, that a power cut takes back."""
    feed.append(note(1))
    first = feed.flush_soon()
    make, landed = slow.waiting[0]
    make()
    feed.append(note(2))
    second = feed.flush_soon()
    assert len(slow.waiting) == 1, "one batch of a run is under way at a time"
    landed(None)
    assert first.done()
    assert not second.done()
    make, landed = slow.waiting[1]
    assert spans([make().batch]) == [(1, 2)]
    landed(None)
    assert second.done()


def test_what_a_write_takes_is_measured_whoever_waits_for_it(feed: Feed, slow: Slow, live: Live) -> None:
    """The economic rule has this for the price of a flush, in a `def` and in an `async def`."""
    for soon in (False, True):
        live.commit_cost_s = 1e6
        feed.append(note(soon))
        if soon:
            feed.flush_soon()
            make, landed = slow.waiting[-1]
            make()
            landed(None)
        else:
            feed.flush()
        assert live.commit_cost_s == pytest.approx(0.9e6, rel=1e-3)


def test_a_batch_that_had_failed_goes_first_and_what_came_after_it_goes_too(feed: Feed, slow: Slow) -> None:
    """B53: when `flush` returns, everything appended before it is in the store."""
    slow.plan = [StoreUnavailable("down")]
    feed.append(note(1))
    with pytest.raises(StoreUnavailable):
        feed.flush()
    feed.append(note(2))
    feed.flush()
    assert spans(slow.written) == [(0, 1), (1, 2)]


def test_a_writer_that_was_refused_writes_no_more(feed: Feed, slow: Slow, live: Live) -> None:
    """B50: what the store says counts at once, not with the next renewal."""
    slow.plan = [StaleWriter("run 'r' was taken over")]
    feed.append(note(1))
    with pytest.raises(LeaseLost, match="taken over"):
        feed.flush()
    assert live.lost
    with pytest.raises(LeaseLost):
        feed.flush()
    assert isinstance(feed.flush_soon().exception(), LeaseLost)
    assert (slow.written, slow.waiting) == ([], [])


def test_a_run_that_was_given_up_while_its_batch_waited_is_not_written(feed: Feed, slow: Slow, live: Live) -> None:
    """B101: another thread that leads the next group must not write what an interrupted one has left."""
    feed.append(note(1))
    feed.flush_soon()
    live.lost = "run r was interrupted in the middle of a write"
    with pytest.raises(LeaseLost, match="interrupted"):
        slow.waiting[0][0]()


@pytest.mark.parametrize("moment", ["making the batch", "writing it"])
def test_a_run_that_was_interrupted_in_a_write_is_given_up(moment: str, slow: Slow, live: Live) -> None:
    """B101: after Ctrl-C nobody knows what is in memory, so none of it is written any more."""
    interrupts = [KeyboardInterrupt()]

    def label(record: Record) -> Label:
        if moment == "making the batch" and interrupts:
            raise interrupts.pop()
        return Label("tester", record.status, None, b"")

    feed = Feed(cast(Writer, slow), live, label)
    slow.plan = [*interrupts] if moment == "writing it" else []
    feed.append(note(1))
    with pytest.raises(KeyboardInterrupt):
        feed.flush()
    with pytest.raises(LeaseLost, match="interrupted"):
        feed.flush_soon().result(5)  # with a limit: if the run were not given up, nobody would ever answer
    with pytest.raises(LeaseLost, match="interrupted"):
        feed.flush()
    assert slow.written == []
