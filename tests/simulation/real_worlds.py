"""The simulated world with a real store in it, which can be copied as the sweep copies worlds.

Owns: for each kind of store how a place for a world is made, copied and cleared, and how a store is opened there.
Must never: share anything between two worlds but the server.
Invariant: the clock of every store is that of its world, so that a lease runs out when the sweep says so.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from indelible.stores.base import Store
from indelible.testing.world import World
from tests.servers import postgres, valkey

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Kind:
    """A kind of store. `places` and `stores` are those that have been made and opened since they were last cleared."""

    fresh_for_each_process = True
    """False where opening takes long: then one store serves all worlds that were in a place."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.places: list[Any] = []
        self.stores: list[Store] = []

    def empty(self) -> Any:
        """A place with nothing in it."""
        raise NotImplementedError

    def twin(self, place: Any) -> Any:
        """Another place with the same in it."""
        raise NotImplementedError

    def remove(self, place: Any) -> None:
        """Forget a place."""
        raise NotImplementedError

    def open(self, place: Any, clock: Any) -> Store:
        """A store there."""
        raise NotImplementedError

    def opened(self, place: Any, clock: Any) -> Store:
        """As `open`, to be closed by `clear`."""
        store = self.open(place, clock)
        self.stores.append(store)
        return store

    def made(self, place: Any) -> Any:
        """A place, to be removed by `clear`."""
        self.places.append(place)
        return place

    def clear(self, places: int = 0, stores: int = 0) -> None:
        """Close and remove what came after the first so many."""
        for store in self.stores[stores:]:
            store.close()
        for place in self.places[places:]:
            self.remove(place)
        del self.stores[stores:], self.places[places:]

    def end(self) -> None:
        """Close and remove everything."""
        self.clear()


