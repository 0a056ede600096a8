"""A run in this process's hands: its lease in the background, and what is written when it is let go of."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import indelible as ind
from indelible.errors import StoreUnavailable
from indelible.runtime.leases import Renewer
from indelible.runtime.runstore import RunStore
from tests.unit.simple_agents import Memory, agent_of, kinds


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


def test_a_release_that_fails_does_not_end_the_renewal_of_the_others(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B10 B53: one run was taken over and let go of, and just then the server is away."""
    agent = agent_of(lambda run: None)
    with store.run("taken", agent, "o") as taken, store.run("other", agent, "o") as other:
        holds = [run._holding._hold for run in (taken, other)]
        renewer, renewed = Renewer(store.store, 30.0), list[str]()
        for hold in holds:
            assert hold is not None
            renewer._holds.append(hold)

        def claim(run_id: str, owner: str, ttl_s: float) -> int:
            if not ttl_s:
                raise StoreUnavailable("the server is away", hint="start it")
            renewed.append(run_id)
            return 99 if run_id == "taken" else 1

        with monkeypatch.context() as patched:
            patched.setattr(store.store, "claim", claim)
            renewer.renew()
        assert renewed == ["taken", "other"]
        assert holds[0] is not None
        assert "another process has taken it over" in str(holds[0].live.lost)
        holds[0].live.lost = ""


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


class Outage:
    """The store takes no batch while `left` is above zero; each try takes one off."""

    def __init__(self, store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left, self._append = 0, store.store.append
        monkeypatch.setattr(store.store, "append", self.append)
        monkeypatch.setattr("indelible.stores.writer.pauses", lambda _: iter((1e-6, 1e-6)))

    def append(self, writes: Any) -> Any:
        self.left -= self.left > 0
        if self.left:
            raise StoreUnavailable("the disk is full", hint="free some space")
        return self._append(writes)


@ind.action
def ask_model(prompt: str, usd: float | None) -> str:
    ind.usage(usd=usd)
    return prompt.upper()


def test_an_outage_that_ends_while_the_run_is_closed_loses_nothing(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B06: the loop has given up, and the close writes what was paid for."""
    outage, calls = Outage(store, monkeypatch), list[str]()

    @ind.action
    def paid() -> str:
        calls.append("x")
        ind.usage(usd=0.25)
        return "answer"

    def body(run: ind.Run[Memory]) -> None:
        outage.left = 0 if calls else 8  # three tries for the result, three at the end of the cycle, two at the close
        run.finish(paid())

    with pytest.raises(StoreUnavailable):
        agent_of(body).run("o", store=store, run_id="r")
    assert "action.completed" in kinds(store)
    assert agent_of(body).run("o", store=store, run_id="r").result == "answer"
    assert len(calls) == 1


def test_what_an_outage_loses_is_told(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """B87: how many results, what they cost, and what to do; not only that the disk is full."""
    outage = Outage(store, monkeypatch)

    def body(run: ind.Run[Memory]) -> None:
        outage.left = 10**6
        for number, usd in enumerate((0.0, 0.25, None)):
            try:
                ask_model(str(number), usd)
            except StoreUnavailable:
                pass
        run.finish("never written")

    @ind.agent(state=Memory, name="tester")
    async def waiting(run: ind.Run[Memory]) -> None:
        body(run)

    with pytest.raises(StoreUnavailable) as told:
        agent_of(body).run("o", store=store, run_id="r")
    assert told.value.what == (
        "the disk is full; 3 results are not written, which cost 0.2500 USD (1 without a known price), "
        "and will be asked for again"
    )
    assert told.value.hint == "free some space; then: indelible resume r AGENT.py:tester"
    assert (told.value.ids["results"], told.value.ids["usd"]) == (3, 0.25)
    outage.left = 0
    with pytest.raises(StoreUnavailable, match="3 results are not written"):
        asyncio.run(waiting.run("o", store=store, run_id="s"))


def test_what_an_outage_loses_is_told_beside_what_ended_the_run(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = Outage(store, monkeypatch)

    def body(run: ind.Run[Memory]) -> None:
        ask_model("cheap", 0.0)
        outage.left = 10**6
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as told:
        agent_of(body).run("o", store=store, run_id="r")
    (note,) = told.value.__notes__
    assert "1 result is not written, and will be asked for again" in note
