"""`indelible show`: one run, as it stands.

Owns: how a state is shown, and what else a person needs to judge a run.
Must never: need the agent's code.
Invariant: shows what a resume would start from.
"""

from __future__ import annotations

from typing import Any

from indelible.cli.listing import answer_command, settle_command
from indelible.cli.options import command
from indelible.cli.reading import WAITS_FOR_A_PERSON, pending, reading, recover, standing
from indelible.cli.screen import brief, dollars, dump, iso, jsonable, many, moment, safe, safe_block, say, spent, spread
from indelible.core import events as ev
from indelible.core.changes import (
    ATTEMPTS,
    DONE,
    ERROR,
    FAILED,
    ITEM_VALUE,
    ITEMS,
    LOG_ITEMS,
    LOG_SUMMARY,
    MAP_ENTRIES,
    NOT_BEFORE,
    PRIORITY,
    REMOVED,
    VALUE,
    FieldDoc,
)
from indelible.core.codec import unpack
from indelible.core.record import FAILED as RUN_FAILED
from indelible.core.record import PARKED, RUNNING, Record
from indelible.core.recovery import Recovered
from indelible.errors import IndelibleError
from indelible.runtime.runstore import RunStore
from indelible.stores.base import RunEntry
from indelible.stores.owner import describe

TAKEOVERS = 3


def show(run_id: str, store: str, as_json: bool, limit: int) -> int:
    """Show a run. `limit` is how many items of each queue, log and map; 0 shows all."""
    with reading(store, run_id) as runs:
        entry, found = recover(runs, run_id, "show", store)
        said = pending(runs, found.record)
        takeovers = _takeovers(runs, run_id)
        meter = runs.meter(run_id)
    saved = meter.calls
    record = found.record
    wait = record.open_wait
    stands = standing(record.status, entry.live, wait.kind if wait else "", record.failed_tasks)
    facts = _facts(entry, found, stands)
    facts["pruned_events"] = meter.pruned
    facts["usage"]["saved"] = {
        "usd": saved.saved_usd, "unpriced": saved.saved_unpriced, "tokens": saved.saved_tokens,
        "seconds": saved.saved_seconds,
    }  # fmt: skip
    if as_json:
        facts["state"] = {name: _field(doc) for name, doc in record.doc.items()}
        facts["unknown_fields"] = jsonable(record.unknown_fields)
        facts["takeovers"] = [{"at": iso(t.at), "owner": describe(t.owner), "library": t.library} for t in takeovers]
        facts["said"] = {
            "answers": {name: jsonable(unpack(a.value)) for name, a in said.answers.items()},
            "settlements": {name: s.happened for name, s in said.settlements.items()},
        }
        dump(facts)
        return 0
    _say_facts(facts)
    for line in _next(record, entry, said.answers or said.settlements, store):
        say(line)
    for name, doc in record.doc.items():
        _say_field(name, doc, limit)
    if record.unknown_fields:
        say(f"fields of an older version, kept aside: {safe(', '.join(record.unknown_fields))}")
    say("taken up by:")
    if record.claims > len(takeovers) > 0:
        say(f"  … {many(record.claims - len(takeovers), 'earlier claim')} (indelible log {safe(run_id)})")
    for taken in takeovers:
        say(f"  {moment(taken.at)}  {safe(describe(taken.owner))}  indelible {safe(taken.library)}")
    return 0


