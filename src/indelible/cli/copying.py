"""`indelible copy`: runs from one store into another.

Owns: which runs are brought, and the words about each.
Must never: end with the first run that cannot be brought; the others are brought, and the exit code tells.
Invariant: the same command, run again, finishes what was interrupted.
"""

from __future__ import annotations

from typing import Any

from indelible.cli.options import FAULT, FINISHED
from indelible.cli.reading import must_exist
from indelible.cli.screen import dump, many, note, safe, say
from indelible.core.arriving import ARRIVING
from indelible.errors import IndelibleError, Misuse
from indelible.runtime.moving import ALREADY, COPIED, Transfer, transfer
from indelible.runtime.runstore import RunStore, open_runs


def copy(source: str, target: str, run_ids: tuple[str, ...], statuses: tuple[str, ...], as_json: bool) -> int:
    """Copy the runs that have ended and move the others: those named, or all, or all of those statuses."""
    if run_ids and statuses:
        raise Misuse("--run names runs, --status chooses them", hint="indelible copy SRC DST --run ID")
    must_exist(source)
    told: list[dict[str, Any]] = []
    with open_runs(source) as there, open_runs(target) as here:
        ids = run_ids or tuple(sorted(_chosen(there, set(statuses) or None)))
        for number, run_id in enumerate(ids, 1):
            if not as_json:
                note(f"{number} of {len(ids)}: {safe(run_id)}")
            told.append(_bring(there, here, run_id, as_json))
    failed = sum("error" in one for one in told)
    if as_json:
        dump(told)
    else:
        written = sum(one.get("written_bytes", 0) for one in told)
        say(f"{many(len(told) - failed, 'run')} in {safe(here.url)}, {written:,} bytes written, {failed} failed")
    return FAULT if failed else FINISHED


def _chosen(runs: RunStore, statuses: set[str] | None) -> list[str]:
    return [
        entry.run_id
        for entry in runs.entries(statuses=statuses)
        if entry.label is not None and entry.label.status != ARRIVING
    ]


def _bring(source: RunStore, target: RunStore, run_id: str, as_json: bool) -> dict[str, Any]:
    try:
        done = transfer(source.store, target.store, run_id, source.clock)
    except IndelibleError as error:
        if not as_json:
            say(f"FAILED {safe(run_id)}: {safe(error.what)}\n  try: {safe(error.hint)}")
        return {"run_id": run_id, "error": error.what, "code": error.code, "hint": error.hint}
    if not as_json:
        say(f"{safe(run_id)}: {_words(done)}")
    return done._asdict()


def _words(done: Transfer) -> str:
    what = f"{done.became}, {done.events} events, {done.stored_bytes:,} bytes, every digest verified"
    if done.became == ALREADY:
        return f"{ALREADY}, {done.status}"
    return what if done.became == COPIED else f"{what}; it goes on there, as {done.status}"
