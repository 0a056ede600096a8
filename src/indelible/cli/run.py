"""`indelible run` and `indelible resume`: agents at work in this process.

Owns: the way from what was typed to a run that goes on, and what is said when it stops.
Must never: decide anything about a run; the runtime does.
Invariant: the id of a run is shown only once the run is durably accepted.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indelible.cli import loading
from indelible.cli.faults import UserCode, report
from indelible.cli.options import ANSWERS, FAILED, FAULT, FINISHED, PARKED, command
from indelible.cli.progress import Progress
from indelible.cli.reading import WAITS_FOR_A_PERSON, about, answered, entry_of, must_exist, pending, reading, standing
from indelible.cli.screen import jsonable, moment, note, safe, safe_block, say
from indelible.cli.stopping import Stopping
from indelible.core.budgets import checked
from indelible.core.codec import unpack
from indelible.core.record import FAILED as RUN_FAILED
from indelible.core.record import FINISHED as RUN_FINISHED
from indelible.core.record import PARKED as RUN_PARKED
from indelible.core.record import RUNNING, Record
from indelible.errors import IndelibleError, Misuse, UnknownRun
from indelible.runtime.agents import AsyncAgent
from indelible.runtime.labels import about_of
from indelible.runtime.runs import Outcome
from indelible.runtime.runstore import RunStore, open_runs
from indelible.stores.base import Query, RunEntry, check_run_id


@dataclass(frozen=True)
class Setup:
    """What the shipped agent is given."""

    corpus: str | None = None
    deliver: str | None = None
    model: str | None = None
    to: str | None = None

    def agent(self) -> loading.AnyAgent:
        """The shipped agent, so set up."""
        return loading.shipped(self.corpus, self.deliver, self.model, self.to)


@dataclass(frozen=True)
class Job:
    """One run to work on: by which agent, and how the user named that agent ("" for the shipped one)."""

    agent: loading.AnyAgent
    reference: str
    run_id: str
    objective: str | None
    store: str
    wait: bool
    retry: bool = False
    budget: float | None = None


def start(
    words: list[str], store: str, run_id: str | None, setup: Setup, wait: bool, retry: bool, budget: float | None = None
) -> int:
    """`indelible run`: start a run or go on with it."""
    reference, objective = split(words)
    if objective is None and run_id is None:
        raise no_objective(reference)
    if retry and run_id is None:
        raise Misuse("which run is to be retried?", hint="--run-id ID --retry   # see: indelible ls --status failed")
    if objective is not None:
        check_objective(objective, reference)
    if run_id is not None:
        check_id(run_id)
    if budget is not None:
        checked(budget, "--budget 5")
    if objective is None and run_id is not None:
        with reading(store) as runs:
            entry_of(runs, run_id, "show", store)
    agent = loading.load(reference) if reference else setup.agent()
    with Stopping() as stopping, open_runs(store, clock=stopping.clock) as runs:
        name = run_id or f"{agent.name}-{runs.clock.entropy(4).hex()}"
        return work(runs, Job(agent, reference, name, objective, store, wait, retry, budget), stopping)


def resume(
    run_id: str, reference: str, store: str, setup: Setup, wait: bool, retry: bool, budget: float | None = None
) -> int:
    """`indelible resume RUN`: go on with a run that exists."""
    _check_order(run_id, reference, store)
    if budget is not None:
        checked(budget, "--budget 5")
    with reading(store) as runs:
        entry = entry_of(runs, run_id, "resume", store)
        over = None if retry or entry.head == 0 else _over(runs, run_id)
    name = entry.label.agent if entry.label else ""
    if over is not None:
        return _conclude(run_id, reference or _unknown_file(name), store, *over)
    if not reference and name not in ("", loading.SHIPPED):
        raise Misuse(
            f"run {run_id!r} belongs to agent {name!r}; where is its code?",
            hint=command("resume", run_id, _unknown_file(name), *(["--retry"] if retry else []), store=store),
        )
    agent = loading.load(reference) if reference else setup.agent()
    with Stopping() as stopping, open_runs(store, clock=stopping.clock) as runs:
        return work(runs, Job(agent, reference, run_id, None, store, wait, retry, budget), stopping)


def resume_all(references: list[str], store: str, setup: Setup, debug: bool) -> int:
    """`indelible resume --all`: go on with every run that can, one after another; the worst exit code."""
    agents: dict[str, tuple[loading.AnyAgent, str]] = {}
    for reference in references:
        for variable, agent in loading.load_all(reference).items():
            file = reference if ":" in reference else f"{reference}:{variable}"
            agents[agent.name] = agent, file
    codes = [FINISHED]
    must_exist(store)
    with Stopping() as stopping, open_runs(store, clock=stopping.clock) as runs:
        unfinished = sorted(runs.entries(statuses={RUNNING, RUN_PARKED}), key=lambda entry: entry.updated_at)
        for entry in unfinished:
            if stopping.asked():
                return stopping.exit_code
            try:
                codes.append(_resume_one(runs, entry, agents, store, setup, stopping))
            except Exception as error:
                note(f"run {safe(entry.run_id)} could not be resumed:")
                codes.append(report(error, store, debug=debug))
        if not unfinished:
            note("nothing is unfinished")
    return FAULT if FAULT in codes else max(codes)


def _resume_one(
    runs: RunStore,
    entry: RunEntry,
    agents: dict[str, tuple[loading.AnyAgent, str]],
    store: str,
    setup: Setup,
    stopping: Stopping,
) -> int:
    name = entry.label.agent if entry.label else ""
    if entry.live:
        note(f"run {safe(entry.run_id)}: is being run by another process")
        return FINISHED
    label = about_of(entry.label)
    parked = entry.label is not None and entry.label.status == RUN_PARKED
    if parked and label.kind in WAITS_FOR_A_PERSON and not answered(runs, entry.run_id):
        note(f"run {safe(entry.run_id)}: waits for a person: {safe(label.question, 100)}")
        note(f"  see: indelible inbox --store {safe(store)}")
        return PARKED
    if name not in agents and name == loading.SHIPPED:
        agents[name] = setup.agent(), ""
    if name not in agents:
        note(f"run {safe(entry.run_id)}: belongs to agent {safe(name)!r}, whose file was not given")
        note(f"  try: {safe(command('resume', entry.run_id, _unknown_file(name), store=store))}")
        return PARKED
    agent, reference = agents[name]
    return work(runs, Job(agent, reference, entry.run_id, None, store, wait=False), stopping)


def work(runs: RunStore, job: Job, stopping: Stopping) -> int:
    """Go on with the run until it ends, waits or is to stop; say how it stands, and return the exit code."""
    with about(job.run_id):
        record = _before(runs, job)
        ours = record.agent == job.agent.name and job.objective in (None, unpack(record.objective))
        over = _over(runs, job.run_id) if ours and not job.retry else None
    if over is not None:
        return _conclude(job.run_id, job.reference, job.store, *over)
    with about(job.run_id), Progress(record, stopping, job.agent.name) as progress:
        try:
            outcome = _pursue(runs, job, stopping, progress)
        except SystemExit as error:
            raise UserCode(f"run {job.run_id} was left") from error
        except IndelibleError as error:
            error.hint = _with_file(error.hint, job)
            raise
    return _conclude(job.run_id, job.reference, job.store, outcome, progress.failed_tasks, stopping)


def _over(runs: RunStore, run_id: str) -> tuple[Outcome, int] | None:
    """How a run has ended that nobody has said anything to since, and how many tasks it gave up; read untouched."""
    record = runs.recover(run_id).record
    if record.status not in (RUN_FINISHED, RUN_FAILED) or pending(runs, record).settlements:
        return None
    result = unpack(record.result) if record.result else None
    return Outcome(run_id, record.status, result, record.error), record.failed_tasks


def _with_file(hint: str, job: Job) -> str:
    """The hint with the agent's file as it was typed, which only this command knows."""
    if not job.reference:
        return hint
    resume = f"indelible resume {job.run_id}"
    hint = re.sub(r"AGENT\.py(:[\w.-]+)?", lambda _: job.reference, hint)
    return hint if job.reference in hint else hint.replace(resume, f"{resume} {job.reference}", 1)


