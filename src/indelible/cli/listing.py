"""`indelible ls` and `indelible inbox`: what is in a store, and what waits for a person.

Owns: the order of listings, and the command that answers each thing that waits.
Must never: open a run for writing.
Invariant: `ls` needs no journal, only the labels that are written with each batch; and the inbox of a run that waits
for a person.
"""

from __future__ import annotations

from typing import Any

from indelible.cli.deeds import ORPHANED, Deed, Deeds
from indelible.cli.options import ANSWERS, command
from indelible.cli.reading import WAITS_FOR_A_PERSON, answered, pending, reading, standing
from indelible.cli.screen import ago, brief, dump, iso, jsonable, moment, note, safe, say, spent, table
from indelible.core.codec import unpack
from indelible.core.record import FAILED, PARKED, RUNNING, CallRecord, Record, Wait
from indelible.drive.clock import SystemClock
from indelible.errors import IndelibleError
from indelible.runtime.labels import About, about_of
from indelible.runtime.runstore import RunStore
from indelible.stores.base import RunEntry
from indelible.stores.owner import describe

_ORDER = {"interrupted": 0, "running": 3, "sleeps": 4, "failed": 5, "finished": 6}


def ls(store: str, as_json: bool, limit: int, status: str | None, agent: str | None) -> int:
    """Every run: those that need someone first, the newest of each kind before the older ones."""
    with reading(store) as runs:
        listed = [(entry, about_of(entry.label)) for entry in runs.entries(agent=agent)]
        standings = {entry.run_id: _standing(runs, entry, about) for entry, about in listed}
    if status is not None:
        wanted = status.lower()
        listed = [pair for pair in listed if wanted in (_word(standings[pair[0].run_id]), _status(pair[0]))]
    listed.sort(key=lambda pair: _ORDER.get(_word(standings[pair[0].run_id]), 2))  # stable: newest first within a kind
    left_out = max(0, len(listed) - limit) if limit else 0
    listed = listed[: len(listed) - left_out]
    if as_json:
        dump([_described(entry, about, standings[entry.run_id]) for entry, about in listed])
    elif not listed:
        note("no runs" if status is None and agent is None else "no such runs")
    else:
        now = SystemClock().now()
        rows = [
            (entry.run_id, standings[entry.run_id], entry.label.agent if entry.label else "-", about.cycle,
             _in_doubt(entry, about), spent(about.spent, about.budget), ago(now - entry.updated_at),
             safe(about.objective, 60))
            for entry, about in listed
        ]  # fmt: skip
        table(("run", "is", "agent", "cycles", "in doubt", "spent", "changed", "objective"), rows)
    if left_out:
        note(f"{left_out} more; --limit 0 lists all")
    return 0


def _status(entry: RunEntry) -> str:
    return entry.label.status if entry.label else ""


def _word(stands: str) -> str:
    return stands.partition(",")[0]


def _standing(runs: RunStore, entry: RunEntry, about: About) -> str:
    parked = _status(entry) == PARKED and about.kind in WAITS_FOR_A_PERSON and not entry.live
    try:
        if parked and answered(runs, entry.run_id):
            return "answered, resume"
    except IndelibleError:
        pass  # `verify` tells of it
    return standing(_status(entry), entry.live, about.kind, about.failed_tasks)


def _in_doubt(entry: RunEntry, about: About) -> str:
    """How many deeds are in doubt; those of a process at work may just be going on."""
    if not about.in_doubt:
        return "-"
    return "under way" if entry.live and _status(entry) == RUNNING else str(about.in_doubt)


def _described(entry: RunEntry, about: About, stands: str) -> dict[str, Any]:
    return {
        "run": entry.run_id,
        "is": stands,
        "status": _status(entry) or None,
        "agent": entry.label.agent if entry.label else None,
        "objective": about.objective,
        "cycles": about.cycle,
        "kind": about.kind or None,
        "question": about.question or None,
        "in_doubt": about.in_doubt,
        "failed_tasks": about.failed_tasks,
        "spent_usd": about.spent,
        "budget_usd": about.budget,
        "wake_at": iso(entry.label.wake_at or 0.0) if entry.label else None,
        "live": entry.live,
        "owner": describe(entry.owner) if entry.owner else None,
        "events": entry.head,
        "stored_bytes": entry.stored_bytes,
        "created_at": iso(entry.created_at),
        "updated_at": iso(entry.updated_at),
    }


