"""SIGKILL of the PostgreSQL server, all of it, while agents work: what it acknowledged is there, and they go on."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import indelible as ind
from indelible.errors import StoreUnavailable
from indelible.runtime.verify import verify
from indelible.stores.base import Write
from indelible.stores.postgres import PostgresStore
from indelible.stores.writer import Writer
from indelible.testing.conformance_kit import refused, write
from indelible.testing.ledger import Ledger
from tests.figures import tell
from tests.servers.postgres import PostgresServer

CYCLES = 12
RUNS = 6


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    made = PostgresServer()
    try:
        made.start()
        yield made
    finally:
        made.close()


class Outages:
    """Kills the server when so many deeds are done, and has it started again meanwhile."""

    def __init__(self, server: PostgresServer, ledger: Ledger, at: set[int]) -> None:
        self.server, self.ledger, self.at = server, ledger, at
        self.count = 0
        self.done = 0
        self._mutex = threading.Lock()
        self._starting: list[threading.Thread] = []

    def perform(self, what: str, key: str) -> str:
        told = self.ledger.perform("charge", what, key=key)
        with self._mutex:
            self.done += 1
            if self.done in self.at:
                for thread in self._starting:
                    thread.join()
                # Here the deed is done and not recorded, and the other runs are wherever they are.
                self.server.kill()
                self.count += 1
                self._starting = [threading.Thread(target=self.server.start)]
                self._starting[0].start()
        return told

    def over(self) -> None:
        for thread in self._starting:
            thread.join()


_here: dict[str, Outages] = {}


class Books(ind.State):
    orders: ind.Queue[int]
    receipts: ind.Log[str]


def _was_charged(what: str, *, key: str) -> Any:
    found = _here["outages"].ledger.find("charge", key)
    return ind.happened(f"charge {what}: done") if found else ind.did_not_happen()


@ind.action(effect="irreversible", probe=_was_charged)
def charge(what: str, *, key: str = "") -> str:
    return _here["outages"].perform(what, key)


@ind.action(effect="irreversible", probe=_was_charged)
async def acharge(what: str, *, key: str = "") -> str:
    return await asyncio.to_thread(_here["outages"].perform, what, key)


@ind.agent(state=Books, backoff_s=0.0)
def bookkeeper(run: ind.Run[Books]) -> None:
    order = run.state.orders.take()
    run.state.receipts.append(charge(f"{run.run_id}/{order}"))
    if not run.state.orders:
        run.finish(list(run.state.receipts))


@ind.agent(state=Books, backoff_s=0.0)
async def abookkeeper(run: ind.Run[Books]) -> None:
    order = run.state.orders.take()
    run.state.receipts.append(await acharge(f"{run.run_id}/{order}"))
    if not run.state.orders:
        run.finish(list(run.state.receipts))


@bookkeeper.start
def _start(run: ind.Run[Books]) -> None:
    run.state.orders.extend(range(CYCLES))


@abookkeeper.start
def _astart(run: ind.Run[Books]) -> None:
    run.state.orders.extend(range(CYCLES))


def test_the_server_is_killed_while_agents_work(server: PostgresServer, tmp_path: Path) -> None:
    """B55 B94: several times; the agents wait for it, nobody restarts them, and no deed is repeated."""
    outages = _here["outages"] = Outages(server, Ledger(tmp_path / "ledger"), {2, 20, 45, RUNS * CYCLES - 1})
    url = server.database()
    expected = {f"r{number}": [f"charge r{number}/{order}: done" for order in range(CYCLES)] for number in range(RUNS)}
    with ind.open(url) as runs, ThreadPoolExecutor(RUNS) as pool:

        async def half() -> list[Any]:
            return await asyncio.gather(*(abookkeeper.run("o", store=runs, run_id=f"r{n}") for n in range(0, RUNS, 2)))

        def one(number: int) -> Any:
            return bookkeeper.run("o", store=runs, run_id=f"r{number}")

        blocking = [pool.submit(one, number) for number in range(1, RUNS, 2)]
        outcomes = [*asyncio.run(half()), *(future.result() for future in blocking)]
        outages.over()
        assert [outcome.status for outcome in outcomes] == ["finished"] * RUNS
        assert {outcome.run_id: outcome.result for outcome in outcomes} == expected
        for run_id in expected:
            assert not verify(runs, run_id).faults
    deeds = Counter(deed.what for deed in outages.ledger.read())
    assert deeds == Counter(
        what.removeprefix("charge ").removesuffix(": done") for all in expected.values() for what in all
    )
    assert outages.count == 4
    assert sum("was not properly shut down" in line for line in server.log) >= 4
    tell(f"PostgreSQL: server killed {outages.count} times under {RUNS} agents; {len(deeds)} deeds, none repeated")


def test_nothing_acknowledged_is_lost(server: PostgresServer) -> None:
    """B94: the journal ends at the last acknowledged batch, or at the one that was on its way."""
    url = server.database()
    with closing(PostgresStore(url)) as store:
        assert store.claim("a", "somebody", 3600.0) == 1
        at = 0
        for kills in range(1, 4):
            enough = threading.Event()

            def kill(enough: threading.Event = enough) -> None:
                enough.wait()
                server.kill()

            killer = threading.Thread(target=kill)
            killer.start()
            error: StoreUnavailable | None = None
            begun = at
            while error is None:
                try:
                    assert store.append([write("a", at, b"x" * 3000)]) == [None]
                    at += 1
                except StoreUnavailable as failed:
                    error = failed
                if at == begun + 20 * kills:
                    enough.set()
            killer.join()
            refused(StoreUnavailable, lambda: list(store.read("a")))
            server.start()
            seqs = [batch.last_seq for batch in store.read("a")]
            assert seqs in (list(range(1, at + 1)), list(range(1, at + 2)))
            at = len(seqs)
        assert store.append([write("a", at)]) == [None]


def test_killed_in_the_middle_of_an_append(server: PostgresServer) -> None:
    """B55: the server had the batch and had not committed it: it is written again, by whoever waits for it."""
    url = server.database()
    with closing(PostgresStore(url)) as store:
        store.claim("a", "somebody", 3600.0)
        paused: list[float] = []
        gone = threading.Event()

        def pause(seconds: float) -> None:
            paused.append(seconds)
            gone.wait()
            if len(paused) == 1:
                server.start()

        writer = Writer(store, pause)
        with psycopg.connect(url) as other:
            other.execute("SELECT FROM indelible_runs FOR UPDATE")
            thread = threading.Thread(target=lambda: writer.write(lambda: write("a", 0, b"in the middle")))
            thread.start()
            with psycopg.connect(url, autocommit=True) as looking:
                while looking.execute("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchone() is None:
                    pass
            server.kill()
            gone.set()
            thread.join()
            other.close()
        assert paused
        assert [batch.data for batch in store.read("a")] == [b"in the middle"]


class Wire:
    """What lies between the store and the server, and can lose what is on it."""

    def __init__(self, port: int) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._to = port
        self.port = int(self._listening.getsockname()[1])
        self.loses = ""
        self.lost = threading.Event()
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._to))
            self._open += [near, far]
            for source, to, what in ((near, far, "request"), (far, near, "answer")):
                thread = threading.Thread(target=self._carry, args=(source, to, what))
                self._threads.append(thread)
                thread.start()

    def _carry(self, source: socket.socket, to: socket.socket, what: str) -> None:
        try:
            while data := source.recv(1 << 16):
                if self.loses == what:
                    self.loses = ""
                    self.lost.set()
                    break
                to.sendall(data)
        except OSError:
            pass
        for end in (source, to):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for end in self._open:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join()
        for end in self._open:
            end.close()


@pytest.mark.parametrize("loses", ["request", "answer"])
@pytest.mark.parametrize("many", [1, 3])
def test_the_line_breaks(server: PostgresServer, loses: str, many: int) -> None:
    """B55: before the server had the batch, or after it had committed it. The writer cannot know which; it reads."""
    url = server.database()
    with closing(Wire(server.port)) as wire:
        through = url.replace(f":{server.port}/", f":{wire.port}/") + "?sslmode=disable&gssencmode=disable"
        with closing(PostgresStore(through)) as store:
            writes = [write(f"run-{number}", 0, b"%d" % number) for number in range(many)]
            for one in writes:
                store.claim(one.run_id, "somebody", 3600.0)
            wire.loses = loses
            refused(StoreUnavailable, lambda: store.append(writes))
            assert wire.lost.is_set()
            with psycopg.connect(url) as con:
                # The server commits what it had, though it may not have come to it yet.
                landed = int(loses == "answer") * many
                while con.execute("SELECT count(*) FROM indelible_batches").fetchone() != (landed,):
                    con.rollback()
            writer = Writer(store, lambda _seconds: None)

            def made(one: Write) -> Callable[[], Write]:
                return lambda: one

            for one in writes:
                wire.loses = loses
                writer.write(made(one))
                assert [batch.data for batch in store.read(one.run_id)] == [one.batch.data]
                wire.loses = ""
