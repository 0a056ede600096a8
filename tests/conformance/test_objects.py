"""The conformance suite on object storage: a folder, obstore's memory store, and a real S3 server over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from indelible.stores.base import Store
from indelible.stores.objects import ObjectStore
from indelible.testing.conformance import SharedStoreConformance, StoreConformance
from tests.servers import seaweed

_memories: dict[Path, MemoryStore] = {}


class TestFolder(StoreConformance, SharedStoreConformance):
    def open_store(self, tmp_path: Path, clock: Callable[[], float]) -> Store:
        return ObjectStore(f"file://{tmp_path}/store", clock=clock, durability="os")


class TestMemory(StoreConformance, SharedStoreConformance):
    def open_store(self, tmp_path: Path, clock: Callable[[], float]) -> Store:
        memory = _memories.setdefault(tmp_path, MemoryStore())
        return ObjectStore.over(memory, "memory-objects:", clock=clock)


class TestSeaweed(StoreConformance, SharedStoreConformance):
    @pytest.fixture(autouse=True)
    def _server(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._url, environment = seaweed.server().fresh()
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    def open_store(self, tmp_path: Path, clock: Callable[[], float]) -> Store:
        return ObjectStore(self._url, clock=clock)
