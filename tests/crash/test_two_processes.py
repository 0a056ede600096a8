"""Two processes that want the same run: one works on it, whatever becomes of the other."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import indelible as ind
from indelible.drive.clock import SystemClock
from indelible.errors import LeaseLost, RunBusy
from indelible.runtime.runstore import RunStore
from indelible.runtime.verify import verify
from indelible.stores.sqlite import SqliteStore
from indelible.testing.ledger import Ledger
from tests.crash import held_agent
from tests.crash.held_agent import ALL, patient
from tests.crash.live import HELD, Live


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def held(folder: Path, place: str = "cycle") -> Live:
    return Live(folder, HELD, "agent.db", "r", place)


def deeds() -> list[str]:
    return [deed.what for deed in Ledger("ledger").read()]


def later(seconds: float) -> RunStore:
    """The store as it will be seen then: leases that end before have run out."""
    return RunStore(SqliteStore("agent.db", clock=lambda: time.time() + seconds), SystemClock())


def check_journal() -> None:
    with ind.open("agent.db", readonly=True) as runs:
        assert not verify(runs, "r").faults
        record = runs.recover("r").record
        assert (record.status, record.committed, record.in_doubt()) == ("finished", 2, [])


def test_a_second_live_process_is_refused_before_any_deed(tmp_path: Path) -> None:
    """B01: whatever the number of hosts, one works."""
    with held(tmp_path) as first:
        assert first.hear() == "in a cycle"
        with held(tmp_path, "nowhere") as second:
            assert second.hear() == "RunBusy"
            status, complaint = second.end()
        assert (status, deeds()) == (1, ["a1"])
        assert f"process {first.pid} on host" in complaint
        first.tell()
        assert first.hear() == "finished"
        assert first.end() == (0, "")
    assert deeds() == ["a1", "a2", "b1", "b2"]
    check_journal()


@pytest.mark.parametrize("place", ["cycle", "deed", "commit"])
def test_the_run_of_a_killed_process_is_taken_over_at_once(place: str, tmp_path: Path) -> None:
    """B102: no lock of a dead process is in the way, not even while it is a zombie."""
    with held(tmp_path, place) as first:
        assert first.hear() == f"in a {place}"
        first.kill()
        outcome = patient.run("Be patient", store="agent.db", run_id="r")
        assert outcome.result == ALL
    assert deeds() == ["a1", "a2", "b1", "b2"]
    check_journal()


@pytest.mark.parametrize("place", ["cycle", "deed", "commit"])
def test_a_process_that_hung_beyond_its_lease_does_nothing_more(place: str, tmp_path: Path) -> None:
    """B10: it was stopped, another one has done its work, and then it is let go on."""
    with held(tmp_path, place) as first:
        assert first.hear() == f"in a {place}"
        first.stop()
        with later(60) as runs:
            assert patient.run("Be patient", store=runs, run_id="r").result == ALL
            before = list(runs.events("r"))
        first.go_on()
        first.tell()
        assert first.hear() == "LeaseLost"
        status, complaint = first.end()
        assert status == 1
        assert "indelible show r" in complaint
    with ind.open("agent.db") as runs:
        assert list(runs.events("r")) == before
    assert deeds() == ["a1", "a2", "b1", "b2"]
    check_journal()


def test_a_deed_that_takes_longer_than_a_lease_keeps_it() -> None:
    """B10: the lease is renewed while the model thinks, so nobody else takes the run."""
    now = [1000.0]
    with RunStore(SqliteStore("agent.db", clock=lambda: now[0]), SystemClock()) as runs:
        refused: list[str] = []

        def slow(place: str) -> None:
            for _ in range(6) if place == "deed" else ():
                now[0] += 20
                runs._renewer.renew()
                with RunStore(SqliteStore("agent.db", clock=lambda: now[0]), SystemClock()) as others:
                    with pytest.raises(RunBusy):
                        patient.run("Be patient", store=others, run_id="r")
                    refused.append(place)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(held_agent, "stop_at", slow)
            assert patient.run("Be patient", store=runs, run_id="r").result == ALL
        assert refused == ["deed"] * 6


def test_one_who_was_taken_over_does_not_take_the_run_back_by_renewing() -> None:
    """B102: the former holder renews after its successor has let go, and must not block the run again."""
    with ind.open("agent.db") as runs, runs.run("r", patient, "Be patient") as run:
        with later(60) as others, others.run("r", patient):
            pass
        runs._renewer.renew()
        with pytest.raises(LeaseLost), run.cycle():
            pass
        assert not run.is_active
        (entry,) = runs.entries()
        assert (entry.owner, entry.live) == ("", False)
        with ind.open("agent.db") as others, others.run("r", patient) as again:
            assert again.is_active