def _unknown_file(agent: str) -> str:
    return f"AGENT.py:{agent}" if agent not in ("", loading.SHIPPED) else ""


def _pursue(runs: RunStore, job: Job, stopping: Stopping, progress: Progress) -> Outcome:
    agent: Any = job.agent
    going: Any = agent.run(
        job.objective, store=runs, run_id=job.run_id, wait=job.wait, stop=stopping.asked, observe=progress.saw,
        retry=job.retry, budget_usd=job.budget,
    )  # fmt: skip
    outcome: Outcome = asyncio.run(going) if isinstance(agent, AsyncAgent) else going
    return outcome


def _before(runs: RunStore, job: Job) -> Record:
    """The run as it is before this process takes it up; an empty record for a new one."""
    entries = runs.store.list_runs(Query(run_ids=(check_run_id(job.run_id),))).runs
    if not entries or entries[0].head == 0:
        if job.objective is None:
            raise UnknownRun(f"there is no run {job.run_id!r} in {runs.url}", hint="indelible ls", run=job.run_id)
        return Record(job.run_id)
    found = runs.recover(job.run_id)
    for notice in found.notices:
        note(f"note: {safe(notice)}")
    return found.record


def _conclude(
    run_id: str, reference: str, store: str, outcome: Outcome, failed_tasks: int, stopping: Stopping | None = None
) -> int:
    run, file = safe(run_id), [reference] if reference else []
    onward = safe(command("resume", run_id, *file, store=store))
    if outcome.status == RUN_FINISHED:
        note(f"run {run} is {standing(RUN_FINISHED, False, '', failed_tasks)}")
        if failed_tasks:
            note(f"  see: {safe(command('show', run_id, store=store))}")
        if isinstance(outcome.result, str):
            say(safe_block(outcome.result))
        elif outcome.result is not None:
            import json

            say(json.dumps(jsonable(outcome.result), ensure_ascii=True, indent=2))
        return FINISHED
    if outcome.status == RUN_PARKED and outcome.kind in WAITS_FOR_A_PERSON:
        say(f"run {run} waits for a person: {safe(outcome.question)}")
        say(f"  answer:  {safe(_answer(run_id, store, outcome))}")
        say(f"  go on:   {onward}")
        return PARKED
    if outcome.status not in (RUNNING, RUN_PARKED):
        note(f"run {run} has failed: {safe(outcome.error)}")
        note(f"  see: {safe(command('log', run_id, store=store))}")
        note(f"  try again: {safe(command('resume', run_id, *file, '--retry', store=store))}")
        return FAILED
    if outcome.status == RUN_PARKED:
        say(f"run {run} waits until {moment(outcome.wake_at or 0.0)}")
    else:
        say(f"run {run} is stopped between two cycles")
    say(f"  go on:   {onward}")
    return stopping.exit_code if stopping is not None and stopping.asked() else PARKED


