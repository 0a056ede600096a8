"""Threads: many runs in one store, many actions in one cycle, and what a thread without its cycle's context may do."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import indelible as ind
from indelible.core import events as ev
from indelible.drive.port import Port
from indelible.errors import Misuse
from indelible.runtime.actions import EffectName
from indelible.runtime.verify import verify

THREADS = 8
CYCLES = 12

done: Counter[str] = Counter()


class Memory(ind.State):
    tasks: ind.Queue[int]
    notes: ind.Log[str]


@ind.action(effect="irreversible")
def deed(what: str) -> str:
    done[what] += 1
    return what


@ind.action
def look(what: str) -> str:
    done[f"look {what}"] += 1
    return what


@ind.agent(state=Memory)
def busy(run: ind.Run[Memory]) -> None:
    task = run.state.tasks.take()
    run.state.notes.append(deed(f"{run.run_id}/{task}"))
    if not run.state.tasks:
        run.finish(list(run.state.notes))


@busy.start
def begin(run: ind.Run[Memory]) -> None:
    run.state.tasks.extend(range(CYCLES))


def each_in_its_thread(work: Callable[[int], None]) -> None:
    """`work(n)` in as many threads, all at once; the first failure is raised."""
    start = threading.Barrier(THREADS)

    def one(number: int) -> None:
        start.wait()
        work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(one, range(THREADS)))


@pytest.mark.parametrize("url", ["memory:", "agent.db"])
def test_runs_in_threads_share_a_store(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B106: a store that was opened in one thread is used by eight, each with runs of its own."""
    monkeypatch.chdir(tmp_path)
    done.clear()
    with ind.open(url) as runs:

        def work(number: int) -> None:
            run_id = f"r{number}"
            expected = [f"{run_id}/{task}" for task in range(CYCLES)]
            assert busy.run("o", store=runs, run_id=run_id).result == expected

        each_in_its_thread(work)
        assert set(done.values()) == {1}
        assert len(done) == THREADS * CYCLES
        for number in range(THREADS):
            assert not verify(runs, f"r{number}").faults


