"""`indelible export` and `indelible import`: a run in one file.

Owns: what is said of the file. The file is a SQLite store that holds this one run, so that every command reads it, and
`copy` carries it on.
Must never: write into a file that holds anything else.
Invariant: the file is written like any store: interrupted, it is not whole, and says so; the same command finishes it.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from indelible.cli.options import FINISHED
from indelible.cli.reading import entry_of, must_exist
from indelible.cli.screen import dump, note, safe, say
from indelible.core.arriving import ARRIVING
from indelible.core.record import MOVED, PARKED, RUNNING
from indelible.errors import JournalDamaged, Misuse
from indelible.runtime.moving import Transfer, transfer
from indelible.runtime.runstore import RunStore, open_runs


def export(run_id: str, output: str, move: bool, store: str, as_json: bool) -> int:
    """Copy a run that has ended into a file; with `move`, move one that has not. Durable."""
    must_exist(store)
    path = Path(output).expanduser()
    with open_runs(store) as runs:
        entry = entry_of(runs, run_id, "export", store)
        status = entry.label.status if entry.label else ""
        if status in (RUNNING, PARKED) and not move:
            raise Misuse(
                f"run {run_id!r} has not ended: in two places it would do its deeds twice",
                hint=f"indelible export {shlex.quote(run_id)} -o {shlex.quote(output)} --move   # it leaves this store",
                run=run_id,
            )
        _must_be_ours(path, run_id)
        with open_runs(str(path)) as file:
            done = transfer(runs.store, file.store, run_id, runs.clock)
    return _told(done, str(path), as_json)


def bring_in(file: str, store: str, as_json: bool) -> int:
    """Bring the run in the file into the store; one that has not ended goes on there. Durable."""
    path = Path(file).expanduser()
    must_exist(str(path))
    with open_runs(str(path), readonly=True) as opened:
        ids = _ids(opened)
    if len(ids) != 1:
        raise Misuse(
            f"{path} holds {len(ids)} runs; a file to import holds one",
            hint=f"indelible copy {shlex.quote(file)} {shlex.quote(store)}",
        )
    with open_runs(str(path)) as opened, open_runs(store) as runs:
        try:
            done = transfer(opened.store, runs.store, ids[0], runs.clock)
        except JournalDamaged as error:  # of the file, which is what was read
            error.hint = f"indelible verify {shlex.quote(ids[0])} --store {shlex.quote(file)}"
            raise
        return _told(done, runs.url, as_json)


def _must_be_ours(path: Path, run_id: str) -> None:
    """The file is not there, or what an earlier try has made of it. Raises `Misuse`."""
    if not path.exists():
        return
    with open_runs(str(path), readonly=True) as file:
        others = [other for other in _ids(file) if other != run_id]
    if others or not path.is_file():
        raise Misuse(f"{path} exists and holds something else", hint="-o ANOTHER_FILE", run=run_id)


def _ids(runs: RunStore) -> list[str]:
    return [entry.run_id for entry in runs.entries() if entry.label is None or entry.label.status != ARRIVING] or [
        entry.run_id for entry in runs.entries()
    ]


def _told(done: Transfer, where: str, as_json: bool) -> int:
    if as_json:
        dump(done._asdict() | {"where": os.path.abspath(where) if "://" not in where else where})
        return FINISHED
    say(f"{safe(done.run_id)}: {done.became}, {done.events} events, {done.stored_bytes:,} bytes, in {safe(where)}")
    if done.status not in (RUNNING, PARKED, MOVED):
        return FINISHED
    note(f"it goes on there, as {done.status}; here it is marked as moved")
    return FINISHED