def _facts(entry: RunEntry, found: Recovered, stands: str) -> dict[str, Any]:
    record, wait = found.record, found.record.open_wait
    usage = record.usage
    return {
        "run": record.run_id,
        "is": stands,
        "status": record.status,
        "agent": record.agent,
        "version": record.version,
        "objective": jsonable(unpack(record.objective)),
        "started_at": iso(record.started_at),
        "updated_at": iso(record.updated_at),
        "owner": describe(entry.owner) if entry.owner else None,
        "live": entry.live,
        "cycle": record.cycle,
        "attempt": record.attempt,
        "committed": record.committed,
        "events": record.seq,
        "stored_bytes": entry.stored_bytes,
        "usage": {
            "calls": usage.calls, "from_journal": usage.recalled, "tokens_in": usage.tokens_in,
            "tokens_out": usage.tokens_out, "usd": usage.usd, "unpriced": usage.unpriced,
        },
        "budget_usd": record.budget,
        "waits_for": None if wait is None else {
            "kind": wait.kind, "wait": wait.wait, "question": wait.question, "since": iso(wait.since),
            "wake_at": iso(wait.wake_at), "detail": jsonable(unpack(wait.detail)) if wait.detail else None,
        },
        "in_doubt": [call.call for call in record.in_doubt()],
        "result": jsonable(unpack(record.result)) if record.result else None,
        "error": record.error or None,
        "notices": [*record.notices, *found.notices],
    }  # fmt: skip


def _say_facts(facts: dict[str, Any]) -> None:
    usage = facts["usage"]
    say(f"run {safe(facts['run'])} of agent {safe(facts['agent'])} (state version {facts['version']}): {facts['is']}")
    say(f"objective: {brief(facts['objective'], 500)}")
    held = f", held by {safe(facts['owner'])}" if facts["live"] else ""
    open_cycle = f"in cycle {facts['cycle']}, attempt {facts['attempt']}{held}; "
    at = open_cycle if facts["status"] in (RUNNING, PARKED) else ""
    say(f"{at}{many(facts['committed'], 'cycle')} committed")
    say(
        f"calls: {usage['calls']} made, {usage['from_journal']} from the journal, "
        f"{dollars(usage['usd'], usage['unpriced'])}, {usage['tokens_in']} tokens in, {usage['tokens_out']} out"
    )
    if usage["from_journal"]:
        saved = usage["saved"]
        money = dollars(saved["usd"], saved["unpriced"])
        say(f"  what came from the journal saved {money}, {saved['tokens']} tokens and {saved['seconds']:.1f} s")
    if facts["budget_usd"] is not None:
        say(f"budget: {spent(usage['usd'], facts['budget_usd'])} spent")
    say(f"started {facts['started_at']}, last event {facts['updated_at']} (number {facts['events']})")
    if facts["pruned_events"]:
        say(f"events 1 to {facts['pruned_events']} were pruned; a snapshot stands for them")
    if facts["error"]:
        say(f"error: {safe(facts['error'])}")
    if facts["result"] is not None:
        result = facts["result"]
        say(f"result:\n{safe_block(result)}" if isinstance(result, str) else f"result: {spread(result)}")
    for notice in facts["notices"]:
        say(f"notice: {safe(notice)}")


def _next(record: Record, entry: RunEntry, said: object, store: str) -> list[str]:
    onward = safe(command("resume", record.run_id, f"AGENT.py:{record.agent}", store=store))
    wait = record.open_wait
    lines: list[str] = []
    if wait is not None:
        lines.append(f"waits since {moment(wait.since)}: {safe(wait.question)}")
        if wait.wake_at:
            lines.append(f"  until {moment(wait.wake_at)}; then: {onward}")
        if wait.detail:
            lines.append(f"  {brief(unpack(wait.detail), 300)}")
        if wait.kind in WAITS_FOR_A_PERSON:
            if said:
                lines.append(f"  answered, not taken in yet; go on: {onward}")
            elif wait.kind != "doubt":
                lines.append(f"  answer: {safe(answer_command(record, wait, store))}")
    elif record.status == RUNNING and not entry.live:
        lines.append(f"interrupted; go on: {onward}")
    elif record.status == RUN_FAILED:
        retry = command("resume", record.run_id, f"AGENT.py:{record.agent}", "--retry", store=store)
        lines.append(f"try again: {safe(retry)}")
    if not (entry.live and record.status == "running") and not said:
        lines += [f"in doubt: {safe(settle_command(record, call, store))}" for call in record.in_doubt()]
    return lines


