"""The worker: which runs it takes, when, how many at once, and in which order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import indelible as ind
from indelible.core import events as ev
from indelible.errors import Misuse, RunBusy, UnknownRun
from indelible.runtime.agents import AsyncAgent
from indelible.runtime.runnable import INBOXES, Lookout
from indelible.runtime.worker import SLICE_S, Worker
from indelible.stores.owner import Owner
from tests.unit.simple_agents import Memory, agent_of
from tests.unit.worker_room import T0, Driven, Room, asking, finishes, finishing


@pytest.fixture
def room() -> Iterator[Room]:
    made = Room()
    with made.runs:
        yield made


def test_accepted_runs_are_claimed_oldest_first_and_finished(room: Room) -> None:
    agent = finishing()
    room.accept(agent, "a", "b", "c")
    worker = room.works(agent)
    assert worker.said() == [(kind, run) for run in "abc" for kind in ("claimed", "finished")]
    assert [told.epoch for told in worker.told] == [2] * 6
    assert worker.told[1].outcome is not None
    assert worker.told[1].outcome.result == "a"
    assert not any(entry.live for entry in room.runs.entries())


def test_runs_of_other_agents_and_runs_that_have_ended_are_left_alone(room: Room) -> None:
    def fails(run: ind.Run[Memory]) -> None:
        raise ValueError("no")

    agent, other, failing = finishing(), finishing("other"), agent_of(fails, attempts=1, tasks=(), name="failing")
    room.accept(agent, "done")
    room.accept(other, "theirs")
    room.accept(failing, "failed")
    room.works(agent, failing)
    epochs = {entry.run_id: entry.epoch for entry in room.runs.entries()}
    assert [room.status(run) for run in ("done", "theirs", "failed")] == ["finished", "running", "failed"]
    assert room.works(agent, failing).said() == []
    assert {entry.run_id: entry.epoch for entry in room.runs.entries()} == epochs


def test_as_many_as_were_asked_for_are_worked_on_at_once(room: Room) -> None:
    together = threading.Barrier(3)
    agent = agent_of(lambda run: run.finish(together.wait(20)), tasks=())
    room.accept(agent, *"abcdef")
    worker = room.works(agent, concurrency=3)
    first = [kind for kind, _ in worker.said()]
    assert first.count("finished") == 6
    assert max(first[:n].count("claimed") - first[:n].count("finished") for n in range(len(first))) == 3


def test_agents_of_both_kinds_work_at_the_same_time(room: Room) -> None:
    """The `async def` ones share one event loop, and each of them waits for the other there."""
    met: list[int] = []
    arrived = [asyncio.Event(), asyncio.Event()]
    agent = finishing()

    @ind.agent(state=Memory)
    async def meeting(run: ind.Run[Memory]) -> None:
        mine = int(run.run_id)
        arrived[mine].set()
        await asyncio.wait_for(arrived[1 - mine].wait(), 20)
        met.append(threading.get_ident())
        run.finish()

    room.accept(meeting, "0", "1")
    room.accept(agent, "a")
    worker = room.works(agent, meeting, concurrency=3)
    assert {run for kind, run in worker.said() if kind == "finished"} == {"0", "1", "a"}
    assert len(met) == 2
    assert len(set(met)) == 1
    assert met[0] != threading.get_ident()


def test_a_sleeping_run_gives_its_place_up_and_comes_back_at_its_time(room: Room) -> None:
    def naps(run: ind.Run[Memory]) -> None:
        run.sleep(3600)
        run.finish()

    sleeper, agent = agent_of(naps, tasks=(), name="sleeper"), finishing()
    room.accept(sleeper, "s")
    room.accept(agent, "a")
    worker = room.works(sleeper, agent, poll_s=30)
    assert worker.said() == [
        ("claimed", "s"), ("parked", "s"), ("claimed", "a"), ("finished", "a"), ("claimed", "s"), ("finished", "s")
    ]  # fmt: skip
    assert 3600 <= room.clock.time - T0 < 3700


def test_a_time_has_come_when_the_stores_clock_says_so_and_this_machines_too(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B62: one look by a clock that is ahead would claim the run again and again, and each time for nothing."""

    def naps(run: ind.Run[Memory]) -> None:
        run.sleep(100)
        run.finish()

    agent = agent_of(naps, tasks=())
    room.accept(agent, "s")
    with Driven(room, [agent]) as worker:
        worker.turn()
        while worker._jobs:
            worker._listen(1)
        monkeypatch.setattr(room.store, "now", lambda: T0 + 500)
        assert Lookout(room.runs, ["tester"]).look().runnable == []
        room.clock.time += 500
        assert [found.run_id for found in Lookout(room.runs, ["tester"]).look().runnable] == ["s"]
        monkeypatch.setattr(room.store, "now", lambda: T0)
        assert Lookout(room.runs, ["tester"]).look().runnable == []


