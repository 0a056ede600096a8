"""The suite that every store must pass; it ships, so that authors of stores can run it.

Owns: the list of its parts. There is a check for every sentence of `indelible.stores.base`.
Must never: sleep, skip, or use anything of a store but the `Store` methods.
Invariant: it needs no test library; a check is a method `test_...(self, tmp_path)`.

    class TestMyStore(StoreConformance, SharedStoreConformance):
        def open_store(self, tmp_path, clock):
            return MyStore(tmp_path / "data", clock=clock)

Leave `SharedStoreConformance` out for a store that only its own process can see.
"""

from __future__ import annotations

from indelible.testing.conformance_claims import ClaimConformance
from indelible.testing.conformance_journals import (
    AppendConformance,
    BeginningConformance,
    DeleteConformance,
    InboxConformance,
    SnapshotConformance,
)
from indelible.testing.conformance_kit import SteppedClock
from indelible.testing.conformance_listing import ListingConformance
from indelible.testing.conformance_shared import SharedStoreConformance

__all__ = ["SharedStoreConformance", "SteppedClock", "StoreConformance"]


class StoreConformance(
    AppendConformance,
    ClaimConformance,
    InboxConformance,
    SnapshotConformance,
    BeginningConformance,
    DeleteConformance,
    ListingConformance,
):
    """All checks that any store must pass. Derive from it and define `open_store`."""
