"""What would go is shown by the time it is, also where a read-only store knows only when it was last written."""

from __future__ import annotations

from indelible.drive.clock import SystemClock
from indelible.runtime.doctoring import examine
from indelible.runtime.pruning import time_of
from indelible.runtime.runstore import RunStore
from indelible.stores.memory import MemoryStore


class Lagging(MemoryStore):
    """A store whose clock stands where it was last written."""

    lags = True


def test_the_later_clock_counts_where_the_stores_lags() -> None:
    clock = SystemClock()
    with RunStore(Lagging(lambda: 5.0), clock) as behind, RunStore(MemoryStore(lambda: 5.0), clock) as right:
        assert time_of(behind) >= clock.now() - 60
        assert time_of(right) == 5.0, "else the store's clock counts, whatever this machine says"


def test_a_clock_that_lags_is_no_fault_of_a_clock() -> None:
    clock = SystemClock()
    with RunStore(Lagging(lambda: 5.0), clock) as behind, RunStore(MemoryStore(lambda: 5.0), clock) as wrong:
        assert not [finding for finding in examine(behind).findings if finding.part == "clock"]
        assert [finding for finding in examine(wrong).findings if finding.part == "clock" and finding.hint]
