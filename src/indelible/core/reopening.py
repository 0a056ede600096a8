"""Reopening: a run that has failed is taken up again.

Owns: which runs can be, and which of their given-up tasks go back into their queues.
Must never: let a deed that still stands be done again.
Invariant: the run is as it was when its last cycle was entered first, but for what that cycle
is known to have done; deeds in doubt stay in doubt.
"""

from __future__ import annotations

from typing import Any, cast

from indelible.core import events as ev
from indelible.core.arriving import must_not_be_elsewhere
from indelible.core.budgets import at_opening
from indelible.core.changes import FAILED as FAILED_ITEMS
from indelible.core.changes import Change
from indelible.core.codec import pack
from indelible.core.cycle import Live
from indelible.core.record import FAILED, FINISHED, Record
from indelible.core.recovery import fit, migrate
from indelible.core.requests import NOW, Append, Steps
from indelible.core.state import Workspace
from indelible.errors import Misuse


def reopen(live: Live, claimed: ev.RunClaimed | None, budget: float | None = None) -> Steps[None]:
    """Take a failed run up again; durable when it returns. `claimed` is what its opening has not written yet.

    Raises `Misuse` if it has not failed, and what `fit` raises, so that no run is reopened which this code could
    not go on with; then nothing is written.
    """
    must_have_failed(live.record)
    moved = fit(live)
    if claimed is not None:
        yield Append(claimed)
    yield from migrate(live, moved)
    yield from at_opening(live, budget)
    at = yield NOW
    yield Append(ev.RunReopened(at, pack(cast(Any, revived(live.record)))), durable=True)
    live.workspace = Workspace(live.agent.shape, live.record.doc)


def must_have_failed(record: Record) -> None:
    """Refuse a run that can simply go on, or that is over."""
    if record.status == FAILED:
        return
    must_not_be_elsewhere(record)
    run_id = record.run_id
    if record.status == FINISHED and record.failed_tasks:
        queue = next(name for name, field in record.doc.items() if field[0] == "queue" and field[FAILED_ITEMS])
        what = f"run {run_id!r} is finished, and what is finished is not taken up again; tasks that it gave up: " \
            f"{record.failed_tasks}"  # fmt: skip
        hint = (
            f"run.state.{queue}.retry_failed()   # in the cycle, before run.finish(); this run's tasks need a new run"
        )
    elif record.status == FINISHED:
        what, hint = f"run {run_id!r} is finished; there is nothing to retry", f"indelible show {run_id}"
    else:
        what, hint = f"run {run_id!r} has not failed; it simply goes on", f"indelible resume {run_id}   # without retry"
    raise Misuse(what, hint=hint, run=run_id)


def revived(record: Record) -> list[Change]:
    """The given-up tasks that go back, as changes. One whose deeds in an earlier cycle still stand stays where it is:
    done again, it would repeat them; what the last cycle did is found again, as that cycle is open again."""
    held = set(record.standing)
    changes: list[Change] = []
    for name, field in record.doc.items():
        ids = [item for item in field[FAILED_ITEMS] if (name, item) not in held] if field[0] == "queue" else []
        if ids:
            changes.append([name, "revive", ids])
    return changes
