"""An undo may itself do what cannot be repeated: it waits, is settled and goes on as any deed does."""

from __future__ import annotations

import pytest

import indelible as ind
from indelible.core import events as ev
from indelible.errors import Misuse
from indelible.runtime.runstore import RunStore
from tests.unit.simple_agents import Death, Memory, agent_of

# Actions have names of their own in each test: a resumed run finds an undo by its action's name.


def test_an_undo_whose_own_deed_is_in_doubt_parks_the_run(store: RunStore) -> None:
    """B03: a refund that timed out is asked about, and the cycle is closed once a person has said."""
    world: list[str] = []

    @ind.action(name="refund_0", effect="irreversible")
    def refund(what: str) -> None:
        world.append(f"refund {what}")
        raise TimeoutError

    @ind.action(name="book_0", effect="irreversible", undo=refund)
    def book(what: str) -> None:
        world.append(f"book {what}")

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        book("room")
        raise ValueError

    agent = agent_of(body, attempts=1, on_failure="fail")
    assert agent.run("o", store=store, run_id="r").kind == "doubt"
    assert agent.run("o", store=store, run_id="r").kind == "doubt"
    store.settle("r", "refund_0", happened=True)
    assert agent.run("o", store=store, run_id="r").status == "failed"
    assert world == ["book room", "refund room"]
    rolled = [event for _, event in store.events("r") if isinstance(event, ev.CycleRolledBack)]
    assert [event.orphaned for event in rolled] == [()]


def test_an_undo_that_swallows_the_signal_waits_all_the_same(store: RunStore) -> None:
    @ind.action(name="refund_1", effect="irreversible", approve=True)
    def refund(what: str) -> None:
        world.append(f"refund {what}")

    def careless(what: str) -> None:
        try:
            refund(what)
        except BaseException:
            world.append("never mind")

    world: list[str] = []

    @ind.action(name="book_1", effect="irreversible", undo=careless)
    def book(what: str) -> None:
        pass

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        book("room")
        raise ValueError

    agent = agent_of(body, attempts=1, on_failure="fail")
    assert agent.run("o", store=store, run_id="r").kind == "approve"


def test_undos_that_were_interrupted_go_on_without_a_divergence(store: RunStore) -> None:
    world: list[str] = []
    die = [True]

    @ind.action(name="refund_2", effect="irreversible")
    def refund(what: str) -> None:
        world.append(f"refund {what}")

    def undo(what: str) -> None:
        if what == "a" and die:
            die.pop()
            raise Death
        refund(what)

    @ind.action(name="book_2", effect="irreversible", undo=undo)
    def book(what: str) -> None:
        world.append(f"book {what}")

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        book("a")
        book("b")
        refund("the deposit")
        raise ValueError

    agent = agent_of(body, attempts=1, on_failure="fail")
    with pytest.raises(Death):
        agent.run("o", store=store, run_id="r")
    assert agent.run("o", store=store, run_id="r").status == "failed"
    assert world == ["book a", "book b", "refund the deposit", "refund b", "refund a"]
    rolled = [event for _, event in store.events("r") if isinstance(event, ev.CycleRolledBack)]
    assert [call.partition("-")[0] for call in rolled[0].orphaned] == ["refund_2"]


def test_a_deed_that_was_taken_back_may_be_done_again_under_its_key(store: RunStore) -> None:
    """The recorded result of a booking that was cancelled is no booking."""
    world: list[str] = []

    def cancel(order: int) -> None:
        world.append("cancel")

    @ind.action(name="book_3", effect="irreversible", undo=cancel, key=lambda order: f"book-{order}")
    def book(order: int) -> str:
        world.append("book")
        return f"booking {world.count('book')}"

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        booked = book(1)
        if "cancel" not in world:
            raise ValueError
        run.finish(booked)

    agent = agent_of(body, tasks=("a", "b"), attempts=1)
    assert agent.run("o", store=store, run_id="r").result == "booking 2"
    assert world == ["book", "cancel", "book"]


def test_a_loop_of_ones_own_finishes_the_undos_before_its_next_cycle(store: RunStore) -> None:
    world: list[str] = []
    die = [True]

    def cancel(what: str) -> None:
        if die:
            die.pop()
            raise Death
        world.append("cancel")

    @ind.action(name="book_4", effect="irreversible", undo=cancel)
    def book(what: str) -> None:
        world.append("book")

    agent = agent_of(lambda run: None, attempts=1)
    with pytest.raises(Death), store.run("r", agent, "o") as run, run.cycle():
        run.state.tasks.take()
        book("a")
        raise ValueError
    with store.run("r", agent) as run, run.cycle():
        assert world == ["book", "cancel"]
        assert [item.value for item in run.state.tasks.failed] == ["a"]

    die.append(True)
    failing = agent_of(lambda run: None, attempts=1, on_failure="fail")
    with pytest.raises(Death), store.run("s", failing, "o") as run, run.cycle():
        run.state.tasks.take()
        book("a")
        raise ValueError
    with store.run("s", failing) as run:
        with pytest.raises(Misuse, match="failed"), run.cycle():
            world.append("entered")
        assert not run.is_active
    assert "entered" not in world
