"""Clocks that step, stand still or differ: order goes by seq, leases by the store's clock, and waits end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import indelible as ind
from indelible.core import events as ev
from indelible.drive.clock import SystemClock
from indelible.errors import LeaseLost, RunBusy
from indelible.runtime.agents import Agent
from indelible.runtime.runs import Outcome
from indelible.runtime.runstore import RunStore
from indelible.runtime.verify import verify
from indelible.stores.base import Store
from indelible.stores.memory import MemoryStore
from indelible.stores.owner import Owner
from indelible.stores.sqlite import SqliteStore
from tests.unit.simple_agents import Death, Memory, agent_of
from tests.unit.zoned_agent import diarist

HOUR = 3600.0
T0 = 1_800_000_000.0


class Stepping(SystemClock):
    """A clock that moves by 10 ms when it is read, and once, at its nth reading, by an hour or so."""

    def __init__(self, at: int = 0, step: float = 0.0, tick: float = 0.01) -> None:
        self.time = T0
        self.tick = tick
        self.slept: list[float] = []
        self._left = at
        self._step = step

    @property
    def stepped(self) -> bool:
        return self._left <= 0

    def now(self) -> float:
        self.time += self.tick
        self._left -= 1
        if self._left == 0:
            self.time += self._step
        return self.time

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.slept.append(seconds)
        assert len(self.slept) < 50, "it wakes and waits without an end"
        self.time += seconds

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)
        await asyncio.sleep(0)


def traveller(sent: Counter[str]) -> Agent[Memory]:
    """An agent that waits for delayed tasks, sleeps, retries after a pause, and looks at the clock."""
    tries: Counter[str] = Counter()

    def looked(what: str) -> Any:
        return ind.happened(what) if sent[what] else ind.did_not_happen()

    @ind.action(effect="irreversible", probe=looked)
    def send(what: str) -> str:
        sent[what] += 1
        return what

    @ind.agent(state=Memory, name="traveller", backoff_s=2.0)
    def agent(run: ind.Run[Memory]) -> None:
        task = run.state.tasks.take()
        seen = run.now()
        run.state.notes.append(send(f"{task} 1"))
        if task == "b":
            run.sleep(60)
        tries[task] += 1
        if task == "c" and tries[task] == 1:
            raise ValueError("once")
        run.state.notes.append(send(f"{task} 2"))
        assert run.now() - seen < timedelta(hours=2)
        if not run.state.tasks:
            run.finish(sorted(run.state.notes))

    @agent.start
    def start(run: ind.Run[Memory]) -> None:
        for delay, task in enumerate("abcd"):
            run.state.tasks.append(task, not_before=T0 + 30 * delay)

    return agent


EVERYTHING = [f"{task} {n}" for task in "abcd" for n in (1, 2)]


def check_order(runs: RunStore) -> list[ev.Event]:
    """The journal verifies, its seqs have no gap, and its last event is the end, whatever the times say."""
    assert not verify(runs, "r").faults
    told = list(runs.events("r"))
    assert [seq for seq, _ in told] == list(range(1, len(told) + 1))
    assert isinstance(told[-1][1], ev.RunFinished)
    return [event for _, event in told]


@pytest.mark.parametrize("step", [HOUR, -HOUR])
@pytest.mark.parametrize("wait", [True, False])
def test_the_clock_steps_at_any_reading(step: float, wait: bool) -> None:
    """B59: between and inside cycles; all is done once and in order, and no wait is longer than the step."""
    at, longest = 0, 60 + 3 * 30 + 2.0
    while True:
        at += 1
        clock, sent = Stepping(at, step), Counter[str]()
        with RunStore(MemoryStore(clock.now), clock) as runs:
            agent = traveller(sent)
            while (outcome := agent.run("o", store=runs, run_id="r", wait=wait)).status == "parked":
                assert not wait
                assert outcome.wake_at is not None
                clock.sleep(max(0.0, outcome.wake_at - clock.time))
            assert outcome.result == EVERYTHING
            check_order(runs)
        assert sent == Counter(EVERYTHING)
        assert sum(clock.slept) < longest + max(0.0, -step)
        if not clock.stepped:
            break
    assert at > 60


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_the_next_owner_has_another_clock(step: float) -> None:
    """B59: what was recorded is found by seq; times are kept as they were told, also where they run backwards."""
    seen: list[datetime] = []
    sent: list[str] = []

    @ind.action(effect="irreversible")
    def send(what: str) -> str:
        sent.append(what)
        return what

    def body(run: ind.Run[Memory]) -> None:
        task = run.state.tasks.take()
        seen.append(run.now())
        send(task)
        if task == "b" and len(seen) == 2:
            raise Death
        if not run.state.tasks:
            run.finish(len(seen))

    agent = agent_of(body, tasks=("a", "b", "c"))
    time_of_store = [T0]
    store = MemoryStore(lambda: time_of_store[0])
    first, second = Stepping(), Stepping()
    second.time += step
    with pytest.raises(Death):
        agent.run("o", store=RunStore(store, first), run_id="r")
    with RunStore(store, second) as runs:
        assert agent.run("o", store=runs, run_id="r").result == 4
        told = check_order(runs)
    assert sent == ["a", "b", "c"]
    assert seen[1] == seen[2]
    assert (seen[3] < seen[2]) == (step < 0)
    claims = [event.at for event in told if isinstance(event, ev.RunClaimed)]
    assert (claims[1] < claims[0]) == (step < 0)


def stores(kind: str, folder: Path, clock: Callable[[], float]) -> Store:
    return MemoryStore(clock) if kind == "memory" else SqliteStore(str(folder / "agent.db"), clock=clock)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_runs_are_listed_as_they_were_written_although_the_clock_went_back(kind: str, tmp_path: Path) -> None:
    """B59: a run written last is listed first, page by page, when its time is the earliest of all."""
    clock = Stepping()
    with RunStore(stores(kind, tmp_path, clock.now), clock) as runs:
        for n in range(5):
            with runs.run(f"r{n}", Memory, "o") as run, run.cycle():
                run.state.count = n
            clock.time -= HOUR
        listed = [(entry.run_id, entry.updated_at) for entry in runs.entries()]
    assert [run_id for run_id, _ in listed] == ["r4", "r3", "r2", "r1", "r0"]
    assert [at for _, at in listed] == sorted(at for _, at in listed)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_everything_in_one_tick(kind: str, tmp_path: Path) -> None:
    """B51: the clock stands still; writes of many tasks and of the background writer are never taken for stale."""
    clock = Stepping(tick=0.0)

    @ind.action(effect="idempotent")
    async def put(n: int) -> int:
        return n

    @ind.agent(state=Memory, name="tester", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        run.state.count += sum(await asyncio.gather(*(put(n) for n in range(20))))
        if run.cycle_number == 5:
            run.finish(run.state.count)

    with RunStore(stores(kind, tmp_path, clock.now), clock) as runs:
        assert asyncio.run(agent.run("o", store=runs, run_id="r")).result == 5 * 190
        assert {int(event.at) for event in check_order(runs)} == {int(T0)}


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_live_run_is_not_taken_over_by_a_process_whose_clock_is_wrong(step: float, tmp_path: Path) -> None:
    """B62: both ask the database what time it is."""
    wrong = Stepping()
    wrong.time = time.time() + step
    path = str(tmp_path / "agent.db")
    with (
        RunStore(SqliteStore(path), SystemClock()) as right,
        RunStore(SqliteStore(path), wrong) as skewed,
    ):
        for holder, other in ((right, skewed), (skewed, right)):
            with holder.run("r", Memory, "o") as run:
                holder._renewer.renew()
                with pytest.raises(RunBusy) as refused, other.run("r", Memory):
                    raise AssertionError("it was taken over")
                assert 0 < float(refused.value.ids["expires_in_s"] or 0) <= 30
                assert next(other.entries()).live
                with run.cycle():
                    run.state.count += 1
        assert right.recover("r").record.committed == 2


@pytest.fixture
def database(tmp_path: Path) -> tuple[str, Stepping]:
    """A file, and the clock of the database in it, which steps when we say so."""
    return str(tmp_path / "agent.db"), Stepping()


def test_the_stores_clock_goes_back_and_the_holder_holds_on(database: tuple[str, Stepping]) -> None:
    """B62: it is not thrown out, it can let go, and a holder that is gone is in nobody's way."""
    path, clock = database
    with RunStore(SqliteStore(path, clock=clock.now), SystemClock()) as runs:
        with runs.run("r", Memory, "o") as run:
            clock.time -= HOUR
            runs._renewer.renew()
            with pytest.raises(RunBusy) as refused, runs.run("r", Memory):
                raise AssertionError("it was taken over")
            assert float(refused.value.ids["expires_in_s"] or 0) <= 30  # the renewal has mended it
            with run.cycle():
                run.state.count = 1
        gone = Owner.here("nobody is called so")
        runs.store.claim("r", gone, 30.0)
        clock.time -= HOUR
        with runs.run("r", Memory) as run:
            assert run.state.count == 1


