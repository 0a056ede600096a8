"""Ctrl-C at any moment: what was acknowledged stands, nothing hangs, and the run goes on when it is started again."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import indelible as ind
from indelible.errors import RunBusy
from indelible.runtime.runstore import RunStore
from indelible.runtime.verify import Report, verify

MOMENTS = 150
PATIENCE_S = 20.0
BUSY = 3
"""How often Ctrl-C may come in the very instant in which a run is let go of: then it is this process's until that ends
or the lease does, for no code can be put where it would not be interrupted."""
Run = Callable[..., Any]

ledger: Counter[tuple[str, str]] = Counter()
"""Deeds by (key, what): each may be done once."""


class Memory(ind.State):
    tasks: ind.Queue[str]
    notes: ind.Log[str]


def did(what: str, *, key: str) -> Any:
    return ind.happened(what.upper()) if ledger[key, what] else ind.did_not_happen()


@ind.action
def look(what: str) -> str:
    ind.usage(usd=0.01)
    return what


@ind.action(effect="irreversible", probe=did)
def deed(what: str, *, key: str = "") -> str:
    ledger[key, what] += 1
    return what.upper()


@ind.action(effect="irreversible", probe=did)
async def adeed(what: str, *, key: str = "") -> str:
    ledger[key, what] += 1
    return what.upper()


@ind.agent(state=Memory, backoff_s=0)
def agent(run: ind.Run[Memory]) -> None:
    task = run.state.tasks.take()
    run.state.notes.append(look(task) + deed(f"{task}1") + deed(f"{task}2"))
    if task == "b" and run.state.tasks.attempts == 1:
        raise ValueError("the first try fails")
    if not run.state.tasks:
        run.finish(list(run.state.notes))


@ind.agent(state=Memory, backoff_s=0)
async def aagent(run: ind.Run[Memory]) -> None:
    task = run.state.tasks.take()
    run.state.notes.append(look(task) + "".join(await asyncio.gather(adeed(f"{task}1"), adeed(f"{task}2"))))
    if task == "b" and run.state.tasks.attempts == 1:
        raise ValueError("the first try fails")
    if not run.state.tasks:
        run.finish(list(run.state.notes))


@agent.start
@aagent.start
def begin(run: ind.Run[Memory]) -> None:
    run.state.tasks.extend(["a", "b"])


def def_run(runs: RunStore, run_id: str, moment: float = 0.0) -> Any:
    with alarm(moment, lambda: signal.raise_signal(signal.SIGINT)):
        return agent.run("o", store=runs, run_id=run_id)


def async_run(runs: RunStore, run_id: str, moment: float = 0.0) -> Any:
    async def main() -> Any:
        # Set inside the loop: its beginning and its end are not ours.
        with alarm(moment, lambda: signal.raise_signal(signal.SIGINT)):
            return await aagent.run("o", store=runs, run_id=run_id)

    return asyncio.run(main())


@contextmanager
def alarm(after_s: float, ring: Callable[[], Any]) -> Iterator[None]:
    """Call `ring` after that many seconds, unless that is 0 or the block has ended by then."""
    signal.signal(signal.SIGALRM, lambda *_: ring())
    signal.setitimer(signal.ITIMER_REAL, after_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def hangs() -> None:
    raise AssertionError("it hangs")


# Python drops an interrupt that comes while it disposes of something, and pytest minds.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("run", [def_run, async_run])
@pytest.mark.parametrize("url", ["memory:", "agent.db"])
def test_ctrl_c_at_any_moment_leaves_a_run_that_goes_on(
    run: Run, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B21, B25, B101: not complete with work left, no task lost or added twice, no deed repeated."""
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGALRM)
    ledger.clear()
    try:
        with ind.open(url, durability="os") if url != "memory:" else ind.open(url) as runs:
            expected = run(runs, "warm").result
            took = min(timed(partial(run, runs, f"untouched-{n}")) for n in range(5))
            strikes = [_strike(run, runs, f"r{n}", took * n / MOMENTS, expected) for n in range(1, MOMENTS + 1)]
        assert strikes.count("hit") > MOMENTS / 6
        assert strikes.count("busy") <= BUSY
        assert set(ledger.values()) == {1}
    finally:
        signal.signal(signal.SIGALRM, before)


def _strike(run: Run, runs: RunStore, run_id: str, moment: float, expected: Any) -> str:
    try:
        # In a context of its own: between two steps of Python, Ctrl-C may leave the scope of its cycle set.
        copy_context().run(run, runs, run_id, moment)
    except KeyboardInterrupt:
        struck = "hit"
    else:
        struck = "missed"
    try:
        with alarm(PATIENCE_S, hangs):
            report, outcome = _resume(run, runs, run_id)
    except RunBusy:
        return "busy"
    assert outcome == expected
    assert not report.faults
    record = runs.recover(run_id).record
    assert (record.status, record.in_doubt(), record.committed) == ("finished", [], 2)
    assert record.doc["tasks"][1] == 2
    return struck


def _resume(run: Run, runs: RunStore, run_id: str) -> tuple[Report, Any]:
    outcome = (
        agent.run("o", store=runs, run_id=run_id)
        if run is def_run
        else asyncio.run(aagent.run("o", store=runs, run_id=run_id))
    )
    return verify(runs, run_id), outcome.result
