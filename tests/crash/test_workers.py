"""Workers that are killed or told to stop: every run finishes, no deed is done twice, no run by two at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import pytest

import indelible as ind
from indelible.runtime.verify import verify
from indelible.testing.ledger import Ledger
from tests.crash.working_agent import CYCLES, ahauler, hauler
from tests.servers.postgres import server

AGENT = Path(__file__).with_name("working_agent.py")


class WorkerProcess:
    """`indelible worker` in a process of its own, which may stop at a moment and say so."""

    def __init__(self, folder: Path, url: str, stop: str = "", *words: str, concurrency: int = 2) -> None:
        self.complaints = folder / f"complaints-{len(list(folder.glob('complaints-*')))}"
        with self.complaints.open("wb") as complaints:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "indelible", "worker", f"{AGENT}:hauler", "--agent", f"{AGENT}:ahauler",
                 "--store", url, "--concurrency", str(concurrency), "--poll", "0.05", "--json", *words],
                cwd=folder,
                env={**os.environ, "STOP": stop},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
            )  # fmt: skip

    def hear(self, wanted: str) -> None:
        """Wait until it says that."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == wanted or (line.startswith("{") and json.loads(line)["event"] == wanted):
                return
        raise AssertionError(f"it ended without {wanted!r}: {self.complaints.read_text()}")

    def tell(self) -> None:
        """Let it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Its exit code, once it has ended by itself or by a signal."""
        self.process.communicate(timeout=60)
        return self.process.returncode

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def names_of(runs: int) -> list[str]:
    return [f"r{n}" for n in range(runs)]


def accept(url: str, runs: int) -> None:
    with ind.open(url) as store:
        for n, name in enumerate(names_of(runs)):
            with store.run(name, ahauler if n % 3 == 2 else hauler, "haul"):
                pass


def many_workers(url: str, folder: Path, *, workers: int, runs: int, kills: int) -> None:
    """`workers` processes work on `runs` runs, one of them is killed `kills` times at the worst moments and started
    again; all end when nothing is left, and the ledger is checked."""
    accept(url, runs)
    with ExitStack() as stack:
        others = [stack.enter_context(WorkerProcess(folder, url, "wait:3", "--until-idle")) for _ in range(workers - 1)]
        for kill in range(kills):
            moment = "die-before:2" if kill % 2 else "die-after:2"
            with WorkerProcess(folder, url, moment) as doomed:
                doomed.hear("held")
                doomed.signal(signal.SIGKILL)
                assert doomed.end() == -signal.SIGKILL
        for other in others:
            other.hear("held")
            other.tell()
        others.append(stack.enter_context(WorkerProcess(folder, url, "", "--until-idle")))
        assert [other.end() for other in others] == [0] * workers
        assert [other.complaints.read_text() for other in others] == [""] * workers
    check_ledger(folder, runs, kills)
    check_store(url, runs)


def check_ledger(folder: Path, runs: int, kills: int) -> None:
    deeds = Ledger(folder / "ledger").read()
    hauls = [deed.what.rsplit(" ", 1)[0] for deed in deeds if deed.kind == "haul"]
    assert sorted(hauls) == sorted(f"{name} {n}" for name in names_of(runs) for n in range(1, CYCLES + 1))
    assert len({deed.process for deed in deeds}) > kills
    rows: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for deed in deeds:
        name, _, epoch = deed.what.split()
        rows[name].append((int(epoch), deed.process))
    for name, seen in rows.items():
        epochs = [epoch for epoch, _ in seen]
        assert epochs == sorted(epochs), f"{name} was worked on under an epoch that had passed: {seen}"
        processes: dict[int, set[int]] = defaultdict(set)
        for under, process in seen:
            processes[under].add(process)
        assert all(len(some) == 1 for some in processes.values()), f"two processes in one epoch of {name}: {seen}"


def check_store(url: str, runs: int) -> None:
    with ind.open(url) as store:
        for name in names_of(runs):
            record = store.recover(name).record
            assert (record.status, record.committed, record.in_doubt()) == ("finished", CYCLES, [])
            assert not verify(store, name).faults
        assert not any(entry.live for entry in store.entries())


@pytest.mark.parametrize(
    "planted",
    [
        [("haul", "r0 1 1", 7), ("haul", "r0 2 1", 7), ("haul", "r0 3 1", 7), ("haul", "r0 3 2", 8)],
        [("haul", "r0 1 1", 7), ("haul", "r0 2 2", 8), ("enter", "r0 2 1", 7), ("haul", "r0 3 2", 8)],
        [("haul", "r0 1 1", 7), ("haul", "r0 2 1", 8), ("haul", "r0 3 1", 7)],
        [("haul", "r0 1 1", 7), ("haul", "r0 2 2", 8)],
    ],
    ids=["a deed twice", "an epoch that had passed", "two at once", "a deed missing"],
)
def test_a_ledger_that_is_wrong_is_found(planted: list[tuple[str, str, int]], tmp_path: Path) -> None:
    rows = [json.dumps([kind, what, "", 0.0, process, False]) for kind, what, process in planted]
    (tmp_path / "ledger").write_text("\n".join(rows) + "\n", encoding="utf-8")
    with pytest.raises(AssertionError):
        check_ledger(tmp_path, 1, 0)


def test_three_workers_one_of_which_is_killed_twice_finish_all_and_do_nothing_twice(tmp_path: Path) -> None:
    """B10, B50, B54, B102: on one SQLite file; a deed was done and not recorded, and one was intended and not done."""
    many_workers(str(tmp_path / "agent.db"), tmp_path, workers=3, runs=12, kills=2)


@pytest.fixture
def postgres() -> str:
    return server().database()


def test_four_workers_on_postgresql_one_of_which_is_killed_again_and_again(postgres: str, tmp_path: Path) -> None:
    """B10, B50, B54, B102: 25 runs; the fencing shows in the ledger."""
    many_workers(postgres, tmp_path, workers=4, runs=25, kills=4)


def test_a_server_that_is_killed_and_comes_back_is_waited_for(postgres: str, tmp_path: Path) -> None:
    """B53, B54: in the middle of two deeds, with runs left to claim; nothing is lost and none is dropped."""
    accept(postgres, 8)
    with WorkerProcess(tmp_path, postgres, "wait:3", "--until-idle") as worker:
        worker.hear("held")
        server().kill()
        try:
            worker.tell()
        finally:
            server().start()
        assert worker.end() == 0
    check_ledger(tmp_path, 8, 0)
    check_store(postgres, 8)


def held_worker(folder: Path, url: str, *words: str) -> WorkerProcess:
    accept(url, 1)
    return WorkerProcess(folder, url, "wait:2", *words)


def test_sigterm_drains(tmp_path: Path) -> None:
    """B101: the cycle under way is ended, nothing else begins, the lease is let go of, and the exit code is 0."""
    url = str(tmp_path / "agent.db")
    with held_worker(tmp_path, url) as worker:
        worker.hear("held")
        worker.signal(signal.SIGTERM)
        worker.hear("draining")
        worker.tell()
        worker.hear("stopped")
        assert worker.end() == 0
    with ind.open(url, readonly=True) as store:
        (entry,) = store.entries()
        record = store.recover("r0").record
        assert (entry.owner, record.status, record.committed, record.in_doubt()) == ("", "running", 2, [])


@pytest.mark.parametrize("way", ["a second signal", "no grace"])
def test_a_stop_at_once_is_to_the_runs_as_a_crash(way: str, tmp_path: Path) -> None:
    """B101: what it was doing is probed by whoever takes the run over, and not done twice."""
    url = str(tmp_path / "agent.db")
    with held_worker(tmp_path, url, *(["--grace", "0"] if way == "no grace" else [])) as worker:
        worker.hear("held")
        worker.signal(signal.SIGTERM)
        worker.hear("draining")
        if way == "a second signal":
            worker.signal(signal.SIGTERM)
        assert worker.end() == 128 + signal.SIGTERM
    with WorkerProcess(tmp_path, url, "", "--until-idle") as other:
        other.hear("taken over")
        assert other.end() == 0
    check_ledger(tmp_path, 1, 1)
    check_store(url, 1)


def test_a_worker_waits_for_runs_that_are_not_there_yet(tmp_path: Path) -> None:
    """B09: what was accepted by another process is durable, and is found."""
    url = str(tmp_path / "agent.db")
    with WorkerProcess(tmp_path, url) as worker:
        worker.hear("working")
        command = [sys.executable, "-m", "indelible", "submit", f"{AGENT}:hauler", "haul", "--store", url]
        told = subprocess.run([*command, "--run-id", "r0"], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert told.stdout == "r0\n"
        worker.hear("finished")
        worker.signal(signal.SIGINT)
        assert worker.end() == 0
    check_store(url, 1)
