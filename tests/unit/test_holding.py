"""A run in this process's hands: its lease in the background, and what is written when it is let go of."""

from __future__ import annotations

import threading

import indelible as ind
from indelible.runtime.leases import Renewer
from indelible.runtime.runstore import RunStore
from tests.unit.simple_agents import agent_of, kinds


class Ticks(threading.Event):
    """Ends the renewer's thread at its third look, and keeps how long it was ready to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        return len(self.waits) > 2


def test_leases_are_renewed_well_before_they_run_out(store: RunStore) -> None:
    """B10: one renewal may fail, and the next is still in time."""
    with store.run("r", agent_of(lambda run: None), "o") as run:
        hold = run._holding._hold
        assert hold is not None
        renewer, ticks = Renewer(store.store, 30.0), Ticks()
        renewer._stop = ticks
        renewer.add(hold)
        assert renewer._thread is not None
        renewer._thread.join(10)
    assert len(ticks.waits) == 3
    assert all(0 < wait <= 15 for wait in ticks.waits)


def test_what_was_paid_in_a_cycle_that_nobody_left_is_written_at_the_close(store: RunStore) -> None:
    """B95: a cheap answer waits in memory for the next write, and the close is the last one there is."""

    @ind.action
    def complete(prompt: str) -> str:
        return prompt.upper()

    with store.run("r", agent_of(lambda run: None), "o") as run:
        run.cycle().__enter__()
        complete("a")
        assert "action.completed" not in kinds(store)
    assert kinds(store)[-1] == "action.completed"
