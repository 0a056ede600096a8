"""Runs among others on one file, as a process of its own: `contending_agent.py HOW STORE RUN_ID...`.

Owns: what each run does, and how a process goes about them: `own` works on its runs, a cycle of each in turn, in one
open store; `share` tries to advance any run of its list by one cycle, again and again, until all have ended.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial

import indelible as ind
from indelible.errors import RunBusy
from indelible.testing.ledger import Ledger

CYCLES = 25

ledger = Ledger("ledger")


class Count(ind.State):
    tasks: ind.Queue[int]
    done: ind.Log[str]


@ind.action(effect="irreversible")
def begin(what: str) -> str:
    return ledger.perform("begin", what)


@ind.action(effect="irreversible")
def end(what: str) -> str:
    return ledger.perform("end", what)


@ind.action
def think(what: str) -> str:
    ind.usage(usd=0.001)
    return what.upper()


@ind.agent(state=Count, backoff_s=0)
def counter(run: ind.Run[Count]) -> None:
    n = run.state.tasks.take()
    if run.objective == "share":
        begin(f"{run.run_id} {n}")
    run.state.done.append(think(f"{run.run_id} {n}"))
    end(f"{run.run_id} {n}")
    if not run.state.tasks:
        run.finish(list(run.state.done))


@counter.start
def start(run: ind.Run[Count]) -> None:
    run.state.tasks.extend(range(3 if run.objective == "share" else CYCLES))


def own(store: str, run_ids: list[str]) -> None:
    with ind.open(store) as runs:
        for run_id in run_ids:
            assert counter.run("own", store=runs, run_id=run_id).is_finished


def share(store: str, run_ids: list[str]) -> None:
    """The list is never looked at again: each entry of it may be held, or over, when its turn comes."""
    left = list(run_ids)
    with ind.open(store) as runs:
        while left:
            for run_id in tuple(left):
                asked: Iterator[bool] = iter([False])  # one cycle, then stop
                try:
                    outcome = counter.run("share", store=runs, run_id=run_id, stop=partial(next, asked, True))
                except RunBusy:
                    continue
                assert outcome.status in ("running", "finished"), outcome
                if outcome.is_finished:
                    left.remove(run_id)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(how: str, store: str, *run_ids: str) -> None:
    say("ready")
    sys.stdin.readline()
    (own if how == "own" else share)(store, list(run_ids))
    say("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