def inbox(store: str, as_json: bool) -> int:
    """Everything that waits for a person, the longest wait first, with the command that answers it."""
    items: list[dict[str, Any]] = []
    unreadable = 0
    with reading(store) as runs:
        for entry in runs.entries():
            about = about_of(entry.label)
            waits = _status(entry) == PARKED and about.kind in WAITS_FOR_A_PERSON
            failed = _status(entry) == FAILED
            if not waits and not about.in_doubt and not failed:
                continue
            try:
                items += _waiting(runs, entry, store)
                if failed:
                    items += [_left(entry, deed, store) for deed in Deeds.of(runs.events(entry.run_id))
                              if deed.became == ORPHANED]  # fmt: skip
            except IndelibleError as error:
                unreadable += 1
                note(f"run {safe(entry.run_id)}: {safe(error.what)}")
                note(f"  try: {safe(command('verify', entry.run_id, store=store))}")
    items.sort(key=lambda item: item["at"])
    if as_json:
        dump([{**item, "at": iso(item["at"])} for item in items])
    elif not items and not unreadable:
        note("nothing waits for a person")
    else:
        for item in items:
            _say(item)
    return 1 if unreadable else 0


def _say(item: dict[str, Any]) -> None:
    say(f"{safe(item['run'])}  {item['kind']}  since {moment(item['at'])}")
    say(f"  {safe(item['question'])}")
    for name, value in item["details"].items():
        say(f"  {name}: {brief(value)}")
    if item["said"] is not None:
        say(f"  said: {brief(item['said'])}, not taken in yet")
    verb = "see" if item["kind"] == "orphaned" else "go on" if item["said"] is not None else "answer"
    say(f"  {verb}: {safe(item['command'])}")
    say()


def _waiting(runs: RunStore, entry: RunEntry, store: str) -> list[dict[str, Any]]:
    record = runs.recover(entry.run_id).record
    said = pending(runs, record)
    onward = command("resume", record.run_id, f"AGENT.py:{record.agent}", store=store)
    items = []
    wait = record.open_wait
    if wait is not None and wait.kind in WAITS_FOR_A_PERSON and wait.kind != "doubt":
        answer = said.answers.get(wait.wait)
        items.append({
            "run": record.run_id, "agent": record.agent, "kind": wait.kind, "wait": wait.wait, "at": wait.since,
            "question": wait.question, "details": _details(wait),
            "said": jsonable(unpack(answer.value)) if answer else None,
            "command": onward if answer else answer_command(record, wait, store),
        })  # fmt: skip
    asked = wait.wait.partition(":")[2] if wait is not None and wait.kind == "doubt" else ""
    for call in record.in_doubt():
        if entry.live and call.call != asked:
            continue  # it is being done just now
        settlement = said.settlements.get(call.call)
        question = wait.question if wait is not None and call.call == asked else _doubt(record, call)
        items.append({
            "run": record.run_id, "agent": record.agent, "kind": "doubt", "wait": f"doubt:{call.call}",
            "at": wait.since if wait is not None and call.call == asked else record.updated_at,
            "question": question,
            "details": {"args": jsonable(unpack(call.args)) if call.args else {}, "key": call.key},
            "said": _verdict(settlement.happened) if settlement else None,
            "command": onward if settlement else settle_command(record, call, store),
        })  # fmt: skip
    return items


def _left(entry: RunEntry, deed: Deed, store: str) -> dict[str, Any]:
    """A deed of a failed run that no committed cycle speaks of: a retry may still claim it, or a person undoes it."""
    return {
        "run": entry.run_id, "agent": entry.label.agent if entry.label else "", "kind": "orphaned", "wait": "",
        "at": deed.at, "question": f"{deed.name} was done ({deed.call}), and then its run failed. It still stands.",
        "details": {"args": jsonable(unpack(deed.args)) if deed.args else {}, "key": deed.key}, "said": None,
        "command": command("effects", entry.run_id, store=store),
    }  # fmt: skip


def _details(wait: Wait) -> dict[str, Any]:
    detail: Any = jsonable(unpack(wait.detail)) if wait.detail else {}
    return detail if isinstance(detail, dict) else {"detail": detail}


def _doubt(record: Record, call: CallRecord) -> str:
    if record.status == RUNNING and call.call in record.calls:
        return f"{call.name} was cut off. A resume asks its probe first, and you only if that cannot tell."
    return f"Did {call.name} happen? Its intent is recorded, its outcome is not, and no code waits for it any more."


def _verdict(happened: bool) -> str:
    return "it happened" if happened else "it did not happen"


def answer_command(record: Record, wait: Wait, store: str) -> str:
    """How to answer a wait."""
    return command("answer", record.run_id, ANSWERS.get(wait.kind, "TEXT"), store=store)


def settle_command(record: Record, call: CallRecord, store: str) -> str:
    """How to settle an action in doubt."""
    return command("settle", record.run_id, call.call, "--happened | --did-not-happen", store=store)