def _takeovers(runs: RunStore, run_id: str) -> list[ev.RunClaimed]:
    claims: list[ev.RunClaimed] = []
    try:
        for _, event in runs.events(run_id):
            if isinstance(event, ev.RunClaimed):
                claims = [*claims, event][-TAKEOVERS:]
    except IndelibleError:
        pass  # shown all the same: a snapshot behind the damage may carry the run; `verify` tells of it
    return claims


def _field(doc: FieldDoc) -> Any:
    """A field of the state for JSON."""
    if doc[0] == "plain":
        return jsonable(doc[VALUE])
    if doc[0] == "log":
        return {"items": [jsonable(item) for item in doc[LOG_ITEMS]], "summary": jsonable(doc[LOG_SUMMARY])}
    if doc[0] == "map":
        return [[jsonable(key), jsonable(value)] for key, value in doc[MAP_ENTRIES].values()]
    return {
        "waiting": [
            {"id": id_, "value": jsonable(item[ITEM_VALUE]), "priority": item[PRIORITY], "attempts": item[ATTEMPTS],
             "not_before": iso(item[NOT_BEFORE] or 0.0)}
            for id_, item in _served(doc)
        ],
        "failed": [
            {"id": id_, "value": jsonable(item[ITEM_VALUE]), "attempts": item[ATTEMPTS], "error": item[ERROR]}
            for id_, item in doc[FAILED].items()
        ],
        "done": doc[DONE],
        "removed": doc[REMOVED],
    }  # fmt: skip


def _served(doc: FieldDoc) -> list[tuple[int, list[Any]]]:
    return sorted(doc[ITEMS].items(), key=lambda pair: (pair[1][PRIORITY], pair[0]))


def _say_field(name: str, doc: FieldDoc, limit: int) -> None:
    if doc[0] == "plain":
        say(f"{safe(name)} = {spread(doc[VALUE])}")
    elif doc[0] == "log":
        items = doc[LOG_ITEMS]
        shown = items[-limit:] if limit else items
        last = f", the last {len(shown)}:" if len(shown) < len(items) else ""
        say(f"{safe(name)}: {many(len(items), 'item')}{last}")
        if doc[LOG_SUMMARY] is not None:
            say(f"  summary: {brief(doc[LOG_SUMMARY], 200)}")
        for item in shown:
            say(f"  {brief(item, 200)}")
    elif doc[0] == "map":
        entries = list(doc[MAP_ENTRIES].values())
        say(f"{safe(name)}: {many(len(entries), 'entry')}")
        for key, value in entries[:limit] if limit else entries:
            say(f"  {brief(key, 60)}: {brief(value, 140)}")
    else:
        _say_queue(name, doc, limit)


def _say_queue(name: str, doc: FieldDoc, limit: int) -> None:
    waiting, failed = _served(doc), list(doc[FAILED].values())
    say(f"{safe(name)}: {len(waiting)} waiting, {doc[DONE]} done, {len(failed)} failed, {doc[REMOVED]} removed")
    for _, item in waiting[:limit] if limit else waiting:
        extra = f", tried {many(item[ATTEMPTS], 'time')}" if item[ATTEMPTS] else ""
        due = f", not before {moment(item[NOT_BEFORE])}" if item[NOT_BEFORE] else ""
        say(f"  [priority {item[PRIORITY]}{extra}{due}] {brief(item[ITEM_VALUE], 160)}")
    if limit and len(waiting) > limit:
        say(f"  … {len(waiting) - limit} more (--limit 0)")
    for item in failed[:limit] if limit else failed:
        say(f"  [failed after {many(item[ATTEMPTS], 'try')}] {brief(item[ITEM_VALUE], 100)}: {safe(item[ERROR], 160)}")