class Sqlite(Kind):
    """A file in a folder of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY, prefix="indelible-worlds-"))

    def empty(self) -> Path:
        """See `Kind`."""
        place: Path = self.made(self.folder / str(next(self.numbers)))
        place.mkdir()
        return place

    def twin(self, place: Path) -> Path:
        """See `Kind`."""
        return Path(shutil.copytree(place, self.made(self.folder / str(next(self.numbers)))))

    def remove(self, place: Path) -> None:
        """See `Kind`."""
        shutil.rmtree(place)

    def open(self, place: Path, clock: Any) -> Store:
        """See `Kind`."""
        from indelible.stores.sqlite import SqliteStore

        return SqliteStore(str(place / "agent.db"), clock=clock)

    def end(self) -> None:
        """See `Kind`."""
        super().end()
        shutil.rmtree(self.folder)


class Objects(Sqlite):
    """Objects in a folder of their own."""

    def open(self, place: Path, clock: Any) -> Store:
        """See `Kind`."""
        from indelible.stores.objects import ObjectStore

        return ObjectStore(f"file://{place}/objects", clock=clock, durability="os")


class Valkey(Kind):
    """A prefix of its own on a real server."""

    def __init__(self) -> None:
        import redis

        super().__init__()
        self.server = valkey.server("always")
        self.keys = redis.Redis(port=self.server.port, protocol=2, decode_responses=True)

    def empty(self) -> str:
        """See `Kind`."""
        return str(self.made(f"world{next(self.numbers)}"))

    def twin(self, place: str) -> str:
        """See `Kind`."""
        twin = self.empty()
        with self.keys.pipeline(transaction=False) as copying:
            for key in self._of(place):
                copying.copy(key, twin + key[len(place) :])
            copying.execute()
        return twin

    def remove(self, place: str) -> None:
        """See `Kind`."""
        if keys := self._of(place):
            self.keys.delete(*keys)

    def open(self, place: str, clock: Any) -> Store:
        """See `Kind`."""
        from indelible.stores.redis import RedisStore

        return RedisStore(f"{self.server.url}?prefix={place}", clock=clock)

    def end(self) -> None:
        """See `Kind`."""
        super().end()
        self.keys.close()

    def _of(self, place: str) -> list[str]:
        found: Any = self.keys.keys(f"{place}:*")
        return list(found)


class Postgres(Kind):
    """A database of its own on a real server. Databases are emptied and used again: making one takes long."""

    fresh_for_each_process = False
    TABLES = ("indelible_runs", "indelible_batches", "indelible_snapshots")

    def __init__(self) -> None:
        super().__init__()
        self.server = postgres.server()
        self.at: dict[str, Any] = {}
        self.connections: dict[str, Any] = {}
        self.idle: list[str] = []

    def empty(self) -> str:
        """See `Kind`."""
        import psycopg

        from indelible.stores.postgres import PostgresStore

        if self.idle:
            return str(self.made(self.idle.pop()))
        url = self.server.database()
        self.at[url] = PostgresStore(url, clock=float)
        self.connections[url] = psycopg.connect(url, autocommit=True)
        return str(self.made(url))

    def twin(self, place: str) -> str:
        """See `Kind`."""
        twin = self.empty()
        source, target = self.connections[place], self.connections[twin]
        with target.transaction():
            for reading, writing in self.COPIES:
                with source.cursor().copy(reading) as rows, target.cursor().copy(writing) as into:
                    for block in rows:
                        into.write(block)
            (last,) = source.execute("SELECT last_value FROM indelible_touches").fetchone()
            target.execute("SELECT setval('indelible_touches', %s)", (last,))
            target.execute(
                "SELECT setval(pg_get_serial_sequence('indelible_runs','no'), greatest(1, max(no))) FROM indelible_runs"
            )
        return twin

    COPIES = (
        (
            "COPY indelible_runs (no, run_id, head, begins, epoch, listed, deleted, touched, stored_bytes, created_at, "
            "updated_at, lease_until, ttl_s, wake_at, owner, status, agent, about) TO STDOUT",
            "COPY indelible_runs (no, run_id, head, begins, epoch, listed, deleted, touched, stored_bytes, created_at, "
            "updated_at, lease_until, ttl_s, wake_at, owner, status, agent, about) FROM STDIN",
        ),
        ("COPY indelible_batches TO STDOUT", "COPY indelible_batches FROM STDIN"),
        ("COPY indelible_snapshots TO STDOUT", "COPY indelible_snapshots FROM STDIN"),
    )

    def remove(self, place: str) -> None:
        """See `Kind`."""
        connection = self.connections[place]
        connection.execute("DELETE FROM indelible_runs; DELETE FROM indelible_batches; DELETE FROM indelible_snapshots")
        self.idle.append(place)

    def opened(self, place: str, clock: Any) -> Store:
        """See `Kind`."""
        store: Store = self.at[place]
        store._clock = clock  # type: ignore[attr-defined]
        return store

    def end(self) -> None:
        """See `Kind`."""
        super().end()
        for opened in (*self.at.values(), *self.connections.values()):
            opened.close()


class RealWorld(World):
    """A world whose store is of that kind."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.kind = kind
        self.place = kind.empty()
        self.store: Any = kind.opened(self.place, self.now)

    def reopen(self) -> None:
        """As for a process that begins: with nothing of what an earlier one had in memory."""
        if self.kind.fresh_for_each_process:
            self.store = self.kind.opened(self.place, self.now)

    def start_process(self) -> int:
        """See `World`."""
        number = super().start_process()
        self.reopen()
        return number

    def copy(self) -> RealWorld:
        """See `World`."""
        twin = RealWorld.__new__(RealWorld)
        twin.__dict__.update(self.__dict__)
        twin.ledger, twin.seen, twin.late = self.ledger.copy(), self.seen.copy(), self.late.copy()
        twin.place = self.kind.twin(self.place)
        twin.store = self.kind.opened(twin.place, twin.now)
        return twin