def test_a_run_that_asks_is_left_alone_until_it_was_answered(room: Room) -> None:
    agent = asking()
    room.accept(agent, "r", "never")
    worker = room.works(agent)
    assert worker.ended("r") == ["claimed", "parked"]
    assert room.status("r") == "parked"
    assert room.works(agent).said() == []
    room.runs.answer("r", "Ann")
    assert room.works(agent).said() == [("claimed", "r"), ("finished", "r")]
    assert room.works(agent).said() == []


def test_a_message_that_is_no_answer_is_taken_in_once(room: Room) -> None:
    """B54: what was said twice is news one time, and then never again, for this worker and for any other."""
    agent = asking()
    room.accept(agent, "r")
    room.works(agent)
    room.runs.answer("r", "Ann")
    head = room.runs.recover("r").record.seq
    room.runs._post("r", lambda at: ev.Settlement(at, "nothing", True, b"\xc0", "a person"))
    room.works(agent)
    assert room.status("r") == "finished"
    room.accept(agent, "q")
    room.works(agent)
    room.runs._post("q", lambda at: ev.Settlement(at, "nothing", True, b"\xc0", "a person"))
    with Driven(room, [agent]) as worker:
        assert worker.run(until_idle=True)
        assert worker.ended("q") == ["claimed", "parked"]
        reads = room.store.asked["read"]
        for _ in range(5):
            room.clock.time += 1
            worker.turn()
        assert worker.ended("q") == ["claimed", "parked"]
        assert room.store.asked["read"] - reads <= 1, "its journal is read once for each head"
    assert head < room.runs.recover("r").record.seq


def test_a_look_at_many_parked_runs_reads_no_journal_and_a_bounded_number_of_inboxes(room: Room) -> None:
    agent = asking()
    names = [f"r{n}" for n in range(INBOXES + 100)]
    for name in names:
        agent.run("o", store=room.runs, run_id=name)
    room.store.asked.clear()
    lookout = Lookout(room.runs, ["tester"])
    room.runs.answer(names[-1], "Ann")
    room.store.asked.clear()
    assert lookout.look().runnable == []
    assert room.store.asked["read inbox"] == INBOXES
    assert not room.store.asked["read"]
    assert [found.run_id for found in lookout.look().runnable] == [names[-1]], "those that were not looked at go first"
    assert room.store.asked["read inbox"] <= 2 * INBOXES + 1
    assert room.store.asked["look"] <= 4
    assert room.store.asked.total() - room.store.asked["read inbox"] - room.store.asked["look"] == 1


def test_a_deed_in_doubt_goes_on_when_it_was_settled(room: Room) -> None:
    deeds: list[str] = []

    @ind.action(effect="irreversible")
    def pay() -> str:
        deeds.append("paid")
        raise TimeoutError("no answer")

    agent = agent_of(lambda run: run.finish(pay()), tasks=())
    room.accept(agent, "r")
    room.works(agent)
    assert (room.status("r"), deeds) == ("parked", ["paid"])
    room.runs.settle("r", "pay", happened=True, result="receipt")
    worker = room.works(agent)
    assert worker.ended("r") == ["claimed", "finished"]
    assert deeds == ["paid"]
    outcome = worker.told[-1].outcome
    assert outcome is not None
    assert outcome.result == "receipt"


