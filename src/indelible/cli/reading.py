"""Reading a store for a command: read-only, with help for ids that are not there.

Owns: how a run is looked up, what its inbox holds that it has not taken in, and how it stands.
Must never: write, claim, or create a store.
Invariant: works while a live process runs the agent, and whatever moment a process died at.
"""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from indelible.cli.options import command
from indelible.cli.screen import many, note, safe
from indelible.core import events as ev
from indelible.core.inbox import inbox_of, open_inbox
from indelible.core.record import FINISHED, Record
from indelible.core.recovery import Recovered
from indelible.errors import IndelibleError, StoreUnavailable, UnknownRun
from indelible.runtime.runstore import RunStore, open_runs
from indelible.stores.base import Query, RunEntry, check_run_id

_PARKED = {"ask": "asks", "approve": "wants approval", "doubt": "in doubt", "sleep": "sleeps", "due": "sleeps",
           "budget": "over budget"}  # fmt: skip
ARCHIVE = "INDELIBLE_ARCHIVE"
"""The environment variable that names the store to which runs are archived."""
WAITS_FOR_A_PERSON = ("ask", "approve", "diverged", "doubt", "budget", "unpriced")


@contextmanager
def reading(store: str, run_id: str | None = None) -> Iterator[RunStore]:
    """The store, to be read; or the archive, if `run_id` is only there. Raises `StoreUnavailable` if there is none.

    Makes nothing.
    """
    must_exist(store)
    archive = os.environ.get(ARCHIVE, "")
    with open_runs(store, readonly=True) as runs:
        if run_id is None or not archive or _holds(runs, run_id):
            yield runs
            return
        must_exist(archive)
        with open_runs(archive, readonly=True) as archived:
            if _holds(archived, run_id):
                note(f"run {safe(run_id)} is read from the archive {safe(archived.url)}")
                yield archived
            else:
                yield runs


def _holds(runs: RunStore, run_id: str) -> bool:
    return bool(runs.store.list_runs(Query(run_ids=(check_run_id(run_id),))).runs)


def must_exist(store: str) -> None:
    """Say which store there is not, and which there are. Raises `StoreUnavailable`."""
    path = Path(store).expanduser()
    if ":" in store or path.exists() or path.is_symlink():
        return
    others = sorted(other for other in path.parent.glob("*.db") if other.is_file())[:3] if path.parent.is_dir() else []
    near = "  or  ".join(f"--store {shlex.quote(str(other))}" for other in others)
    raise StoreUnavailable(
        f"store={os.path.abspath(path)!r}: there is no such file",
        hint=near or "indelible run AGENT.py:name OBJECTIVE --store PATH   # makes it; or: export INDELIBLE_STORE=PATH",
    )


_REST = {"answer": ("TEXT",), "settle": ("ACTION", "--happened | --did-not-happen")}


def entry_of(runs: RunStore, run_id: str, verb: str, store: str) -> RunEntry:
    """The run's entry. Raises `UnknownRun`, naming ids that are close."""
    found = runs.store.list_runs(Query(run_ids=(check_run_id(run_id),))).runs
    if found:
        return found[0]
    ids = [entry.run_id for entry in runs.entries()]
    close = difflib.get_close_matches(run_id, ids, n=3, cutoff=0.6) or [i for i in ids if i.startswith(run_id)][:3]
    if close:
        hint = "  or  ".join(command(verb, other, *_REST.get(verb, ()), store=store) for other in close)
    else:
        hint = f"indelible ls --store {shlex.quote(runs.url)}"
    raise UnknownRun(f"there is no run {run_id!r} in {runs.url}", hint=hint, run=run_id)


@contextmanager
def about(run_id: str) -> Iterator[None]:
    """Errors raised inside carry the run's id, so that their hint can name it."""
    try:
        yield
    except IndelibleError as error:
        error.ids.setdefault("run", run_id)
        raise


def recover(runs: RunStore, run_id: str, verb: str, store: str) -> tuple[RunEntry, Recovered]:
    """The run as its journal tells it. Raises `UnknownRun`, also for a run that was claimed but never accepted."""
    entry = entry_of(runs, run_id, verb, store)
    if entry.head == 0:
        raise UnknownRun(
            f"run {run_id!r} was never accepted: its process ended before anything was promised",
            hint=f'indelible run AGENT.py:name "OBJECTIVE" --run-id {run_id}   # starts it',
            run=run_id,
        )
    with about(run_id):
        return entry, runs.recover(run_id)


@dataclass
class Pending:
    """What people have said to a run that it has not taken in yet; the first message about a thing counts."""

    answers: dict[str, ev.Answer] = field(default_factory=dict)
    settlements: dict[str, ev.Settlement] = field(default_factory=dict)


def pending(runs: RunStore, record: Record) -> Pending:
    """The run's inbox beyond what its journal has taken in. Raises `JournalDamaged`."""
    found = Pending()
    for seq, message in open_inbox(record.run_id, runs.store.read(inbox_of(record.run_id))).messages:
        if seq <= record.inbox_seq:
            continue
        if isinstance(message, ev.Answer):
            found.answers.setdefault(message.wait, message)
        elif isinstance(message, ev.Settlement):
            found.settlements.setdefault(message.call, message)
    return found


def answered(runs: RunStore, run_id: str) -> bool:
    """Whether a person has said something that the run has not taken in. Its journal is read only if so.

    Raises `JournalDamaged`.
    """
    if not any(True for _ in runs.store.read(inbox_of(run_id))):
        return False
    said = pending(runs, runs.recover(run_id).record)
    return bool(said.answers or said.settlements)


def standing(status: str, live: bool, kind: str, failed_tasks: int = 0) -> str:
    """How a run stands, in a few words; what comes behind a comma is told by the way."""
    if status == "running":
        return "running" if live else "interrupted"
    if status == "parked":
        return _PARKED.get(kind, kind or "parked")
    return f"{status}, {many(failed_tasks, 'task')} failed" if status == FINISHED and failed_tasks else status
