"""The world outside a simulated process: a store, a ledger of deeds, and the time.

Owns: everything that survives the death of a process.
Must never: let a process change anything once it is dead; `processes` sees to that.
Invariant: `copy()` is cheap and independent, so that a world can be kept as it was at any moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from indelible.core.inbox import inbox_of
from indelible.stores.base import Query
from indelible.stores.memory import MemoryStore

if TYPE_CHECKING:
    from indelible.testing.service import FakeWorld

__all__ = ["Deed", "FakeWorld", "World"]

BEGAN = 1_700_000_000.0
APART_S = 10_000.0
LONG_S = 1_000_000.0
BACK_S = 13_600.0
"""Every second process finds the clock an hour earlier than its predecessor: order must not depend on it."""


class Deed(NamedTuple):
    """Something that a process did in the world. `what` says which deed it is meant to be."""

    kind: str
    what: str
    key: str
    usd: float
    process: int
    repeat: bool
    """True if the other side knew the key already and did nothing."""


class World:
    """What a simulated process lives in. `ledger` is the truth about what was done."""

    def __init__(self) -> None:
        self.time = BEGAN
        self.store = MemoryStore(self.now)
        self.ledger: list[Deed] = []
        self.skipped = 0.0
        self.processes = 0
        self.seen: dict[str, str] = {}
        """What was handed to the agent as done, by journal identity: it may never be lost again."""
        self.late: set[str] = set()
        """Keys of deeds that were under way in a process that had been taken over."""
        self.blind = False
        """True once a look at the world has failed, so that a person may have to be asked."""
        self.changes = 0

    def now(self) -> float:
        """Epoch seconds."""
        return self.time

    def start_process(self) -> int:
        """The number of the next process, which finds the clock where it should not."""
        self.processes += 1
        self.time = BEGAN + self.skipped + APART_S * self.processes - (BACK_S if self.processes % 2 else 0.0)
        self.changes += 1
        return self.processes

    def expire_leases(self) -> None:
        """Let so much time pass that no lease holds any more."""
        self.skipped += LONG_S
        self.time += LONG_S

    def copy(self) -> World:
        """An independent world as this one is now."""
        twin = World.__new__(World)
        twin.time, twin.processes, twin.changes = self.time, self.processes, self.changes
        twin.skipped, twin.blind = self.skipped, self.blind
        twin.store = self.store.copy()
        twin.store.clock = twin.now
        twin.ledger, twin.seen, twin.late = self.ledger.copy(), self.seen.copy(), self.late.copy()
        return twin

    def fingerprint(self, run_id: str) -> tuple[Any, ...]:
        """Equal for worlds in which a new process of that run would find the same."""
        batches = [batch.data for batch in self.store.read(run_id)]
        inbox = [batch.data for batch in self.store.read(inbox_of(run_id))]
        entries = [(e.epoch, bool(e.owner)) for e in self.store.list_runs(Query(run_ids=(run_id,))).runs]
        snapshot = self.store.get_snapshot(run_id, 2**62)
        state = (tuple(batches), tuple(inbox), tuple(entries), snapshot and snapshot[0])
        return (*state, tuple(self.ledger), self.processes, self.blind, tuple(self.seen), tuple(sorted(self.late)))


def __getattr__(name: str) -> Any:
    """The world of real processes is found here too; a simulation has no need of its sockets."""
    if name == "FakeWorld":
        from indelible.testing.service import FakeWorld

        return FakeWorld
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