def test_a_run_whose_owner_is_gone_or_whose_lease_has_lapsed_is_taken_over(room: Room) -> None:
    """B102, B103: a claimant of this process that has ended is gone; an owner elsewhere is by its lease."""
    agent = finishing()
    room.accept(agent, "gone", "lapsed")
    room.store.claim("gone", Owner.here("nobody"), 30.0)
    room.store.claim("lapsed", Owner("elsewhere", "b", "1", 7, "9", "n").text(), 30.0)
    with Driven(room, [agent]) as worker:
        held: list[bool] = []
        worker.between = lambda: held.append(room.status("lapsed") == "running")
        assert worker.run(until_idle=True)
    assert worker.said() == [(kind, run) for run in ("gone", "lapsed") for kind in ("taken over", "finished")]
    assert held.count(True) == 30, "the lease of the other machine was waited for"


def test_a_run_that_another_process_holds_is_no_reason_to_call_it_idle(room: Room) -> None:
    agent = finishing()
    room.accept(agent, "theirs")
    other = Owner("elsewhere", "b", "1", 7, "9", "n").text()
    room.store.claim("theirs", other, 30.0)
    with Driven(room, [agent]) as worker:
        assert not worker.turn()
        room.store.claim("theirs", other, 0)
        assert worker.run(until_idle=True)
    assert worker.said() == [("claimed", "theirs"), ("finished", "theirs")]


def test_a_run_that_never_ends_lets_others_have_its_place(room: Room) -> None:
    """So that no run starves."""

    def endless(run: ind.Run[Memory]) -> None:
        run.state.count += 1
        room.clock.time += SLICE_S / 3
        if run.state.count == 12:
            run.finish()

    agent = agent_of(endless, tasks=())
    room.accept(agent, "a", "b")
    worker = room.works(agent)
    assert worker.ended("a")[:4] == ["claimed", "yielded", "claimed", "yielded"]
    assert worker.ended("a")[-1] == "finished"
    assert worker.said().index(("claimed", "b")) < worker.said().index(("finished", "a"))
    alone = Room()
    with alone.runs:
        alone.accept(agent, "a")
        assert alone.works(agent).ended("a") == ["claimed", "finished"]


def test_a_host_advances_a_run_by_its_id(room: Room) -> None:
    agent, asker = finishing(), asking("asker")
    later: AsyncAgent[Memory] = ind.agent(state=Memory, name="later")(finishes)
    room.accept(agent, "a")
    room.accept(asker, "q")
    room.accept(later, "l")
    room.accept(finishing("unknown"), "u")
    with Worker(room.runs, [agent, asker, later]) as worker:
        assert worker.advance("a").result == "a"
        assert worker.advance("a").is_finished
        assert worker.advance("l").is_finished
        assert worker.advance("q").status == "parked"
        with pytest.raises(Misuse, match="'unknown'"):
            worker.advance("u")
        with pytest.raises(UnknownRun):
            worker.advance("nobody")
        with room.runs.run("q", asker), pytest.raises(RunBusy):
            worker.advance("q")


def test_what_cannot_be_asked_of_a_worker_is_refused(room: Room) -> None:
    agent = finishing()
    wrong: list[tuple[list[Any], dict[str, Any]]] = [
        ([], {}), ([agent], {"concurrency": 0}), ([agent], {"poll_s": 0.0})
    ]  # fmt: skip
    for agents, options in wrong:
        with pytest.raises(Misuse):
            Worker(room.runs, agents, **options)
    with pytest.raises(Misuse, match="two agents"):
        Worker(room.runs, [agent, finishing()])
    Worker(room.runs, [agent, agent]).close()


def test_the_store_is_asked_for_the_time_only_when_a_time_may_have_come(room: Room) -> None:
    """Object storage charges for it, and a worker that has nothing to do looks every second."""
    napping = agent_of(lambda run: run.sleep(100), tasks=(), name="napper")
    napping.run("o", store=room.runs, run_id="n", wait=False)
    asking().run("o", store=room.runs, run_id="a", wait=False)
    lookout = Lookout(room.runs, ["napper", "tester"])
    room.store.asked.clear()
    assert (lookout.look().unsettled, room.store.asked["now"]) == (1, 0)
    room.clock.time += 101
    assert ([found.run_id for found in lookout.look().runnable], room.store.asked["now"]) == (["n"], 1)
