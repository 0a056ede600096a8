"""`indelible verify`: read everything that is stored of a run, and say whether it agrees.

Owns: how a report is shown.
Must never: change or repair anything.
Invariant: exit code 0 means no fault in any run that was looked at.
"""

from __future__ import annotations

from dataclasses import asdict

from indelible.cli.options import FAULT, FINISHED
from indelible.cli.reading import entry_of, reading
from indelible.cli.screen import dump, note, safe, say
from indelible.errors import Misuse
from indelible.runtime.verify import Report, verify


def check(run_id: str | None, every: bool, store: str, as_json: bool) -> int:
    """Verify one run, or all runs of the store."""
    if (run_id is None) != every:
        raise Misuse("say which run, or --all", hint="indelible verify RUN   # or: indelible verify --all")
    with reading(store, run_id) as runs:
        if run_id is not None:
            entry_of(runs, run_id, "verify", store)
        ids = [run_id] if run_id is not None else sorted(entry.run_id for entry in runs.entries())
        reports = [verify(runs, each) for each in ids]
    if as_json:
        dump([{**asdict(report), "ok": report.ok} for report in reports])
    else:
        for report in reports:
            _say(report)
        if every:
            say(f"{len(reports)} runs, {sum(not report.ok for report in reports)} with faults")
    return FINISHED if all(report.ok for report in reports) else FAULT


def _say(report: Report) -> None:
    ratio = f", {report.stored_bytes / report.raw_bytes:.2f} of the raw bytes" if report.raw_bytes else ""
    many = f"{report.events} events in {report.batches} batches, {report.stored_bytes} bytes stored{ratio}"
    kept = f", {len(report.snapshots)} snapshots" if report.snapshots else ""
    say(f"{'ok    ' if report.ok else 'FAULTY'} {safe(report.run_id)}: {many}{kept}")
    if report.pruned:
        say(f"  events 1 to {report.pruned} were pruned; the snapshot that stands for them verifies")
    if report.torn:
        say(f"  torn tail {safe(report.torn)}; a resume cuts it off")
    if report.inbox_torn:
        say(f"  inbox: {safe(report.inbox_torn)}")
    if report.kept_aside:
        say(f"  {report.kept_aside} torn batches were cut off earlier and are kept aside")
    for fault in report.faults:
        say(f"  {safe(fault)}")
    if not report.ok:
        note(f"run {safe(report.run_id)} has {len(report.faults)} faults; nothing was changed")
