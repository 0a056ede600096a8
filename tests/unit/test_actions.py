"""What an action promises: identity, keys, failures."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import indelible as ind
from indelible.core import events as ev
from indelible.core.codec import pack
from indelible.core.failures import rebuild
from indelible.errors import ActionFailed, Misuse, StoreUnavailable
from indelible.runtime.runstore import RunStore
from tests.unit.simple_agents import Death, Memory, Order, agent_of


def test_a_result_is_paid_for_once_however_often_the_cycle_is_entered(store: RunStore) -> None:
    """B02, B23: what returned before the failure comes from the journal; only what failed is tried again."""
    paid: list[str] = []
    failing = [True, True]

    @ind.action
    def complete(prompt: str) -> str:
        paid.append(prompt)
        return prompt.upper()

    def body(run: ind.Run[Memory]) -> None:
        task = run.state.tasks.take()
        run.state.notes.append(complete(task))
        run.state.notes.append(complete(task + "2"))
        if failing:
            failing.pop()
            raise ConnectionError("429")
        run.finish(list(run.state.notes))

    outcome = agent_of(body).run("o", store=store, run_id="r")
    assert outcome.result == ["A", "A2"]
    assert paid == ["a", "a2"]
    record = store.recover("r").record
    assert (record.usage.calls, record.usage.recalled) == (2, 4)  # two for the second entry, two for the third


def test_equal_calls_in_one_cycle_are_told_apart_by_their_number(store: RunStore) -> None:
    drawn: list[int] = []

    @ind.action
    def draw(kind: str) -> int:
        drawn.append(len(drawn))
        return drawn[-1]

    die = [True]

    def body(run: ind.Run[Memory]) -> None:
        got = [draw("x"), draw("x"), draw("y")]
        if die:
            die.pop()
            raise Death
        run.finish(got)

    agent = agent_of(body)
    with pytest.raises(Death):
        agent.run("o", store=store, run_id="r")
    assert agent.run("o", store=store, run_id="r").result == [0, 1, 2]
    assert drawn == [0, 1, 2]


def test_arguments_are_told_apart_by_type_and_equal_ones_are_one(store: RunStore) -> None:
    """B41, B115: 1, 1.0, True, "1" and b"1" differ; equal NaNs are equal; key order and defaults do not matter."""
    seen: list[Any] = []

    @ind.action
    def look(value: Any, flag: bool = False) -> int:
        seen.append(value)
        return len(seen)

    die = [True]

    def body(run: ind.Run[Memory]) -> None:
        values: list[Any] = [1, 1.0, True, "1", b"1", float("nan"), {"a": 1, "b": 2}]
        first = [look(value) for value in values]
        if die:
            die.pop()
            raise Death
        again = [look(value, flag=False) for value in ({"b": 2, "a": 1},)]
        run.finish([first, again])

    agent = agent_of(body)
    with pytest.raises(Death):
        agent.run("o", store=store, run_id="r")
    assert agent.run("o", store=store, run_id="r").result == [[1, 2, 3, 4, 5, 6, 7], [8]]
    assert len(seen) == 8


def test_an_inner_call_is_not_mistaken_for_an_outer_one(store: RunStore) -> None:
    """B14: identity follows the path of calls, so an outer result from the journal shifts nothing."""
    sent: list[str] = []

    @ind.action(effect="irreversible")
    def send(text: str) -> int:
        sent.append(text)
        return len(sent)

    @ind.action
    def tool(text: str) -> int:
        return send(text)

    die = [True]

    def body(run: ind.Run[Memory]) -> None:
        first = tool("hello")
        if die:
            die.pop()
            raise Death
        run.finish([first, send("hello")])

    agent = agent_of(body)
    with pytest.raises(Death):
        agent.run("o", store=store, run_id="r")
    outcome = agent.run("o", store=store, run_id="r")
    assert outcome.result == [1, 2]
    assert sent == ["hello", "hello"]
    assert not [e for _, e in store.events("r") if isinstance(e, ev.CycleCommitted) and e.orphaned]


def test_a_business_key_holds_for_the_whole_run(store: RunStore) -> None:
    charged: list[tuple[int, str]] = []

    @ind.action(effect="irreversible", key=lambda order: f"charge-{order.id}")
    def charge(order: Order, *, key: str = "") -> str:
        charged.append((order.id, key))
        return f"receipt-{order.id}"

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        run.state.notes.append(charge(Order(7, 10)))
        if not run.state.tasks:
            run.finish(list(run.state.notes))

    outcome = agent_of(body, tasks=("a", "b", "c")).run("o", store=store, run_id="r")
    assert outcome.result == ["receipt-7"] * 3
    assert charged == [(7, "charge-7")]


def test_the_idempotency_key_is_kept_for_every_further_call(store: RunStore) -> None:
    keys: list[str] = []

    @ind.action(effect="idempotent")
    def upsert(name: str, *, key: str = "") -> None:
        keys.append(key)
        if len(keys) < 3:
            raise TimeoutError

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        upsert("x")
        run.finish()

    assert agent_of(body).run("o", store=store, run_id="r").is_finished
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert len(keys[0]) == 32


def test_a_failure_is_raised_again_inside_its_attempt_with_type_and_fields(store: RunStore) -> None:
    """B05, B117: a failure is kept as a value, apart from results, and rebuilt without running its __init__."""
    calls: list[str] = []
    caught: list[BaseException] = []

    @ind.action
    def fragile(text: str) -> str:
        calls.append(text)
        raise Refused("no", code=451)

    die = [True]

    def body(run: ind.Run[Memory]) -> None:
        try:
            fragile("x")
        except Refused as error:
            caught.append(error)
        if die:
            die.pop()
            raise Death
        run.finish()

    agent = agent_of(body)
    with pytest.raises(Death):
        agent.run("o", store=store, run_id="r")
    assert agent.run("o", store=store, run_id="r").is_finished
    assert calls == ["x"]
    assert [(type(error), str(error), error.code) for error in caught if isinstance(error, Refused)] == [
        (Refused, "refused: no", 451)
    ] * 2


class Refused(Exception):
    def __init__(self, why: str, code: int) -> None:
        super().__init__(f"refused: {why}")
        self.code = code


def test_a_new_attempt_calls_what_failed_again(store: RunStore) -> None:
    calls: list[int] = []

    @ind.action
    def flaky() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError
        return "ok"

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        run.finish(flaky())

    assert agent_of(body).run("o", store=store, run_id="r").result == "ok"
    assert len(calls) == 3


def test_outside_a_run_a_repeatable_action_just_runs_and_an_irreversible_one_refuses() -> None:
    @ind.action
    def complete(text: str) -> str:
        return text.upper()

    @ind.action(effect="irreversible")
    def send(text: str, *, key: str = "") -> str:
        return text + key

    assert complete("x") == "X"
    with pytest.raises(Misuse, match=r"send\.unrecorded"):
        send("x")
    assert send.unrecorded("x") == "x"


def test_two_functions_under_one_name_are_refused(store: RunStore) -> None:
    """B115: a result is never another function's."""

    def make(n: int) -> Any:
        def look() -> int:
            return n

        look.__qualname__ = f"look{n}"
        return ind.action(look)

    one, two = make(1), make(2)

    def body(run: ind.Run[Memory]) -> None:
        one()
        two()

    with pytest.raises(Misuse, match="two actions are called look"):
        agent_of(body).run("o", store=store, run_id="r")


