"""One, ten and a hundred runs on each store, beside the plainest durable write to the same server.

Owns: the servers that are measured, each with its floor, and the fleets on them.
Must never: let a floor be less durable than the store it stands beside.
Invariant: a floor's row holds the same new data as a cycle, encoded beforehand; all is measured in one run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import NamedTuple

import apsw

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the servers are those of the tests

from tests.servers import postgres, seaweed, valkey

from fleet import Where, lay_ready, on_asyncio, on_threads
from floor import Floor
from indelible.drive.clock import SystemClock
from indelible.runtime.runstore import RunStore
from indelible.stores.sqlite import SqliteStore
from material import results
from table import Row, at_least, at_most, scale
from workload import aworker, worker

FLEETS = (1, 10, 100)
ROUNDS = 3
TIMES_FLOOR = 1.5
TIMES_ONE = 15
SLOW_SYNC_S = 0.005
STRICT = ("SQLite", "PostgreSQL")
"""Those whose throughput at a hundred runs has a limit."""


class Place(NamedTuple):
    """A store to be measured: a fresh URL for each fleet, and the write that is its floor."""

    name: str
    url: Callable[[], Where]
    floor: Callable[[bytes], object]
    cycles: int
    """Of one run alone."""


def measure(folder: Path, part: int) -> list[Row]:
    """Rows for every store; `part` is by what to divide the number of cycles."""
    lay_ready()
    rows: list[Row] = []
    with ExitStack() as stack:
        for opened in (_sqlite, _slow_sqlite, _postgres, _valkey, _directory, _s3):
            rows += _rows(stack.enter_context(opened(folder)), part)
    return rows


def _rows(place: Place, part: int) -> list[Row]:
    data = [found.packed() for found in islice(results(7), 50)]
    cycles = max(20, place.cycles // part)
    rates: dict[int, list[float]] = {runs: [] for runs in FLEETS}
    floors: list[float] = []
    for _ in range(ROUNDS):
        floors += [_timed(place.floor, data[n % len(data)]) for n in range(cycles)]
        for runs in FLEETS:
            each = max(5, cycles // runs) if runs > 1 else cycles
            if runs == 1:  # a loop of its own, which commits where it is
                rates[runs].append(each / on_threads(place.url(), worker, 1, each))
            else:
                rates[runs].append(runs * each / on_asyncio(place.url(), aworker, runs, each))
    floor = median(floors) * 1e3
    one, *more = (median(rates[runs]) for runs in FLEETS)
    rows = [
        scale(f"{place.name}: floor, one plain durable write", floor, "ms"),
        at_most("  a cycle of one run", 1e3 / one / floor, TIMES_FLOOR, "x", f" ({1e3 / one:.3f} ms)"),
        scale("  1 run", one, "/s"),
    ]
    for runs, rate in zip(FLEETS[1:], more, strict=True):
        text = f"  {runs} runs"
        rows.append(scale(text, rate, "/s", f" ({rate / one:.1f} x one)"))
    if place.name in STRICT:
        rows.append(at_least(f"  {FLEETS[-1]} runs, times one", more[-1] / one, TIMES_ONE, "x"))
    return rows


def _timed(write: Callable[[bytes], object], data: bytes) -> float:
    began = perf_counter()
    write(data)
    return perf_counter() - began


def _fresh(stem: str) -> Callable[[], str]:
    made = iter(range(10_000))
    return lambda: stem.format(next(made))


@contextmanager
def _sqlite(folder: Path) -> Iterator[Place]:
    floor = Floor(str(folder / "stores-floor.db"))
    yield Place("SQLite", _fresh(str(folder / "stores-{}.db")), floor.write, 500)
    floor.close()


class _SlowDisk(apsw.VFS):
    """A disk that takes some milliseconds longer to sync, as most do."""

    def __init__(self) -> None:
        super().__init__("slow", "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _SlowFile("", name, flags)


class _SlowFile(apsw.VFSFile):
    def xSync(self, flags: int) -> None:
        sleep(SLOW_SYNC_S)
        super().xSync(flags)


@contextmanager
def _slow_sqlite(folder: Path) -> Iterator[Place]:
    disk = _SlowDisk()
    fresh = _fresh(str(folder / "slow-{}.db"))
    con = apsw.Connection(str(folder / "slow-floor.db"), vfs="slow")
    con.pragma("journal_mode", "wal")
    con.pragma("synchronous", "full")
    con.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, data BLOB NOT NULL)")
    yield Place(f"SQLite, {SLOW_SYNC_S * 1e3:.0f} ms added to each sync",
                lambda: lambda: RunStore(SqliteStore(fresh(), vfs="slow"), SystemClock()),
                lambda data: con.execute("INSERT INTO rows (data) VALUES (?)", (data,)), 200)  # fmt: skip
    con.close()
    disk.unregister()


@contextmanager
def _postgres(_folder: Path) -> Iterator[Place]:
    import psycopg

    server = postgres.server()
    with psycopg.connect(server.database(), autocommit=True) as con:
        con.execute("CREATE TABLE rows (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, data bytea NOT NULL)")
        yield Place("PostgreSQL", server.database, lambda data: con.execute(
            "INSERT INTO rows (data) VALUES (%b)", (data,)), 500)  # fmt: skip


@contextmanager
def _valkey(_folder: Path) -> Iterator[Place]:
    import redis

    server = valkey.server("always")
    with redis.Redis.from_url(server.url) as con:
        yield Place("Valkey, AOF always", server.fresh, lambda data: con.xadd("floor", {"data": data}), 500)


@contextmanager
def _directory(folder: Path) -> Iterator[Place]:
    place = folder / "objects"
    place.mkdir()
    made = iter(range(1_000_000))

    def floor(data: bytes) -> None:
        with open(place / f"{next(made)}", "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    yield Place("objects in a folder", _fresh(f"file://{folder}/objects-{{}}"), floor, 200)


@contextmanager
def _s3(_folder: Path) -> Iterator[Place]:
    import obstore
    from obstore.store import S3Store

    server = seaweed.server()
    url, environment = server.fresh()
    os.environ.update(environment)
    bare = S3Store.from_url(url.partition("?")[0], **server.options)
    made = iter(range(1_000_000))
    yield Place("S3 (SeaweedFS)", lambda: server.fresh()[0],
                lambda data: obstore.put(bare, f"floor/{next(made)}", data, mode="create"), 200)  # fmt: skip