def test_the_stores_clock_goes_on_by_an_hour_and_the_former_holder_is_told(database: tuple[str, Stepping]) -> None:
    """B62: to the store its lease has run out; whoever comes next takes over, and two never write."""
    path, clock = database
    sent: list[str] = []

    @ind.action(effect="irreversible")
    def send(by: str) -> None:
        sent.append(by)

    with RunStore(SqliteStore(path, clock=clock.now), SystemClock()) as runs, runs.run("r", Memory, "o") as former:
        clock.time += HOUR
        with runs.run("r", Memory) as successor, successor.cycle():
            send("successor")
        with pytest.raises(LeaseLost), former.cycle():
            send("former")
        assert sent == ["successor"]


def test_a_step_alone_takes_no_run_from_its_holder(database: tuple[str, Stepping]) -> None:
    path, clock = database
    with RunStore(SqliteStore(path, clock=clock.now), SystemClock()) as runs, runs.run("r", Memory, "o") as run:
        for step in (HOUR, -2 * HOUR, HOUR):
            clock.time += step
            with run.cycle():
                run.state.count += 1
        assert run.state.count == 3


def test_sleep_ends_by_the_time_it_was_begun_for(store: RunStore) -> None:
    """The moment of waking is recorded once: no step moves it, and none makes the cycle sleep again."""
    clock = Stepping(tick=0.0)

    def body(run: ind.Run[Memory]) -> None:
        run.sleep(60)
        run.finish(run.now().timestamp())

    agent = agent_of(body)
    with RunStore(store.store, clock) as runs:

        def at(moment: float) -> Outcome:
            clock.time = T0 + moment
            return agent.run("o", store=runs, run_id="r", wait=False)

        for moment in (0.0, -HOUR, 59.0, -HOUR):
            assert (at(moment).kind, at(moment).wake_at) == ("sleep", T0 + 60)
        assert at(HOUR).result == T0 + HOUR
        assert len([event for _, event in runs.events("r") if isinstance(event, ev.CycleParked)]) == 1


