"""The server of a store dies while agents are at work on it: they wait, go on, or are told. All of it real.

What happens when is a handshake: a server is killed inside a deed, and comes back when an agent has begun to wait.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

import indelible as ind
from indelible.drive.clock import SystemClock
from indelible.errors import JournalDamaged, UnknownRun
from indelible.runtime.runstore import RunStore, open_runs
from indelible.stores.redis import RedisStore, RedisStoreWarning
from indelible.testing.conformance_kit import entries, in_threads, refused
from indelible.testing.ledger import Ledger
from tests.crash.held_agent import ALL, patient
from tests.crash.live import HELD, Live
from tests.servers.failover import Pair
from tests.servers.valkey import Aof, ValkeyServer


class Waited(SystemClock):
    """A clock on which nobody waits long: whoever begins to wait has `returns` called instead."""

    def __init__(self, returns: Callable[[], None]) -> None:
        self._returns = returns

    def sleep(self, seconds: float) -> None:
        self._returns()


class Mortal:
    """A server that dies in the deeds of these numbers, and is back when somebody has waited for it."""

    def __init__(self, server: ValkeyServer, folder: Path, deeds: int, deaths: set[int]) -> None:
        self.server, self.deaths, self.deeds = server, deaths, deeds
        self.ledger = Ledger(folder / "ledger")
        self.died = 0
        self._done = 0
        self._down = False
        self._mutex = threading.Lock()

    def agent(self) -> Any:
        """An agent that does `deeds` deeds, each in a cycle of its own."""

        def did(what: str, key: str) -> object:
            found = self.ledger.find("deed", key)
            return ind.happened(found.what) if found else ind.did_not_happen()

        @ind.action(effect="irreversible", probe=did)
        def deed(what: str, *, key: str = "") -> str:
            self.ledger.perform("deed", what, key=key)
            self._may_die()
            return what

        class Memory(ind.State):
            tasks: ind.Queue[int]
            done: ind.Log[str]

        @ind.agent(state=Memory, backoff_s=0, name="worker")
        def worker(run: ind.Run[Memory]) -> None:
            run.state.done.append(deed(f"{run.objective}-{run.state.tasks.take()}"))
            if not run.state.tasks:
                run.finish(list(run.state.done))

        @worker.start
        def begin(run: ind.Run[Memory]) -> None:
            run.state.tasks.extend(range(self.deeds))

        return worker

    def _may_die(self) -> None:
        with self._mutex:
            self._done += 1
            if self._done in self.deaths and not self._down:
                self.server.kill()
                self.died += 1
                self._down = True

    def come_back(self) -> None:
        """Somebody waits."""
        with self._mutex:
            if self._down:
                self.server.start()
                self._down = False


def whole(url: str, run_ids: list[str]) -> None:
    """Every journal verifies from its beginning to its end, and none is missing."""
    with closing(RedisStore(url, readonly=True)) as store:
        assert sorted(entry.run_id for entry in entries(store)) == sorted(run_ids)
        for entry in entries(store):
            batches = list(store.read(entry.run_id))
            assert [batch.after_seq for batch in batches] == [0, *(batch.last_seq for batch in batches[:-1])]
            assert batches[-1].last_seq == entry.head


@pytest.mark.parametrize(
    ("aof", "runs", "deeds", "deaths"), [("always", 4, 6, {3, 9, 15, 20}), ("everysec", 3, 2, {2, 5})]
)
def test_agents_outlive_their_server(aof: Aof, runs: int, deeds: int, deaths: set[int], tmp_path: Path) -> None:
    """Killed again and again in mid-run: agents wait and go on, nothing acknowledged is lost, no deed is done twice."""
    with ValkeyServer(aof) as server:
        mortal = Mortal(server.start(), tmp_path, deeds, deaths)
        worker, names = mortal.agent(), [f"run-{number}" for number in range(runs)]
        outcomes: dict[str, object] = {}

        def work(store: RunStore, name: str) -> None:
            outcomes[name] = worker.run(name, store=store, run_id=name).result

        with pytest.warns(RedisStoreWarning) if aof == "everysec" else nullcontext():
            opened = open_runs(server.url, clock=Waited(mortal.come_back))
        with opened as store:
            in_threads(*(lambda name=name: work(store, name) for name in names))
        assert outcomes == {name: [f"{name}-{number}" for number in range(deeds)] for name in names}
        assert mortal.died >= 2
        deeds_done = Counter(deed.what for deed in mortal.ledger.read())
        assert deeds_done == Counter(f"{name}-{number}" for name in names for number in range(deeds))
        whole(server.url, names)


def test_a_live_agent_outlives_a_failover_that_lost_its_writes(tmp_path: Path) -> None:
    """In the middle of a deed the primary dies, and a replica without the last cycles takes its place."""
    with Pair() as pair:
        mortal = Mortal(pair.primary, tmp_path, 4, set())
        parted: list[int] = []

        def fail_over() -> None:
            if len(mortal.ledger.read()) == 1:
                pair.part()
                parted.append(int(pair.primary.run("HGET", "indelible:{r}:run", "head")))
            elif len(mortal.ledger.read()) == 3:
                parted.append(int(pair.primary.run("HGET", "indelible:{r}:run", "head")))
                pair.fail_over()

        mortal._may_die = fail_over  # type: ignore[method-assign]
        with open_runs(pair.url, clock=Waited(lambda: None)) as store, pytest.warns(RedisStoreWarning) as told:
            outcome = mortal.agent().run("r", store=store, run_id="r")
        assert outcome.result == ["r-0", "r-1", "r-2", "r-3"]
        assert [deed.what for deed in mortal.ledger.read()] == ["r-0", "r-1", "r-2", "r-3"]
        assert f"run 'r': the server had lost events {parted[0] + 1} to {parted[1]}" in str(told[0].message)
        whole(pair.url, ["r"])


def test_a_restarted_agent_is_told_of_a_failover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is gone with what it knew. It does not go on by itself; told to, it finds what was done by asking."""
    monkeypatch.chdir(tmp_path)
    with Pair() as pair:
        with Live(tmp_path, HELD, pair.url, "r", "cycle") as live:
            assert live.hear() == "in a cycle"
            pair.part()
            live.tell()
            assert live.hear() == "finished"
        pair.fail_over()
        assert [deed.what for deed in Ledger("ledger").read()] == ["a1", "a2", "b1", "b2"]
        error = refused(JournalDamaged, lambda: patient.run("Be patient", store=pair.url, run_id="r"))
        assert "a replica has taken the place of the server" in str(error)
        assert "indelible effects r --store" in error.hint
        assert "lost=accept" in error.hint
        assert len(Ledger("ledger").read()) == 4, "nothing was done"


def test_a_restarted_agent_on_a_server_that_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was said when the store was opened, and there is nothing that could be continued silently."""
    monkeypatch.chdir(tmp_path)
    with ValkeyServer(None) as server:
        url = server.start().url
        with pytest.warns(RedisStoreWarning, match="every run on it is lost"):
            store = open_runs(url, durability="os")
        with store:
            assert patient.run("Be patient", store=store, run_id="r").result == ALL
            server.kill()
            server.start()
            refused(UnknownRun, lambda: patient.run(store=store, run_id="r"))
            refused(JournalDamaged, lambda: patient.run("Be patient", store=store, run_id="r"))
        assert len(Ledger("ledger").read()) == 4
    assert not os.path.exists("agent.db")