@pytest.mark.parametrize(
    "declare",
    [
        lambda: ind.action(effect="maybe")(print),  # type: ignore[call-overload]
        lambda: ind.action(probe=print)(lambda: None),
        lambda: ind.action(approve=True)(lambda: None),
        lambda: ind.action(lambda: None),
        lambda: ind.agent(state=Memory, version=0),
        lambda: ind.agent(state=dict),  # type: ignore[type-var]
    ],
)
def test_declarations_that_cannot_be_right_are_refused(declare: Callable[[], Any]) -> None:
    with pytest.raises(Misuse):
        declare()


def test_a_class_that_is_not_loaded_is_named_and_never_imported() -> None:
    """B121: no name read from disk is ever imported."""
    stored: Any = {"module": "antigravity", "name": "Boom", "text": "Boom: x", "args": [], "fields": {}}
    error = rebuild(pack(stored), "tool")
    assert isinstance(error, ActionFailed)
    assert "Boom: x" in str(error)
    assert "antigravity" not in sys.modules


def test_an_error_that_stops_the_run_is_not_kept_as_the_outcome_of_the_call(store: RunStore) -> None:
    """B23: the provider is down: nothing is counted or lost, and the call is made again on resume."""
    calls: list[int] = []

    @ind.action
    def complete() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise StoreUnavailable("the model cannot be reached")
        return "ok"

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        run.finish(complete())

    agent = agent_of(body, attempts=1)
    with pytest.raises(StoreUnavailable):
        agent.run("o", store=store, run_id="r")
    assert agent.run("o", store=store, run_id="r").result == "ok"
    assert len(calls) == 2
