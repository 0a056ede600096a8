"""An agent that stops in the middle and says so.

As a process of its own: `held_agent.py STORE RUN_ID PLACE [AGENT [polite]]`.

Owns: the places where it can be held: in a `cycle`, in a `deed`, in a `commit`, or nowhere.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import indelible as ind
from indelible.errors import IndelibleError
from indelible.stores.base import Write
from indelible.stores.sqlite import SqliteStore
from indelible.testing.ledger import Ledger

ledger = Ledger("ledger")


def _go_on(_place: str) -> None:
    """Do not stop."""


stop_at: Callable[[str], None] = _go_on
held_at = ""


async def astop_at(place: str) -> None:
    if place == held_at:
        say(f"in a {place}")
        await asyncio.Event().wait()  # until a signal comes


class Memory(ind.State):
    tasks: ind.Queue[str]
    notes: ind.Log[str]


def did(what: str, key: str) -> Any:
    found = ledger.find("deed", key)
    return ind.happened(f"deed {found.what}: done") if found else ind.did_not_happen()


@ind.action(effect="irreversible", probe=did)
def deed(what: str, *, key: str = "") -> str:
    done = ledger.perform("deed", what, key=key)
    if what == "a2":
        stop_at("deed")
    return done


@ind.agent(state=Memory, backoff_s=0)
def patient(run: ind.Run[Memory]) -> None:
    task = run.state.tasks.take()
    run.state.notes.append(deed(f"{task}1"))
    if task == "a":
        stop_at("cycle")
    run.state.notes.append(deed(f"{task}2"))
    if not run.state.tasks:
        run.finish(list(run.state.notes))


@patient.start
def begin(run: ind.Run[Memory]) -> None:
    run.state.tasks.extend(["a", "b"])


@ind.action(effect="irreversible", probe=did)
async def adeed(what: str, *, key: str = "") -> str:
    done = ledger.perform("deed", what, key=key)
    if what == "a2":
        await astop_at("deed")
    return done


@ind.agent(state=Memory, backoff_s=0)
async def apatient(run: ind.Run[Memory]) -> None:
    task = run.state.tasks.take()
    run.state.notes.append(await adeed(f"{task}1"))
    if task == "a":
        await astop_at("cycle")
    run.state.notes.append(await adeed(f"{task}2"))
    if not run.state.tasks:
        run.finish(list(run.state.notes))


@apatient.start
def abegin(run: ind.Run[Memory]) -> None:
    run.state.tasks.extend(["a", "b"])


ALL = [f"deed {what}: done" for what in ("a1", "a2", "b1", "b2")]


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(store: str, run_id: str, place: str, name: str = "patient", manners: str = "") -> None:
    global stop_at, held_at
    held_at = place
    if manners == "polite":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    appends = 0

    def wait(here: str) -> None:
        if here == place:
            say(f"in a {here}")
            sys.stdin.readline()

    stop_at = wait
    append = SqliteStore.append

    def slow(self: SqliteStore, writes: Sequence[Write]) -> list[IndelibleError | None]:
        nonlocal appends
        appends += 1
        if appends == 7:  # started, claimed, two deeds of two writes each, and the commit
            wait("commit")
        return append(self, writes)

    if place == "commit":
        SqliteStore.append = slow  # type: ignore[method-assign]
    try:
        outcome = (patient if name == "patient" else apatient).run("Be patient", store=store, run_id=run_id)
        say((asyncio.run(outcome) if isinstance(outcome, Coroutine) else outcome).status)
    except BaseException as error:
        say(type(error).__name__)
        raise


if __name__ == "__main__":
    main(*sys.argv[1:])
