"""Every point of a real run on a real file is where SIGKILL strikes once; nothing is lost, nothing is done twice."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from indelible.core.record import Wait
from indelible.runtime.runstore import RunStore
from indelible.testing import crash
from indelible.testing.crash import Rule
from indelible.testing.world import Deed
from tests.figures import tell

AGENTS = Path(__file__).with_name("killed_agents.py")
# A kill takes nothing from the kernel, so memory does as well as a disk; what power loss takes is tested elsewhere.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

RULES = {
    "complete": Rule("repeatable"),
    "row": Rule("idempotent"),
    "mail": Rule("irreversible"),
    "charge": Rule("irreversible"),
    "book": Rule("irreversible"),
    "cancel": Rule("undo"),
}


def person(runs: RunStore, wait: Wait, ledger: list[Deed]) -> None:
    """Answers the question; about a deed in doubt, looks at what was really done."""
    if wait.kind == "ask":
        runs.answer("run", "yes")
        return
    call = wait.wait.partition(":")[2]
    done = [deed for deed in ledger if deed.kind == "charge"]
    runs.settle("run", call, happened=bool(done), result=f"charge {done[0].what}: done" if done else None)


@pytest.mark.parametrize("name", ["steward", "asteward"])
def test_killed_at_every_point_the_run_ends_as_if_nothing_had_happened(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B01, B02, B09: before and after each durable write and each deed, in one process and in its successors."""
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    target = crash.Target(f"{AGENTS}:{name}", "Look after the guests", rules=RULES, reply=person)
    with TemporaryDirectory(dir=MEMORY) as folder:
        report = crash.sweep(target, folder, twice=12)
    tell(f"{name}: {report}")
    assert not report.problems
    assert report.kills > report.points
    # Several deeds at once are reached in this order or that: before one there is a kill, after another, and one that
    # happens once may be missed by a kill that counts points.
    sides = ("before ", "after ") if name == "steward" else ("",)
    struck = {label.partition("-")[0] for label in report.labels}
    struck |= {label.partition(" ")[2] for label in struck}
    deeds = [
        f"{'a' * (name == 'asteward')}{deed}" for deed in ("complete", "research", "put_row", "charge", "mail", "book")
    ]
    expected = {f"{side}{what}" for side in sides for what in (*deeds, f"undo:{deeds[-1]}", "append", "put_snapshot")}
    missed = expected - struck
    assert len(missed) <= (0 if name == "steward" else 2), missed