def test_delayed_tasks_keep_their_order_whatever_the_clock_does(store: RunStore) -> None:
    """A jump makes several due at once; a step back between waking and taking makes none of them lost."""
    clock = Stepping(tick=0.0)
    taken: list[str] = []

    def body(run: ind.Run[Memory]) -> None:
        taken.append(run.state.tasks.take())
        clock.time -= HOUR  # whenever one is taken
        if not run.state.tasks:
            run.finish()

    agent = agent_of(body, tasks=())

    @agent.start
    def start(run: ind.Run[Memory]) -> None:
        for delay, task in ((30, "c"), (10, "a"), (20, "b")):
            run.state.tasks.append(task, not_before=T0 + delay)

    with RunStore(store.store, clock) as runs:
        assert agent.run("o", store=runs, run_id="r", wait=False).wake_at == T0 + 10
        clock.time = T0 + HOUR
        assert agent.run("o", store=runs, run_id="r").is_finished
    assert taken == ["c", "a", "b"]  # all three were due when the first was taken, and then it was earlier again
    assert clock.slept == [10.0, HOUR + 10.0]


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_a_process_in_another_time_zone(zone: str, tmp_path: Path) -> None:
    """B61: what it stores are epoch seconds and UTC, so that times agree with everybody else's."""
    path, before = str(tmp_path / "agent.db"), time.time()
    script = Path(__file__).with_name("zoned_agent.py")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), path],
        env={**os.environ, "TZ": zone}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("ask", "")
    with ind.open(path) as runs:
        runs.answer("r", "yes")
        shown: list[str] = diarist.run("Keep a diary", store=runs, run_id="r").result
        after = time.time()
        (entry,) = runs.entries()
        times = [entry.created_at, entry.updated_at, *(event.at for event in check_order(runs))]
        assert all(before - 1 <= at <= after + 1 for at in times)
        moments = [datetime.fromisoformat(text) for text in shown]
        assert all(moment.utcoffset() == timedelta(0) for moment in moments)
        assert all(before - 1 <= moment.timestamp() <= after + 1 for moment in moments)
