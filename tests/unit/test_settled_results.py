"""What a person says a deed returned is what the deed could have returned, or it is as if nothing was said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import indelible as ind
from indelible.core import events as ev
from indelible.core.codec import unpack
from indelible.errors import StateInvalid
from indelible.runtime.actions import _declared
from indelible.runtime.agents import Agent
from indelible.runtime.runstore import RunStore
from tests.unit.simple_agents import Memory, agent_of


@dataclass
class Receipt:
    number: int
    note: str = ""


@ind.action(name="pay_by_card", effect="irreversible")
def pay() -> Receipt:
    raise TimeoutError


def paying() -> Agent[Memory]:
    return agent_of(lambda run: run.finish(pay().number))


@pytest.fixture
def doubtful(store: RunStore) -> str:
    """A run in doubt about a payment; the call's id."""
    assert paying().run("o", store=store, run_id="r").kind == "doubt"
    (call,) = store.recover("r").record.in_doubt()
    return call.call


def elsewhere(store: RunStore, result: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settle as a process does that does not know the agent, such as `indelible settle`."""
    with monkeypatch.context() as other:
        other.setattr("indelible.runtime.runstore.resolve", lambda name: None)
        store.settle("r", "pay_by_card", happened=True, result=result)


def test_a_result_that_does_not_fit_is_refused_where_the_action_is_known(store: RunStore, doubtful: str) -> None:
    with pytest.raises(StateInvalid, match=r"pay_by_card\(\) result\.number"):
        store.settle("r", doubtful, happened=True, result={"number": "17"})
    assert paying().run("o", store=store, run_id="r").kind == "doubt"
    store.settle("r", doubtful, happened=True, result=Receipt(17))
    assert paying().run("o", store=store, run_id="r").result == 17


def test_a_result_that_does_not_fit_is_told_by_the_run_and_settled_again(
    store: RunStore, doubtful: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B55: what cannot be used is no outcome; the deed is in doubt as before, and can be settled again."""
    elsewhere(store, {"number": "17"}, monkeypatch)
    with pytest.raises(StateInvalid) as told:
        paying().run("o", store=store, run_id="r")
    assert "pay_by_card was settled with a result that it cannot return: pay_by_card() result.number" in told.value.what
    assert "'17'" not in str(told.value)
    assert told.value.hint == f"indelible settle r {doubtful} --happened --result JSON"
    assert paying().run("o", store=store, run_id="r").kind == "doubt"
    elsewhere(store, {"number": 17}, monkeypatch)
    assert paying().run("o", store=store, run_id="r").result == 17


def test_of_two_settlements_the_one_that_fits_holds(
    store: RunStore, doubtful: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere(store, 17, monkeypatch)
    elsewhere(store, {"number": 17, "note": "by hand"}, monkeypatch)
    assert paying().run("o", store=store, run_id="r").result == 17
    assert [event.refused for _, event in store.events("r") if isinstance(event, ev.InboxRead)] == [1]


def test_a_result_that_nobody_knows_may_be_left_out(store: RunStore) -> None:
    @ind.action(name="send_a_letter", effect="irreversible")
    def send() -> str:
        raise TimeoutError

    agent = agent_of(lambda run: run.finish([send()]))
    agent.run("o", store=store, run_id="r")
    store.settle("r", "send_a_letter", happened=True)
    assert agent.run("o", store=store, run_id="r").result == [None]


def declare_booking(world: list[str], where: str) -> Any:
    """Two modules of one program may do this, each with a function of that name."""

    def cancel() -> None:
        world.append(f"cancel {where}")

    def book() -> None:
        world.append(f"book {where}")

    book.__qualname__ = f"{where}.book"
    return ind.action(name="book_a_seat", effect="irreversible", undo=cancel)(book)


def test_an_undo_that_is_not_clear_is_not_run_and_told(store: RunStore) -> None:
    """B115: an undo is never another action's. The deed is listed as what still stands."""
    world: list[str] = []
    book = declare_booking(world, "train")
    attempts: list[str] = []

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        if not attempts:
            attempts.append("x")
            book()
            raise KeyboardInterrupt
        raise ValueError

    agent = agent_of(body, attempts=1, on_failure="fail")
    with pytest.raises(KeyboardInterrupt):
        agent.run("o", store=store, run_id="r")
    declare_booking(world, "plane")
    assert agent.run("o", store=store, run_id="r").status == "failed"
    assert world == ["book train"]
    events = [event for _, event in store.events("r")]
    (failed,) = [event for event in events if isinstance(event, ev.ActionFailed)]
    assert "several actions are called book_a_seat" in str(unpack(failed.error))
    assert "plane.book" in str(unpack(failed.error))
    (rolled,) = [event for event in events if isinstance(event, ev.CycleRolledBack)]
    assert len(rolled.orphaned) == 1


@ind.action(name="send_a_card", effect="irreversible")
def send_card() -> str:
    raise TimeoutError


def test_of_two_actions_with_one_name_neither_decides_what_fits(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B115: what another module declares under the same name is not this action."""

    def send_a_card() -> None: ...

    def undo() -> None: ...

    other = ind.action(effect="irreversible", undo=undo)(send_a_card)
    monkeypatch.setitem(_declared, ("elsewhere", "send_a_card"), other.spec)
    agent = agent_of(lambda run: run.finish(send_card()))
    assert agent.run("o", store=store, run_id="r").kind == "doubt"
    store.settle("r", "send_a_card", happened=True, result="card-7")
    assert agent.run("o", store=store, run_id="r").result == "card-7"
