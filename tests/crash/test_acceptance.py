"""A run that was accepted exists, and one that was not does not."""

from __future__ import annotations

from pathlib import Path

import pytest

import indelible as ind
from indelible.core.codec import unpack
from indelible.runtime.labels import about_of
from indelible.testing.crash import KILLED, Zygote
from indelible.testing.ledger import Ledger

AGENT = f"{Path(__file__).with_name('killed_agents.py')}:steward"
BEFORE_ACCEPTANCE, AFTER_ACCEPTANCE = "3", "4"  # the claim has two points, then comes the first append
TIMES = 20


def test_killed_right_after_acceptance_the_run_is_listed_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B09: twenty of twenty."""
    monkeypatch.chdir(tmp_path)
    with Zygote() as zygote:

        def start(number: int, kill_at: str) -> int:
            run_id = f"run-{number}"
            return zygote.run(str(tmp_path), [f"points-{number}", kill_at, AGENT, "agent.db", run_id, f"Task {number}"])

        assert [start(n, AFTER_ACCEPTANCE) for n in range(TIMES)] == [KILLED] * TIMES
        with ind.open("agent.db", readonly=True) as runs:
            listed = {entry.run_id: entry for entry in runs.entries()}
            assert set(listed) == {f"run-{n}" for n in range(TIMES)}
            for n in range(TIMES):
                entry, record = listed[f"run-{n}"], runs.recover(f"run-{n}").record
                assert entry.label is not None
                assert (entry.label.status, entry.live, about_of(entry.label).objective) == (
                    "running",
                    False,
                    f"Task {n}",
                )
                assert unpack(record.objective) == f"Task {n}"
                assert record.doc["tasks"][1]
        assert Ledger("ledger").read() == []
        assert [start(n, "0") for n in range(TIMES)] == [0] * TIMES
    with ind.open("agent.db", readonly=True) as runs:
        assert {runs.recover(f"run-{n}").record.waiting.partition(":")[0] for n in range(TIMES)} == {"ask"}


def test_killed_before_acceptance_there_is_no_run_and_its_id_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Zygote() as zygote:
        assert zygote.run(str(tmp_path), ["points", BEFORE_ACCEPTANCE, AGENT, "agent.db", "r", "One"]) == KILLED
        with ind.open("agent.db", readonly=True) as runs:
            assert list(runs.entries()) == []
            with pytest.raises(ind.errors.UnknownRun):
                runs.recover("r")
        assert zygote.run(str(tmp_path), ["points", "0", AGENT, "agent.db", "r", "Another"]) == 0
    with ind.open("agent.db", readonly=True) as runs:
        assert unpack(runs.recover("r").record.objective) == "Another"
