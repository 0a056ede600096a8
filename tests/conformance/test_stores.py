"""The shipped conformance suite, run against every store of this release."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from indelible.stores.base import Store
from indelible.stores.memory import MemoryStore
from indelible.stores.sqlite import SqliteStore
from indelible.testing.conformance import SharedStoreConformance, StoreConformance
from indelible.testing.conformance_claims import ClaimConformance
from indelible.testing.conformance_journals import DeleteConformance
from indelible.testing.conformance_kit import write


class TestMemoryStore(StoreConformance):
    def open_store(self, tmp_path: Path, clock: Callable[[], float]) -> Store:
        return MemoryStore(clock)

    def test_it_says_what_it_is(self, tmp_path: Path) -> None:
        with self.claimed(tmp_path) as store:
            assert (store.url, store.durable, store.shared) == ("memory:", False, False)

    def test_a_copy_goes_its_own_way(self) -> None:
        store = MemoryStore(lambda: 0.0)
        store.claim("a", "o", 30.0)
        store.append([write("a", 0, b"both")])
        twin = store.copy()
        assert store.append([write("a", 1, b"original")]) == [None]
        assert twin.append([write("a", 1, b"twin")]) == [None]
        twin.delete("a")
        assert [batch.data for batch in store.read("a")] == [b"both", b"original"]


class TestSqliteStore(StoreConformance, SharedStoreConformance):
    def open_store(self, tmp_path: Path, clock: Callable[[], float]) -> Store:
        return SqliteStore(str(tmp_path / "agent.db"), clock=clock)


@pytest.mark.filterwarnings("ignore::indelible.stores.sqlite_file.NetworkStoreWarning")
class TestSqliteStoreOnANetwork(ClaimConformance, DeleteConformance, SharedStoreConformance):
    """Without WAL, as on a network file system."""

    @pytest.fixture(autouse=True)
    def _network(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("indelible.stores.mounts.fstype_at", lambda _path: "nfs4")

    def open_store(self, tmp_path: Path, clock: Callable[[], float]) -> Store:
        return SqliteStore(str(tmp_path / "agent.db"), clock=clock, durability="os")
