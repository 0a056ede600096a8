"""`indelible worker` and `indelible submit`: runs that are accepted here and worked on there.

Owns: what a worker says, as lines or as JSON, and how its process ends.
Must never: decide which run goes on; the runtime does.
Invariant: after a drain in time the exit code is 0; the id of a run is printed only once it is durably accepted.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

from indelible.cli import loading
from indelible.cli.faults import lines
from indelible.cli.options import FAULT, FINISHED
from indelible.cli.reading import about
from indelible.cli.run import check_id, check_objective, no_objective, split
from indelible.cli.screen import iso, many, moment, note, safe, say
from indelible.cli.stopping import Stopping
from indelible.core.budgets import checked
from indelible.core.codec import unpack
from indelible.errors import IndelibleError, Misuse
from indelible.runtime.runstore import RunStore, open_runs
from indelible.runtime.worker import LONGEST_PAUSE_S, Told, Worker
from indelible.stores.base import Query


def work(
    references: list[str], store: str, concurrency: int, poll_s: float, grace_s: float, until_idle: bool, as_json: bool,
    debug: bool = False,
) -> int:  # fmt: skip
    """`indelible worker`: claim and advance runs until a signal comes."""
    if not references:
        raise Misuse("a worker needs the file of an agent", hint="indelible worker AGENT.py:name --store URL")
    if concurrency < 1 or not 0 < poll_s <= LONGEST_PAUSE_S or not 0 <= grace_s < 1e6:
        raise Misuse(
            f"--concurrency is from 1 up, --poll above 0 and up to {LONGEST_PAUSE_S:g} s, --grace from 0 s up",
            hint="--concurrency 4 --poll 1 --grace 30",
        )
    agents = [agent for reference in references for agent in loading.load_all(reference).values()]
    with Stopping() as stopping, open_runs(store, clock=stopping.clock) as runs:
        if not runs.store.shared:
            raise Misuse(
                f"{runs.url} is in the memory of this process: nobody can put runs into it", hint="--store agent.db"
            )
        voice = Voice(runs, store, as_json, debug)
        with Worker(runs, agents, concurrency=concurrency, poll_s=poll_s, tell=voice.tell) as worker:
            stopping.wake = worker.drain
            if stopping.asked():
                worker.drain()
            voice.begin(sorted({agent.name for agent in agents}), concurrency)
            if not worker.run(until_idle, grace_s):
                # The runs that are left are in threads that nobody can end. To them this is a crash, which the
                # journal is made for; their leases end with this process, or run out.
                sys.stdout.flush()
                os._exit(stopping.exit_code)
            return FAULT if worker.aside and not stopping.asked() else FINISHED


def submit(words: list[str], store: str, run_id: str | None, budget: float | None = None) -> int:
    """`indelible submit`: accept a run durably, and leave it to a worker."""
    reference, objective = split(words, "submit")
    if not reference:
        raise Misuse("whose run is it to be?", hint='indelible submit AGENT.py:name "OBJECTIVE"')
    if objective is None:
        raise no_objective(reference, "submit")
    check_objective(objective, reference, "submit")
    if run_id is not None:
        check_id(run_id)
    if budget is not None:
        checked(budget, "--budget 5")
    agent = loading.load(reference)
    with open_runs(store) as runs:
        if not runs.store.shared:
            raise Misuse(f"{runs.url} is gone when this command ends", hint="--store agent.db")
        name = run_id or f"{agent.name}-{runs.clock.entropy(4).hex()}"
        with about(name):
            if _is_accepted(runs, name, agent, objective):
                note(f"run {safe(name)} was accepted before")
            else:
                with runs.run(name, agent, objective, budget_usd=budget):
                    pass  # it is accepted, durably
        say(safe(name))
    return FINISHED


def _is_accepted(runs: RunStore, run_id: str, agent: loading.AnyAgent, objective: str) -> bool:
    """Whether this very run is there; another of that id is refused where it is opened."""
    if not any(entry.head for entry in runs.store.list_runs(Query(run_ids=(run_id,))).runs):
        return False
    record = runs.recover(run_id).record
    return record.agent == agent.name and unpack(record.objective) == objective


class Voice:
    """Says what a worker tells, one line each, on standard output."""

    def __init__(self, runs: RunStore, store: str, as_json: bool, debug: bool) -> None:
        self._runs, self._store, self._as_json, self._debug = runs, store, as_json, debug

    def begin(self, agents: list[str], concurrency: int) -> None:
        """Say that work begins."""
        text = f"works on runs of {', '.join(map(safe, agents))} in {safe(self._runs.url)}, {concurrency} at once"
        self._say({"event": "working", "agents": agents, "store": self._runs.url, "concurrency": concurrency}, text)

    def tell(self, told: Told) -> None:
        """Say one thing."""
        self._say(_data(told), _text(told), *self._reasons(told.error))
        if self._debug and told.error is not None:
            note("\n".join(safe(line) for line in "".join(traceback.format_exception(told.error)).split("\n")))

    def _reasons(self, error: BaseException | None) -> list[str]:
        if isinstance(error, IndelibleError):
            return list(lines(error, self._store))
        return [] if error is None else [f"error: {safe(f'{type(error).__name__}: {error}', 200)}"]

    def _say(self, data: dict[str, Any], text: str, *reasons: str) -> None:
        now = self._runs.clock.now()
        whole = "\n".join([f"{moment(now)}  {text}", *(f"  {reason}" for reason in reasons)])
        try:
            print(json.dumps({"at": iso(now), **data}) if self._as_json else whole, flush=True)
        except (OSError, ValueError):
            pass  # whoever read the log has gone, which is no reason to stop work


def _data(told: Told) -> dict[str, Any]:
    data: dict[str, Any] = {"event": told.kind}
    if told.run_id:
        data["run"] = told.run_id
    if told.epoch is not None:
        data["epoch"] = told.epoch
    if told.kind == "draining":
        data["runs"] = told.count
    outcome, error = told.outcome, told.error
    if outcome is not None and outcome.kind:
        data |= {"waits_for": outcome.kind, "until": iso(outcome.wake_at or 0.0)}
    if isinstance(error, IndelibleError):
        data |= {"error": error.what, "code": error.code, "hint": error.hint}
    elif error is not None:
        data |= {"error": safe(f"{type(error).__name__}: {error}", 200)}
    elif outcome is not None and outcome.error:
        data["error"] = outcome.error
    return data


def _text(told: Told) -> str:
    run, outcome = safe(told.run_id), told.outcome
    if told.kind == "draining":
        return (
            f"draining: {many(told.count, 'run')} under way, no new ones" if told.count else "stopped: none under way"
        )
    if told.kind == "trouble":
        return "the store cannot be looked at; trying again"
    text = f"{told.kind.ljust(10)}  {run}"
    if told.kind in ("claimed", "taken over"):
        return f"{text}  (epoch {told.epoch})"
    if outcome is not None and outcome.wake_at:
        return f"{text}  until {moment(outcome.wake_at)}"
    if outcome is not None and outcome.kind:
        return f"{text}  for a person: {safe(outcome.question, 100)}"
    return f"{text}  {safe(outcome.error, 200)}" if outcome is not None and outcome.error else text
