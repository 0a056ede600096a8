"""What a run's writes come to on a disk, against the same run on a disk that counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import indelible as ind
from indelible.bill import physical as measuring
from indelible.bill.physical import physical, written
from indelible.drive.clock import SystemClock
from indelible.errors import Misuse, UnknownRun
from indelible.runtime.runstore import RunStore
from indelible.stores.sqlite import SqliteStore


class State(ind.State):
    """What grows."""

    notes: ind.Log[str]


def writing(cycles: int, size: int) -> Any:
    """An agent that writes `size` random bytes in each cycle."""

    @ind.agent(state=State, name="writing")
    def agent(run: ind.Run[State]) -> None:
        run.state.notes.append(run.random.randbytes(size // 2).hex())
        if len(run.state.notes) == cycles:
            run.finish()

    return agent


@pytest.mark.parametrize(("cycles", "size"), [(60, 400), (12, 200_000)])
def test_the_replay_writes_what_the_run_wrote(tmp_path: Path, cycles: int, size: int) -> None:
    """Within a tenth: a run also renews its lease, and its listing grows from write to write."""
    with measuring._CountingDisk() as disk:
        runs = RunStore(SqliteStore(str(tmp_path / "agent.db"), durability="os", vfs=disk.name), SystemClock())
        disk.reset()
        writing(cycles, size).run("o", store=runs, run_id="r")
        live = disk.log_bytes + disk.file_bytes
        again = physical(runs, "r", durability="os")
        runs.close()
    assert again.bytes == pytest.approx(live, rel=0.1)


def test_bytes_and_syncs_are_counted(tmp_path: Path) -> None:
    with ind.open(tmp_path / "agent.db") as runs:
        writing(40, 400).run("o", store=runs, run_id="r")
        meter, found = runs.meter("r"), physical(runs, "r")
        assert found.writes == meter.writes == 42
        assert found.syncs >= found.writes
        assert found.log_bytes > meter.stored_bytes
        assert found.bytes == found.log_bytes + found.file_bytes
        assert found.seconds > 0
        lazy = physical(runs, "r", durability="os")
        assert (lazy.writes, lazy.log_bytes) == (found.writes, found.log_bytes)
        assert lazy.syncs < found.syncs
        assert runs.meter("r") == meter


def test_snapshots_are_written_where_they_were_due(tmp_path: Path) -> None:
    with ind.open("memory:") as runs:
        writing(12, 200_000).run("o", store=runs, run_id="r")
        found, meter = physical(runs, "r", durability="os"), runs.meter("r")
        without = written("r", runs.store.read("r"), durability="os")
    assert found.snapshots == len(meter.snapshots) > 1
    assert without.snapshots == 0
    assert found.bytes > without.bytes + 0.9 * meter.snapshot_bytes


def test_what_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    with ind.open("memory:") as runs:
        with pytest.raises(UnknownRun):
            physical(runs, "r")
        writing(1, 10).run("o", store=runs, run_id="r")
        with pytest.raises(Misuse):
            physical(runs, "r", durability="sometimes")
    assert list(tmp_path.iterdir()) == []
