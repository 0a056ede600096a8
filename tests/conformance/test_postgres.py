"""The shipped conformance suite against a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from indelible.stores.base import Store
from indelible.stores.postgres import PostgresStore
from indelible.testing.conformance import SharedStoreConformance, StoreConformance
from tests.servers.postgres import server


class TestPostgresStore(StoreConformance, SharedStoreConformance):
    def open_store(self, tmp_path: Path, clock: Callable[[], float]) -> Store:
        place = tmp_path / "url"
        if not place.exists():
            place.write_text(server().database())
        return PostgresStore(place.read_text(), clock=clock)
