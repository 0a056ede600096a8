"""`indelible answer`, `indelible settle`, `indelible delete`: what a person says about a run.

Owns: the checks before a message is left for a run, and the words after.
Must never: change a run's journal; messages go to its inbox.
Invariant: a message that could not have an effect is refused, with what would.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from indelible.cli.options import ANSWERS, command
from indelible.cli.reading import entry_of, pending, reading, recover
from indelible.cli.screen import brief, note, safe, say
from indelible.core.budgets import must_suit
from indelible.core.codec import unpack
from indelible.core.record import PARKED, RUNNING, Record
from indelible.errors import Misuse, RunBusy
from indelible.runtime.runstore import open_runs
from indelible.stores.base import RunEntry
from indelible.stores.owner import describe


def answer(run_id: str, text: str, store: str, wait: str, budget: float | None = None) -> int:
    """Answer what a run asks; with a `budget` if that is what it waits for."""
    if (budget is None) == (text == ""):
        what = "one answer at a time" if text else "what is the answer?"
        raise Misuse(what, hint=command("answer", run_id, "TEXT | --budget USD", store=store))
    with reading(store) as runs:
        _, found = recover(runs, run_id, "answer", store)
        said = pending(runs, found.record)
    record = found.record
    waiting = [name for name, each in record.waits.items() if not each.answered]
    if wait and wait not in waiting:
        listed = ", ".join(waiting) or "nothing"
        raise Misuse(
            f"run {run_id!r} does not wait for {wait!r}; it waits for: {listed}",
            hint=command("show", run_id, store=store),
        )
    asked = wait or (record.open_wait.wait if record.open_wait else "")
    if asked in said.answers:
        given = brief(unpack(said.answers[asked].value), 60)
        raise Misuse(
            f"run {run_id!r}: that was answered already ({given}), and the run has not taken it in yet",
            hint=command("resume", run_id, f"AGENT.py:{record.agent}", store=store),
        )
    kind = record.waits[asked].kind if asked else ""
    if budget is None and not text.strip():
        raise Misuse("the answer is empty", hint=command("answer", run_id, ANSWERS.get(kind, "TEXT"), store=store))
    if budget is not None and kind != "budget":
        known = f"waits for something else: {record.waits[asked].question}" if asked else "does not wait for a budget"
        onward = command("answer", run_id, ANSWERS.get(kind, "TEXT"), store=store) if asked else command(
            "resume", run_id, f"AGENT.py:{record.agent}", f"--budget {budget:.10g}", store=store
        )  # fmt: skip
        raise Misuse(f"run {run_id!r} {known}", hint=onward)
    if budget is None and kind == "budget":
        raise _no_amount(record, text)
    with open_runs(store) as writing:
        given = text.strip().lower() if kind in ("approve", "diverged", "unpriced") else text
        writing.answer(run_id, given if budget is None else budget, wait=wait)
    say(f"answered; go on: {_onward(record, store)}")
    return 0


def settle(run_id: str, action: str, store: str, happened: bool, did_not_happen: bool, result: str | None) -> int:
    """Say what became of an action in doubt."""
    if happened == did_not_happen:
        raise Misuse(
            "say what became of it: --happened or --did-not-happen",
            hint=command("settle", run_id, action, "--happened | --did-not-happen", store=store),
        )
    value = _result(result, happened)
    with reading(store) as runs:
        entry, found = recover(runs, run_id, "settle", store)
        said = pending(runs, found.record)
    record = found.record
    if entry.live and record.status == RUNNING:
        raise _busy(entry, "it may be doing that action just now")
    doubtful = [call.call for call in record.in_doubt()]
    fitting = [call for call in doubtful if call == action] or [
        call.call for call in record.in_doubt() if action == call.name or (action and call.call.startswith(action))
    ]
    if len(fitting) == 1 and fitting[0] in said.settlements:
        verdict = "happened" if said.settlements[fitting[0]].happened else "did not happen"
        raise Misuse(
            f"run {run_id!r}: {fitting[0]} was settled already ({verdict}), and the run has not taken it in yet",
            hint=command("resume", run_id, f"AGENT.py:{record.agent}", store=store),
        )
    with open_runs(store) as writing:
        call = writing.settle(run_id, action, happened=happened, result=value)
    say(f"settled: {safe(call.call)} {'happened' if happened else 'did not happen'}")
    if happened and result is None:
        say("  the agent gets None as its result; where it needs another, settle with --result JSON")
    if record.status in (RUNNING, PARKED):
        say(f"  go on: {_onward(record, store)}")
    return 0


def delete(run_id: str, store: str, yes: bool) -> int:
    """Remove a run for good."""
    with reading(store) as runs:
        entry = entry_of(runs, run_id, "delete", store)
    if entry.live:
        raise _busy(entry, "end that first")
    if not yes:
        if not sys.stdin.isatty():
            hint = command("delete", run_id, "--yes", store=store)
            raise Misuse(f"deleting run {run_id!r} cannot be undone", hint=hint)
        import typer

        what = f"Delete run {safe(run_id)} with its {entry.head} events? Its id can never be used again."
        if not typer.confirm(what):
            note("nothing was deleted")
            return 1
    with open_runs(store) as writing:
        writing.delete(run_id)
    say(f"deleted: {safe(run_id)}")
    return 0


def _no_amount(record: Record, text: str) -> Misuse:
    hint = ""
    try:
        must_suit(record, text)
    except Misuse as error:
        hint = error.hint
    what = f"run {record.run_id!r} waits for its budget: dollars in all, given with --budget, not {safe(text, 40)!r}"
    return Misuse(what, hint=hint, run=record.run_id)


def _onward(record: Record, store: str) -> str:
    return safe(command("resume", record.run_id, f"AGENT.py:{record.agent}", store=store))


def _busy(entry: RunEntry, why: str) -> RunBusy:
    return RunBusy(
        f"run {entry.run_id!r} is held by {describe(entry.owner)}: {why}",
        hint="stop that process (Ctrl-C or SIGTERM), then try again",
        run_id=entry.run_id,
    )


def _result(text: str | None, happened: bool) -> Any:
    if text is None:
        return None
    if not happened:
        raise Misuse("what did not happen has no result", hint="leave --result out")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        what = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise Misuse(f"--result is not JSON: {what}", hint="""--result '"id-17"'   # text in both quotes""") from None
