"""The Redis store: the shipped suite against a real server, and what is its own."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha1
from pathlib import Path

from indelible.stores.base import Store
from indelible.stores.redis import RedisStore
from indelible.testing.conformance import SharedStoreConformance, StoreConformance
from tests.servers.valkey import server


class TestRedisStore(StoreConformance, SharedStoreConformance):
    def open_store(self, tmp_path: Path, clock: Callable[[], float]) -> Store:
        prefix = sha1(str(tmp_path).encode()).hexdigest()
        return RedisStore(f"{server('always').url}?prefix=t{prefix}", clock=clock)
