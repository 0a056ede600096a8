"""The researcher on Indelible, as the demonstration looks at it from outside.

Owns: what a journal and a Maildir must hold after the kills.
Must never: open the store for writing.
Invariant: an expectation comes from the uninterrupted run, or from what was seen at the kills, not from the run itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indelible.agents import researcher
from indelible.agents.corpus import Corpus
from indelible.cli.demo_evidence import (
    Line,
    exactly,
    kill_lines,
    mail_id,
    mail_line,
    quote_line,
    sort_calls,
)
from indelible.cli.demo_killing import HELD, Course, Standing
from indelible.cli.demo_room import RUN_ID, Room
from indelible.core import events as ev
from indelible.core.changes import DONE, FAILED, ITEMS, NEXT_ID, REMOVED
from indelible.core.codec import GENERIC, to_json, unpack
from indelible.core.natural import natural
from indelible.core.record import COMPLETED, Record, fold
from indelible.runtime.runstore import open_runs
from indelible.runtime.verify import Report, verify

ASK, DELIVER = "ask_model", "deliver_to_maildir"


@dataclass(frozen=True)
class Telling:
    """What a journal tells."""

    record: Record
    events: list[ev.Event]
    report: Report
    snapshot_bytes: int
    dump_bytes: int
    """What JSON dumps of the state after each cycle would have written."""


def told(room: Room) -> Telling:
    """Read and verify a run's journal."""
    record, events, dumps = Record(RUN_ID), [], 0
    with open_runs(room.store, readonly=True) as runs:
        for seq, event in runs.events(RUN_ID):
            fold(record, seq, event)
            events.append(event)
            if isinstance(event, ev.CycleCommitted):
                dumps += len(json.dumps(to_json(natural(record.doc, GENERIC)), ensure_ascii=False).encode())
        report = verify(runs, RUN_ID)
        found = [runs.store.get_snapshot(RUN_ID, seq) for seq in report.snapshots]
    return Telling(record, events, report, sum(len(each[1]) for each in found if each), dumps)


class Durable:
    """The researcher, run by Indelible."""

    module = "indelible.cli.demo_child"

    def standing(self, room: Room) -> Standing:
        """See `Subject.standing`."""
        with open_runs(room.store, readonly=True) as runs:
            events = [event for _, event in runs.events(RUN_ID)]
            record = runs.recover(RUN_ID).record
        kept = frozenset(e.call for e in events if isinstance(e, ev.ActionCompleted) and e.name == ASK)
        usable = [call for call in record.calls.values() if call.status == COMPLETED]
        waiting = len(record.doc["tasks"][ITEMS])
        unrecorded = any(call.name == DELIVER for call in record.in_doubt())
        return Standing(record.cycle, waiting, f"after event {record.seq}", unrecorded, kept, len(usable))

    def resumed(self, standing: Standing) -> str:
        """See `Subject.resumed`."""
        doubt = " and 1 deed in doubt, to be probed" if standing.unrecorded else ""
        answers = f"{standing.usable} answer{'s' * (standing.usable != 1)}"
        return f"cycle {standing.cycle} is entered again, with {answers} from the journal{doubt}"

    def evidence(self, course: Course, reference: Course, wanted: int, corpus: Corpus, comparable: bool) -> list[Line]:
        """The table."""
        run, calm = told(course.room), told(reference.room)
        return [
            *kill_lines(course, wanted),
            exactly("cycles committed", run.record.committed, calm.record.committed, " in the uninterrupted run")
            if comparable else Line("cycles committed", str(run.record.committed), "-", None),
            *_call_lines(course, reference, run, comparable),
            *_deed_lines(course, run),
            _task_line(run.record),
            *_state_lines(course, reference, run, calm, comparable),
            quote_line(_notes(run.record), corpus),
            Line("journal, verified", _verified(run.report), f"{len(run.events)} events, no fault",
                 run.report.ok and run.report.events == len(run.events)),
            *_byte_lines(course, run),
        ]  # fmt: skip


