"""The worker: what stale listings, failing stores and failing runs lead to, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import indelible as ind
from indelible.errors import RunBusy, StoreUnavailable
from indelible.runtime.agents import Agent, AsyncAgent
from indelible.runtime.verify import verify
from indelible.runtime.worker import LONGEST_PAUSE_S, Told, Worker
from indelible.stores.base import Query
from indelible.stores.owner import Owner
from tests.unit.simple_agents import Memory, agent_of, kinds
from tests.unit.worker_room import T0, Driven, Room, asking, finishes, finishing


@pytest.fixture
def room() -> Iterator[Room]:
    made = Room()
    with made.runs:
        yield made


def test_a_stale_listing_runs_nothing_twice(room: Room) -> None:
    """B50, B54: what another one has claimed, or brought to its end, since it was listed is skipped without a word."""
    done: list[str] = []

    def body(run: ind.Run[Memory]) -> None:
        done.append(run.run_id)
        run.finish()

    agent = agent_of(body, tasks=())
    room.accept(agent, "held", "over", "busy", "mine")
    with Driven(room, [agent]) as worker:
        worker._look(False)
        assert [found.run_id for found in worker._backlog] == ["held", "over", "busy", "mine"]
        room.store.claim("held", Owner("elsewhere", "b", "1", 7, "9", "n").text(), 5.0)
        assert agent.run(store=room.runs, run_id="over").is_finished
        epoch = room.store.list_runs(Query(run_ids=("over",))).runs[0].epoch

        def busy(method: str, run_id: str) -> bool:
            if (method, run_id) == ("claim", "busy"):
                room.store.fails = lambda method, run_id: False
                raise RunBusy("between the last look and the claim")
            return False

        room.store.fails = busy
        assert worker.run(until_idle=True)
    assert sorted(done) == ["busy", "held", "mine", "over"]
    assert worker.ended("over") == []
    assert worker.ended("busy") == ["claimed", "finished"]
    assert room.store.list_runs(Query(run_ids=("over",))).runs[0].epoch == epoch


@pytest.mark.parametrize("method", ["still", "claim", "read"])
def test_a_store_that_fails_at_the_third_of_ten_drops_none_and_keeps_none_waiting(room: Room, method: str) -> None:
    """B54: a restart of the database in the middle of the list."""
    agent = finishing()
    room.accept(agent, *(f"r{n}" for n in range(10)))
    left = [4]

    def fails(asked: str, run_id: str) -> bool:
        if (asked, run_id) != (method, "r2") or not left[0]:
            return False
        left[0] -= 1
        return True

    room.store.fails = fails
    worker = room.works(agent)
    finished = [run for kind, run in worker.said() if kind == "finished"]
    assert sorted(finished) == sorted(f"r{n}" for n in range(10))
    assert finished[-1] == "r2"
    assert worker.ended("r2") == ["postponed"] * 4 + ["claimed", "finished"]
    error = worker.told[worker.said().index(("postponed", "r2"))].error
    assert isinstance(error, StoreUnavailable)
    assert error.hint


def test_a_store_that_is_away_is_waited_for_with_growing_pauses(room: Room) -> None:
    agent = finishing()
    room.accept(agent, "r")
    tries = [0]

    def fails(method: str, _: str) -> bool:
        tries[0] += method == "look"
        return tries[0] <= 10

    room.store.fails = fails
    worker = room.works(agent)
    assert worker.said() == [("trouble", "")] * 10 + [("claimed", "r"), ("finished", "r")]
    assert worker.waits[:10] == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert LONGEST_PAUSE_S == 60
    assert worker.waits[10:] == [1.0] * len(worker.waits[10:])


def test_an_inbox_that_cannot_be_read_keeps_no_run_from_going_on(room: Room) -> None:
    agent = asking()
    room.accept(agent, "a", "b")
    room.works(agent)
    room.runs.answer("b", "Ann")
    other = finishing("other")
    room.accept(other, "c")
    left = [3]

    def fails(method: str, run_id: str) -> bool:
        if (method, run_id) != ("read inbox", "a/inbox") or not left[0]:
            return False
        left[0] -= 1
        return True

    room.store.fails = fails
    worker = room.works(agent, other)
    assert worker.said()[0] == ("trouble", "")
    assert {run for kind, run in worker.said() if kind == "finished"} == {"b", "c"}
    assert worker.said().index(("finished", "c")) < len(worker.said()) - 1 or left == [0]


def test_a_run_that_cannot_go_on_is_told_once_and_set_aside_until_it_stands_elsewhere(room: Room) -> None:
    """The worker and its other runs go on; no second worker, which fails as well, calls the first one back."""
    bad = [True]

    def body(run: ind.Run[Memory]) -> None:
        run.state.count += 1
        if bad[0]:
            run.state.notes.append(object())  # type: ignore[arg-type]
        if run.state.count == 2:
            run.finish()

    agent, other = agent_of(body, tasks=(), name="buggy"), finishing()
    room.accept(agent, "r")
    room.accept(other, "a")
    with Driven(room, [agent, other]) as first, Driven(room, [agent, other]) as second:
        assert first.run(until_idle=True)
        assert second.run(until_idle=True)
        assert first.ended("r") == ["claimed", "set aside"] == second.ended("r")
        assert first.ended("a") == ["claimed", "finished"]
        assert (first.aside, second.aside) == (1, 1)
        told = next(told for told in first.told if told.kind == "set aside")
        assert isinstance(told.error, ind.errors.NotStorable)
        for _ in range(3):
            room.clock.time += 10
            assert first.turn()
            assert second.turn()
        assert first.ended("r") == second.ended("r") == ["claimed", "set aside"]
        bad[0] = False
        asked = iter([False])
        agent.run(store=room.runs, run_id="r", stop=lambda: next(asked, True))  # one cycle, by somebody else
        room.clock.time += 10
        while not first.turn():
            first._listen(1)
        assert first.ended("r") == ["claimed", "set aside", "claimed", "finished"]
        assert first.aside == 0
    assert not verify(room.runs, "r").faults


def leaves(run: ind.Run[Memory]) -> None:
    raise SystemExit(3)


async def aleaves(run: ind.Run[Memory]) -> None:
    raise SystemExit(3)


@pytest.mark.parametrize("body", [leaves, aleaves])
def test_not_even_an_exit_in_a_cycle_ends_the_worker(room: Room, body: Any) -> None:
    made: Any = ind.agent(state=Memory, name="leaver")(body)
    again: AsyncAgent[Memory] = ind.agent(state=Memory, name="later")(finishes)
    other = finishing()
    room.accept(made, "r")
    room.accept(other, "a")
    room.accept(again, "b")
    worker = room.works(made, other, again)
    assert worker.ended("r") == ["claimed", "set aside"]
    assert isinstance(worker.told[1].error, SystemExit)
    assert worker.ended("a") == worker.ended("b") == ["claimed", "finished"]


def test_damage_and_state_that_does_not_fit_are_set_aside_too(room: Room) -> None:
    agent = finishing()
    room.accept(agent, "damaged", "invalid", "fine")
    journal = room.store._journals["damaged"]
    batch = journal.batches[0]
    journal.batches[0] = batch._replace(data=batch.data[:-1] + bytes([batch.data[-1] ^ 1]))

    @agent.invariant
    def never_true(state: Memory) -> str:
        return "" if room.clock.time > T0 + 100 else "too early"

    worker = room.works(agent)
    codes = {told.run_id: getattr(told.error, "code", "") for told in worker.told if told.kind == "set aside"}
    assert codes == {"damaged": "journal-damaged", "invalid": "state-invalid", "fine": "state-invalid"}


def test_a_drain_claims_no_more_and_stops_each_run_between_two_cycles(room: Room) -> None:
    """B101: the flag is read, nothing is killed in mid-task, and the leases are let go of."""
    agent: Agent[Memory]

    def body(run: ind.Run[Memory]) -> None:
        run.state.count += 1
        if run.state.count == 2:
            worker.drain()
            worker.drain()

    agent = agent_of(body, tasks=())
    room.accept(agent, "a", "b")
    with Driven(room, [agent]) as worker:
        assert worker.run() is True
    assert worker.ended("a") == ["claimed", "stopped"]
    assert worker.ended("b") == []
    assert worker.ended("") == ["draining"]
    assert room.runs.recover("a").record.committed == 2
    assert not any(entry.live for entry in room.runs.entries())
    assert kinds(room.runs, "a")[-1] == "cycle.committed"


def test_what_does_not_stop_in_time_is_named(room: Room) -> None:
    entered, leave = threading.Event(), threading.Event()

    def body(run: ind.Run[Memory]) -> None:
        entered.set()
        assert leave.wait(20)
        run.finish()

    agent = agent_of(body, tasks=())
    room.accept(agent, "a")
    told: list[Told] = []
    with Worker(room.runs, [agent], tell=told.append) as worker:
        worker.turn()
        assert entered.wait(20)
        worker.drain()
        assert worker.run(grace_s=0.0) is False
        assert [(one.kind, one.count) for one in told] == [("claimed", 0), ("draining", 1), ("cut off", 0)]
        leave.set()
        worker._jobs["a"].done.result(20)
