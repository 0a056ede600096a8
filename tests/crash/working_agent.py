"""Runs for workers, and what ends or stops a worker in the middle of them.

Owns: the moments. `STOP=die-after:2` in the environment has the process say "held" when its second deed is done and
not yet recorded, and wait to be killed; `die-before:2` when it is intended and not done; `wait:2` until it is told to
go on.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextvars import ContextVar
from typing import Any

import indelible as ind
from indelible.testing.ledger import Ledger

CYCLES = 3

ledger = Ledger("ledger")
epoch: ContextVar[int] = ContextVar("epoch")
_mode, _, _nth = os.environ.get("STOP", "").partition(":")
_mutex = threading.Lock()
_held = threading.Event()
_goes_on = threading.Event()
_deeds = 0


class Load(ind.State):
    left: ind.Queue[int]
    done: ind.Log[str]


def count() -> bool:
    """Whether the deed that is beginning is the one to stop at, or comes after it."""
    global _deeds
    with _mutex:
        _deeds += 1
        return bool(_nth) and _deeds >= int(_nth)


def hold() -> None:
    with _mutex:
        said = _held.is_set()
        _held.set()
    if not said:
        sys.stdout.write("held\n")
        sys.stdout.flush()
        if _mode == "wait":
            sys.stdin.readline()
            _goes_on.set()
    _goes_on.wait()


def perform(what: str, key: str) -> str:
    """One deed: a line with the run, the cycle, the epoch it was done in and, by the ledger, the process."""
    stops = count()
    if stops and _mode in ("die-before", "wait"):
        hold()
    ledger.perform("haul", f"{what} {epoch.get()}", key=key)
    if stops and _mode == "die-after":
        hold()
    return what


def did(what: str, *, key: str) -> Any:
    return ind.happened(what) if ledger.find("haul", key) else ind.did_not_happen()


@ind.action(effect="irreversible", probe=did)
def haul(what: str, *, key: str = "") -> str:
    return perform(what, key)


@ind.action(effect="irreversible", probe=did)
async def ahaul(what: str, *, key: str = "") -> str:
    return await asyncio.to_thread(perform, what, key)


def begin(run: ind.Run[Load]) -> None:
    run.state.left.extend(range(1, CYCLES + 1))


def take(run: ind.Run[Load]) -> str:
    held = run._held.epoch
    epoch.set(held)
    ledger.perform("enter", f"{run.run_id} {run.cycle_number} {held}")
    return f"{run.run_id} {run.state.left.take()}"


def end(run: ind.Run[Load], done: str) -> None:
    run.state.done.append(done)
    if not run.state.left:
        run.finish(list(run.state.done))


@ind.agent(state=Load)
def hauler(run: ind.Run[Load]) -> None:
    end(run, haul(take(run)))


@ind.agent(state=Load)
async def ahauler(run: ind.Run[Load]) -> None:
    end(run, await ahaul(take(run)))


hauler.start(begin)
ahauler.start(begin)