@pytest.mark.parametrize("url", ["memory:", "agent.db"])
def test_actions_of_one_cycle_are_called_from_threads(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B106: with the cycle's context they are recorded as if they were called in the cycle's own thread."""
    monkeypatch.chdir(tmp_path)
    done.clear()
    died: list[bool] = []

    @ind.agent(state=Memory)
    def spread(run: ind.Run[Memory]) -> None:
        contexts = [contextvars.copy_context() for _ in range(THREADS)]

        def work(number: int) -> None:
            assert contexts[number].run(deed, f"deed {number}") == f"deed {number}"
            assert contexts[number].run(look, "the same") == "the same"

        each_in_its_thread(work)
        if not died:
            died.append(True)
            raise KeyboardInterrupt
        run.finish(sorted(done))

    with ind.open(url) as runs:
        with pytest.raises(KeyboardInterrupt):
            spread.run("o", store=runs, run_id="r")
        outcome = spread.run("o", store=runs, run_id="r")
        assert outcome.result == sorted([*(f"deed {n}" for n in range(THREADS)), "look the same"])
        assert done == {**{f"deed {n}": 1 for n in range(THREADS)}, "look the same": THREADS}
        assert not verify(runs, "r").faults
        assert runs.recover("r").record.usage.calls == 2 * THREADS


def test_a_cycle_ends_after_its_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B106: a thread that is still in a deed when the cycle's body has returned is waited for; its deed counts."""
    done.clear()
    begun, go_on = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []
    idle = Port.idle

    def waited_for(port: Port) -> Future[None] | None:
        found = idle(port)
        go_on.set()
        return found

    monkeypatch.setattr(Port, "idle", waited_for)

    @ind.action(effect="irreversible")
    def slow() -> str:
        begun.set()
        go_on.wait()
        done["slow"] += 1
        return "slow"

    @ind.agent(state=Memory)
    def careless(run: ind.Run[Memory]) -> None:
        threads.append(threading.Thread(target=contextvars.copy_context().run, args=(slow,)))
        threads[0].start()
        begun.wait()
        assert not go_on.is_set()
        run.finish("done")

    with ind.open(str(tmp_path / "agent.db")) as runs:
        assert careless.run("o", store=runs, run_id="r").result == "done"
        assert done["slow"] == 1
        assert runs.recover("r").record.in_doubt() == []
        told = [ev.kind_of(event) for _, event in runs.events("r")]
        assert told.index("action.completed") < told.index("cycle.committed")
    threads[0].join()


async def from_executor(call: Callable[[], str]) -> str:
    return await asyncio.get_running_loop().run_in_executor(None, call)


def from_pool(call: Callable[[], str]) -> str:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


@pytest.mark.parametrize("effect", ["repeatable", "irreversible"])
def test_a_thread_without_the_context_is_told_so(effect: EffectName, tmp_path: Path) -> None:
    """B106: what cannot be recorded is refused, and not done behind the run's back; the hint is the line to write."""
    done.clear()

    @ind.action(effect=effect)
    def pay() -> str:
        done["paid"] += 1
        return "paid"

    @ind.agent(state=Memory)
    def forgetful(run: ind.Run[Memory]) -> None:
        run.finish(from_pool(pay))

    @ind.agent(state=Memory)
    async def hasty(run: ind.Run[Memory]) -> None:
        run.finish(await from_executor(pay))

    with ind.open(str(tmp_path / "agent.db")) as runs:
        with pytest.raises(Misuse, match="does not know the run") as refused:
            forgetful.run("o", store=runs, run_id="r")
        assert "pool.submit(contextvars.copy_context().run, pay, ...)" in refused.value.hint
        with pytest.raises(Misuse, match="does not know the run"):
            asyncio.run(hasty.run("o", store=runs, run_id="s"))
        assert not done
        assert from_pool(pay.unrecorded) == "paid"


def test_a_thread_with_the_context_records(tmp_path: Path) -> None:
    """B106: as the hint says, and as `asyncio.to_thread` does by itself; a probe's thread is outside on purpose."""
    done.clear()

    def probe() -> object:
        with ThreadPoolExecutor(1) as pool:
            return ind.happened(pool.submit(contextvars.copy_context().run, look, "probed").result())

    @ind.action(effect="irreversible", probe=probe)
    def post() -> str:
        raise TimeoutError

    @ind.agent(state=Memory)
    async def careful(run: ind.Run[Memory]) -> None:
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(contextvars.copy_context().run, look, "pool").result()
        run.finish([first, await asyncio.to_thread(look, "asyncio"), await asyncio.to_thread(post)])

    with ind.open(str(tmp_path / "agent.db")) as runs:
        outcome = asyncio.run(careful.run("o", store=runs, run_id="r"))
        assert outcome.result == ["pool", "asyncio", "probed"]
        assert runs.recover("r").record.usage.calls == 2


def test_a_thread_that_belongs_to_no_run_calls_as_it_likes(tmp_path: Path) -> None:
    """B106: one that opens runs itself, the main thread beside a run in another, any one after the run is closed."""
    done.clear()
    opened, over = threading.Event(), threading.Event()

    def host() -> None:
        with ind.open(str(tmp_path / "agent.db")) as runs, runs.run("r", busy, "o"):
            assert look("in the thread of a run, between its cycles")
            opened.set()
            over.wait()

    with ThreadPoolExecutor(1) as pool:
        hosting = pool.submit(host)
        opened.wait()
        assert look("in the main thread")
        over.set()
        hosting.result()
    assert from_pool(lambda: look("after it was closed")) == "after it was closed"


def test_a_pool_thread_that_once_held_a_run_is_a_helper_like_any_other(tmp_path: Path) -> None:
    """B106: what it is given by another run, without its context, would be done and not recorded."""
    with ind.open(str(tmp_path / "agent.db")) as runs, ThreadPoolExecutor(1) as pool:

        def host() -> None:
            with runs.run("before", busy, "o"):
                pass

        pool.submit(host).result()
        with runs.run("r", busy, "o") as run, pytest.raises(Misuse, match="does not know the run"), run.cycle():
            pool.submit(look, "x").result()


def test_two_threads_cannot_hold_one_run(tmp_path: Path) -> None:
    """B01: the second thread of a process is refused like a second process."""
    refused = []
    with ind.open(str(tmp_path / "agent.db")) as runs, runs.run("r", busy, "o"):

        def other(_: int) -> None:
            with pytest.raises(ind.errors.RunBusy), runs.run("r", busy):
                pass
            refused.append(True)

        each_in_its_thread(other)
    assert len(refused) == THREADS