def _answer(run_id: str, store: str, outcome: Outcome) -> str:
    if outcome.kind == "doubt":
        call = outcome.wait.partition(":")[2]
        return command("settle", run_id, call, "--happened | --did-not-happen", store=store)
    return command("answer", run_id, ANSWERS.get(outcome.kind, "TEXT"), store=store)


def no_objective(reference: str, verb: str = "run") -> Misuse:
    """What to say if there is none."""
    file = f"{safe(reference)} " if reference else ""
    return Misuse("there is no objective", hint=f'indelible {verb} {file}"Find three suppliers"')


def split(words: list[str], verb: str = "run") -> tuple[str, str | None]:
    """What was typed as the agent ("" for the shipped one) and the objective."""
    if len(words) > 2:
        file = [words[0]] if loading.is_reference(words[0]) else []
        whole = shlex.join([*file, " ".join(words[len(file) :])])
        raise Misuse(f"{len(words)} arguments; the objective is one, in quotes", hint=f"indelible {verb} {safe(whole)}")
    if len(words) == 2:
        if not loading.is_reference(words[0]) and loading.is_reference(words[1]):
            raise Misuse(
                "the agent comes first, then the objective",
                hint=f'indelible {verb} {safe(words[1])} "{safe(words[0], 60)}"',
            )
        if not loading.is_reference(words[0]):
            raise Misuse(
                f"{safe(words[0])!r} names no agent file",
                hint=f'indelible {verb} AGENT.py:name "{safe(words[1], 60)}"   # or, if both are the objective: '
                f"indelible {verb} {safe(shlex.quote(' '.join(words)))}",
            )
        return words[0], words[1]
    if words and loading.is_reference(words[0]):
        return words[0], None
    return "", words[0] if words else None


def _check_order(run_id: str, reference: str, store: str) -> None:
    """Refuse an agent's file in the place of a run."""
    if reference and loading.is_reference(run_id) and not loading.is_reference(reference):
        hint = command("resume", reference, shlex.quote(run_id), store=store)
        raise Misuse("the run comes first, then the agent's file", hint=hint)
    if not reference and loading.is_reference(run_id) and Path(run_id.rpartition(":")[0] or run_id).is_file():
        hint = command("resume", "RUN", shlex.quote(run_id), store=store) + "   # see: indelible ls"
        raise Misuse(f"{safe(run_id)!r} names an agent's file; which run is to go on?", hint=hint)


def check_id(run_id: str) -> None:
    try:
        check_run_id(run_id)
    except Misuse as error:
        error.hint = error.hint.replace("run_id='suppliers'", "--run-id suppliers")
        raise


def check_objective(objective: str, reference: str = "", verb: str = "run") -> None:
    """Refuse what cannot be one. Raises `Misuse`."""
    if not objective.strip():
        file = f"{safe(reference)} " if reference else ""
        raise Misuse("the objective is empty", hint=f'indelible {verb} {file}"Find three suppliers"')
    try:
        objective.encode("utf-8")
    except UnicodeEncodeError:
        raise Misuse(
            f"the objective is not valid text in this terminal's encoding: {safe(objective, 60)}",
            hint="export LC_ALL=C.UTF-8",
        ) from None
