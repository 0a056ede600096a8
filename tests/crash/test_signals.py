"""SIGINT and SIGTERM with nothing but the library: the process ends, the run is whole, and another process goes on."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

import indelible as ind
from indelible.runtime.verify import verify
from indelible.testing.ledger import Ledger
from tests.crash.held_agent import ALL, apatient, patient
from tests.crash.live import HELD, Live

INT, TERM = signal.SIGINT, signal.SIGTERM


@pytest.mark.parametrize(
    ("agent", "place", "number", "manners", "ends_with"),
    [
        *(("patient", place, INT, "", -INT) for place in ("cycle", "deed", "commit")),
        *(("patient", place, TERM, "polite", 143) for place in ("cycle", "deed", "commit")),
        ("patient", "deed", TERM, "", -TERM),
        *(("apatient", place, INT, "", -INT) for place in ("cycle", "deed")),
        ("apatient", "deed", TERM, "polite", 143),
    ],
)
def test_a_signal_ends_the_process_and_nothing_else(
    agent: str,
    place: str,
    number: signal.Signals,
    manners: str,
    ends_with: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B21, B25, B101: it does not come back as complete, with fewer tasks or with the first one twice."""
    monkeypatch.chdir(tmp_path)
    with Live(tmp_path, HELD, "agent.db", "r", place, agent, manners) as first:
        assert first.hear() == f"in a {place}"
        first.process.send_signal(number)
        status, _ = first.end()
        assert status == ends_with
    with ind.open("agent.db", readonly=True) as runs:
        assert not verify(runs, "r").faults
        record = runs.recover("r").record
        assert (record.status, record.committed, record.attempt) == ("running", 0, 1)
        assert record.doc["tasks"][1] == 2
        assert [call.name.removeprefix("a") for call in record.in_doubt()] == (["deed"] if place == "deed" else [])
        (entry,) = runs.entries()
        assert not entry.live
    if agent == "patient":
        assert patient.run(store="agent.db", run_id="r").result == ALL
    else:
        assert asyncio.run(apatient.run(store="agent.db", run_id="r")).result == ALL
    assert [deed.what for deed in Ledger("ledger").read()] == ["a1", "a2", "b1", "b2"]
    with ind.open("agent.db", readonly=True) as runs:
        assert not verify(runs, "r").faults
        found = runs.recover("r").record
        assert (found.status, found.committed, found.in_doubt()) == ("finished", 2, [])