def _call_lines(course: Course, reference: Course, run: Telling, comparable: bool) -> list[Line]:
    kept = {kill.process + 1: kill.standing.kept for kill in course.kills}
    calls = sort_calls(course.calls, kept)
    lost = calls.lost_in_call + calls.lost_unkept
    needed = len({paid.call for paid in reference.calls}) if comparable else calls.needed
    # Only the last entry of a cycle is the one that commits, and it finds what was kept when it began.
    last = {kill.standing.cycle: kill.standing.usable for kill in course.kills}
    recalled = sum(event.recalled for event in run.events if isinstance(event, ev.CycleCommitted))
    lines = [
        Line("model calls made", str(calls.made), f"{needed} needed + {lost} lost at a kill",
             calls.made == needed + lost),
        exactly("  repeated though durable", calls.repeated, 0),
        Line("  lost in mid-call", str(calls.lost_in_call), f"at most {len(course.kills)}: 1 per kill",
             calls.lost_in_call <= len(course.kills)),
    ]  # fmt: skip
    if calls.lost_unkept:
        # The kill came before the commit of the answer; one that is quick and free waits for the next durable write.
        lines.append(Line("  lost before the commit", str(calls.lost_unkept), "-", None))
    found = exactly("answered from the journal", recalled, sum(last.values()), " kept at the kills")
    return [*lines, found]


def _deed_lines(course: Course, run: Telling) -> list[Line]:
    mails = course.room.mails()
    named = [str(run.record.doc["message_id"][1])]
    ids = [mail_id(mail) for mail in mails]
    happened = [e for e in run.events if isinstance(e, ev.ActionCompleted) and e.source == "probe"]
    did_not = [e for e in run.events if isinstance(e, ev.ActionSettled) and e.by == "its probe"]
    behind = sum(kill.where == HELD for kill in course.kills)
    doubted = sum(kill.standing.unrecorded for kill in course.kills)
    return [
        exactly("deliveries in the Maildir", len(mails), 1),
        Line("  with its Message-ID", str(ids.count(named[0])), "1", ids == named),
        exactly("doubts settled by probe", len(happened) + len(did_not), doubted, " at a kill"),
        exactly("  it found the mail", len(happened), behind, " behind the delivery"),
        exactly("deeds still in doubt", len(run.record.in_doubt()), 0),
    ]


def _task_line(record: Record) -> Line:
    tasks = record.doc["tasks"]
    parts = tasks[DONE], len(tasks[FAILED]), len(tasks[ITEMS])
    known = len(natural(record.doc, GENERIC)["known"])
    return Line("tasks added", str(known), f"{parts[0]} done + {parts[1]} failed + {parts[2]} waiting",
                known == tasks[NEXT_ID] == sum(parts) and not tasks[REMOVED])  # fmt: skip


def _notes(record: Record) -> list[Any]:
    notes: list[Any] = natural(record.doc, researcher.researcher.spec.shape.types)["notes"]
    return notes


def _state(record: Record, room: Room) -> dict[str, Any]:
    """The state as values. The Message-ID comes from a random key, and the folder is another one in each run."""
    state = natural(record.doc, researcher.researcher.spec.shape.types)
    del state["message_id"]
    return {**state, "deliver": state["deliver"].replace(str(room.path), "")}


def _state_lines(course: Course, reference: Course, run: Telling, calm: Telling, comparable: bool) -> list[Line]:
    report = unpack(run.record.result)
    own = mail_line(course, report)
    if not comparable:
        return [own, Line("final state and report", "-", "this model varies", None)]
    mine, other = _state(run.record, course.room), _state(calm.record, reference.room)
    differing = [name for name in other if mine.get(name) != other[name]]
    same = not differing and report == unpack(calm.record.result)
    found = "equal" if same else f"differs: {', '.join(differing) or 'the report'}"
    return [own, Line("final state and report", found, "as in the uninterrupted run", same)]


def _verified(report: Report) -> str:
    return f"{report.events} events" if report.ok else f"{len(report.faults)} faults"


def _byte_lines(course: Course, run: Telling) -> list[Line]:
    files = sum(Path(course.room.store + end).stat().st_size
                for end in ("", "-wal") if Path(course.room.store + end).exists())  # fmt: skip
    written = run.report.stored_bytes + run.snapshot_bytes
    return [
        Line("bytes: journal and snapshots", f"{written:,}",
             f"< {run.dump_bytes:,}, a dump per cycle", written < run.dump_bytes),
        Line("  before compression", f"{run.report.raw_bytes:,}", "-", None),
        Line("  the SQLite file", f"{files:,}", "-", None),
    ]  # fmt: skip
