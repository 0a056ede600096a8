"""A process that forks while it holds a run: the parent goes on, the child can change nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import indelible as ind
from indelible.core import events as ev
from indelible.runtime.verify import verify
from indelible.testing.ledger import Ledger

AGENT = Path(__file__).with_name("forking_agent.py")

REFUSED = "LeaseLost"


@pytest.mark.parametrize(
    ("how", "child"),
    [
        *((how, REFUSED) for how in ("deed", "look", "swallow", "return", "raise", "ask", "finish", "now")),
        ("wait", f"NotDue or {REFUSED}"),
        ("within", REFUSED),
        ("reopen", "RunBusy"),
    ],
)
def test_the_child_of_a_fork_changes_nothing_and_the_parent_goes_on(how: str, child: str, tmp_path: Path) -> None:
    """B105: however the child leaves the cycle it was born in."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(AGENT), how], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    of_child, of_parent = done.stdout.splitlines()
    assert (of_parent, done.returncode, done.stderr) == ("parent: finished", 0, "")
    assert of_child.removeprefix("child: ") in child.split(" or ")
    whats = ["before", "within", "after"] if how == "within" else ["before", "after"]
    assert [deed.what for deed in Ledger(tmp_path / "ledger").read()] == whats
    with ind.open(str(tmp_path / "agent.db"), readonly=True) as runs:
        assert not verify(runs, "r").faults
        told = [ev.kind_of(event) for _, event in runs.events("r")]
        assert told[-2:] == ["cycle.committed", "run.finished"]
        assert told.count("action.intended") == told.count("action.completed") == len(whats)
        assert not set(told) & {"cycle.parked", "cycle.rolled_back", "action.failed", "action.doubted", "run.failed"}
        assert told.count("run.claimed") == told.count("run.started") == 1
        (entry,) = runs.entries()
        assert not entry.live
