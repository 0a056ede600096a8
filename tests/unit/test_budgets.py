"""A run with a budget parks before the call that would pass it, and goes on when it is told to."""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import indelible as ind
from indelible.core import budgets
from indelible.core import events as ev
from indelible.core.record import FINISHED, PARKED, RUNNING
from indelible.errors import BudgetExceeded, Misuse
from indelible.runtime.runstore import RunStore
from tests.unit.simple_agents import Death, Memory, agent_of, kinds

calls: list[str] = []
prices: list[float | None] = []


@pytest.fixture(autouse=True)
def world() -> None:
    """Nothing was called, and a call costs ten cents."""
    calls.clear()
    prices[:] = [0.1]


def price() -> float | None:
    """What the next call costs; the last price stays."""
    return prices.pop(0) if len(prices) > 1 else prices[0]


@ind.action
def model(prompt: str) -> str:
    calls.append(prompt)
    ind.usage(usd=price(), model="m-1")
    return prompt


@ind.action(cost_usd=0.1)
def declared(prompt: str) -> str:
    calls.append(prompt)
    return prompt


@ind.action
def flaky(prompt: str) -> str:
    calls.append(prompt)
    ind.usage(usd=price())
    raise ConnectionError("no luck")


@ind.action
def free(prompt: str) -> str:
    calls.append(prompt)
    return prompt


@ind.action(effect="irreversible", cost_usd=0.1)
def send(to: str, *, key: str = "") -> str:
    calls.append(to)
    return key


def doing(action: Callable[[str], Any], count: int) -> Any:
    def body(run: ind.Run[Memory]) -> None:
        task = run.state.tasks.take()
        for number in range(count):
            action(f"{task}{number}")
        if not run.state.tasks:
            run.finish(len(calls))

    return agent_of(body)


def spent(store: RunStore) -> float:
    return store.recover("r").record.usage.usd


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, -math.inf, True, "5", None, 10**400, [5]])
def test_what_is_no_budget_is_misuse_everywhere(store: RunStore, value: Any) -> None:
    agent = doing(model, 5)
    if value is not None:
        with pytest.raises(Misuse, match="finite number"):
            agent.run("o", store=store, run_id="r", budget_usd=value)
        assert not list(store.entries())
    agent.run("o", store=store, run_id="r", budget_usd=0.2)
    with pytest.raises(Misuse, match="finite number") as caught:
        store.answer("r", value)
    assert "indelible answer r --budget 0.4" in caught.value.hint
    assert store.recover("r").record.budget == 0.2


@pytest.mark.parametrize("value", [-0.01, math.nan, math.inf, True, "0.1", 10**400])
def test_what_is_no_cost_is_misuse(value: Any) -> None:
    with pytest.raises(Misuse, match="cost_usd"):
        ind.action(cost_usd=value)(lambda_with_a_name)


def lambda_with_a_name() -> None:
    """An action to be."""


@pytest.mark.parametrize("action", [model, declared])
def test_a_run_parks_before_the_call_that_would_pass_its_budget(store: RunStore, action: Callable[[str], Any]) -> None:
    """Three times 0.1 is more than 0.3 in floats, and fits all the same."""
    agent = doing(action, 5)
    parked = agent.run("o", store=store, run_id="r", budget_usd=0.3)
    assert (parked.status, parked.kind) == (PARKED, "budget")
    name = action.__name__
    assert f"next call of {name} is expected to cost $0.10; $0.30 of the budget of $0.30" in parked.question
    assert "indelible answer r --budget 0.8" in parked.question
    assert calls == ["a0", "a1", "a2"]
    assert agent.run(store=store, run_id="r").status == PARKED, "without an answer nothing happens"
    store.answer("r", 1, by="ann")
    assert agent.run(store=store, run_id="r").result == 5
    assert calls == ["a0", "a1", "a2", "a3", "a4"], "nothing was called twice"
    record = store.recover("r").record
    assert (record.budget, round(record.usage.usd, 9), record.usage.recalled) == (1.0, 0.5, 3)
    answered = [event.by for _, event in store.events("r") if isinstance(event, ev.WaitAnswered)]
    assert answered == ["ann"]


def test_an_answer_must_allow_more_than_is_spent(store: RunStore) -> None:
    agent = doing(declared, 5)
    agent.run("o", store=store, run_id="r", budget_usd=0.3)
    for value in (0.1, spent(store)):
        with pytest.raises(Misuse, match=r"has spent \$0.30 already"):
            store.answer("r", value)
    store.answer("r", 0.4)
    store.answer("r", 9.0)  # said second, while the first is not taken in: it comes too late
    again = agent.run(store=store, run_id="r")
    assert (again.kind, len(calls), store.recover("r").record.budget) == ("budget", 4, 0.4)


def test_the_budget_of_last_time_leaves_what_a_person_set_and_another_replaces_it(store: RunStore) -> None:
    agent = doing(declared, 9)
    agent.run("o", store=store, run_id="r", budget_usd=0.2)
    store.answer("r", 0.4)
    assert agent.run("o", store=store, run_id="r", budget_usd=0.2).kind == "budget"
    assert (len(calls), store.recover("r").record.budget) == (4, 0.4)
    assert agent.run("o", store=store, run_id="r", budget_usd=0.6).kind == "budget"
    assert (len(calls), store.recover("r").record.budget) == (6, 0.6)
    assert agent.run("o", store=store, run_id="r", budget_usd=0.1).kind == "budget"
    assert (len(calls), store.recover("r").record.budget) == (6, 0.1), "a smaller one stops it"
    told = [(event.usd, event.by) for _, event in store.events("r") if isinstance(event, ev.RunBudgeted)]
    assert told == [(0.2, "the caller"), (0.6, "the caller"), (0.1, "the caller")]


def test_a_run_is_never_known_without_its_budget(store: RunStore) -> None:
    """Both are one batch: a crash leaves a run with a budget, or none at all."""
    agent = doing(declared, 1)
    agent.run("o", store=store, run_id="r", budget_usd=0.05)
    first = next(iter(store.store.read("r")))
    assert kinds(store)[:2] == ["run.started", "run.budgeted"]
    assert first.last_seq >= 2
    assert calls == []


def test_a_deed_that_parks_for_its_cost_has_no_intent(store: RunStore) -> None:
    agent = doing(send, 2)
    agent.run("o", store=store, run_id="r", budget_usd=0.1)
    assert kinds(store).count("action.intended") == len(calls) == 1
    store.answer("r", 0.2)
    assert agent.run(store=store, run_id="r").status == FINISHED
    assert kinds(store).count("action.intended") == len(calls) == 2


def test_what_is_free_goes_on_when_the_budget_is_spent_and_what_is_not_known_does_not(store: RunStore) -> None:
    zero = ind.action(cost_usd=0, name="zero")(lambda_with_a_name)

    def body(run: ind.Run[Memory]) -> None:
        free("before")
        declared("paid")
        free("after")
        zero()
        model("never called before")
        run.finish()

    outcome = agent_of(body).run("o", store=store, run_id="r", budget_usd=0.1)
    assert calls == ["before", "paid", "after"]
    assert "The next call of model has no known cost yet" in outcome.question


def test_the_largest_cost_so_far_is_what_is_expected(store: RunStore) -> None:
    prices[:] = [0.3, 0.1]
    outcome = doing(model, 9).run("o", store=store, run_id="r", budget_usd=0.75)
    assert "is expected to cost $0.30; $0.50 of the budget of $0.75" in outcome.question
    assert len(calls) == 3
    assert store.recover("r").record.costs == {"model": 0.3}


def test_a_retry_storm_ends_at_the_budget(store: RunStore) -> None:
    """B115: every failed call is counted, in one cycle and over attempts."""

    def body(run: ind.Run[Memory]) -> None:
        while True:
            try:
                flaky("again")
            except ConnectionError:
                continue

    outcome = agent_of(body).run("o", store=store, run_id="r", budget_usd=1)
    assert (outcome.kind, len(calls), round(spent(store), 9)) == ("budget", 10, 1.0)


def test_a_failure_that_cost_money_is_known_after_a_crash(store: RunStore) -> None:
    """Else each process of a storm of crashes would begin with the same budget."""
    on_disk: list[float] = []

    def body(run: ind.Run[Memory]) -> None:
        try:
            flaky("once")
        except ConnectionError:
            on_disk.append(spent(store))
            raise Death from None

    agent = agent_of(body)
    for _ in range(2):
        with pytest.raises(Death):
            agent.run("o", store=store, run_id="r", budget_usd=1)
    assert (len(calls), on_disk) == (1, [0.1, 0.1])


def test_a_storm_of_results_that_cannot_be_stored_ends_at_the_budget(store: RunStore) -> None:
    @ind.action
    def odd() -> Any:
        calls.append("odd")
        ind.usage(usd=0.1)
        return threading.Lock()

    def body(run: ind.Run[Memory]) -> None:
        while True:
            try:
                odd()
            except ind.errors.NotStorable:
                continue

    assert agent_of(body).run("o", store=store, run_id="r", budget_usd=0.5).kind == "budget"
    assert len(calls) == 5


def test_an_action_that_calls_others_is_counted_once(store: RunStore) -> None:
    @ind.action
    def outer(text: str) -> str:
        return model(f"{text} left") + model(f"{text} right")

    outcome = doing(outer, 5).run("o", store=store, run_id="r", budget_usd=0.5)
    assert (outcome.kind, len(calls), round(spent(store), 9)) == ("budget", 5, 0.5)
    assert store.recover("r").record.costs == {"model": 0.1, "outer": 0.0}


def test_what_a_declared_action_reports_counts_in_place_of_what_it_declares(store: RunStore) -> None:
    @ind.action(cost_usd=0.2)
    def cheap(text: str) -> str:
        calls.append(text)
        ind.usage(usd=0.05)
        return text

    outcome = doing(cheap, 9).run("o", store=store, run_id="r", budget_usd=0.4)
    assert (len(calls), round(spent(store), 9)) == (5, 0.25)
    assert "is expected to cost $0.20" in outcome.question


def test_a_deed_that_surely_did_not_happen_costs_nothing(store: RunStore) -> None:
    @ind.action(effect="irreversible", cost_usd=0.1)
    def refused(text: str) -> None:
        raise ind.DidNotHappen

    def body(run: ind.Run[Memory]) -> None:
        for number in range(3):
            with pytest.raises(ind.DidNotHappen):
                refused(str(number))
        run.finish()

    agent_of(body).run("o", store=store, run_id="r", budget_usd=0.1)
    assert spent(store) == 0.0


def test_a_deed_that_its_probe_found_costs_what_it_declares(store: RunStore) -> None:
    @ind.action(effect="irreversible", cost_usd=0.1, probe=lambda text: ind.happened(text))
    def lost(text: str) -> str:
        raise TimeoutError

    outcome = doing(lost, 3).run("o", store=store, run_id="r", budget_usd=0.2)
    assert (outcome.kind, spent(store)) == ("budget", 0.2)


class TestUnknownPrices:
    """Unknown is never zero."""

    def test_the_next_call_of_that_action_is_asked_about(self, store: RunStore) -> None:
        prices[:] = [None]
        agent = doing(model, 4)
        parked = agent.run("o", store=store, run_id="r", budget_usd=1)
        assert (parked.kind, calls) == ("unpriced", ["a0"])
        for part in ("a call of model", "model m-1", "cost_usd=", "indelible answer r yes"):
            assert part in parked.question
        with pytest.raises(Misuse):
            store.answer("r", "no")
        store.answer("r", "yes")
        assert agent.run(store=store, run_id="r").status == FINISHED, "asked once"
        usage = store.recover("r").record.usage
        assert (usage.unpriced, usage.usd) == (4, 0.0)

    def test_what_is_let_go_on_is_still_not_free(self, store: RunStore) -> None:
        prices[:] = [None]

        def body(run: ind.Run[Memory]) -> None:
            model("unpriced")
            declared("all of it")
            model("more")

        agent = agent_of(body)
        agent.run("o", store=store, run_id="r", budget_usd=0.1)
        store.answer("r", "yes")
        assert agent.run(store=store, run_id="r").kind == "budget"
        assert calls == ["unpriced", "all of it"]

    def test_a_declared_cost_is_counted_for_what_has_no_price(self, store: RunStore) -> None:
        @ind.action(cost_usd=0.1)
        def local(text: str) -> str:
            calls.append(text)
            ind.usage(tokens_in=5)
            return text

        assert doing(local, 9).run("o", store=store, run_id="r", budget_usd=0.3).kind == "budget"
        usage = store.recover("r").record.usage
        assert (len(calls), usage.tokens_in, usage.unpriced) == (3, 15, 0)

    def test_a_cost_that_is_declared_later_ends_the_wait(self, store: RunStore) -> None:
        prices[:] = [None]

        def once(cost: float | None) -> Any:
            @ind.action(name="priced later", cost_usd=cost)
            def later(text: str) -> str:
                calls.append(text)
                ind.usage(usd=None, model="x")
                return text

            return doing(later, 3)

        assert once(None).run("o", store=store, run_id="r", budget_usd=1).kind == "unpriced"
        assert once(0.1).run(store=store, run_id="r").status == FINISHED
        assert len(calls) == 3


def test_a_call_inside_an_irreversible_action_cannot_park(store: RunStore) -> None:
    @ind.action(effect="irreversible", fails_cleanly=(BudgetExceeded,))
    def deed(text: str) -> str:
        return declared(text)

    agent = doing(deed, 3)
    with pytest.raises(BudgetExceeded, match="inside an irreversible action") as caught:
        agent.run("o", store=store, run_id="r", budget_usd=0.1)
    assert "indelible resume r AGENT.py:tester --budget USD" in caught.value.hint
    assert (calls, store.recover("r").record.status) == (["a0"], RUNNING)
    assert agent.run(store=store, run_id="r", budget_usd=1).status == FINISHED
    assert calls == ["a0", "a1", "a2"]


def test_a_loop_of_ones_own_is_told_what_its_run_waits_for(store: RunStore) -> None:
    with store.run("r", Memory, "o", budget_usd=0.1) as run:
        while run.is_active:
            with run.cycle():
                declared("a")
                declared("b")
        with pytest.raises(BudgetExceeded, match=r"\$0.10") as caught, run.cycle():
            pass
        assert caught.value.hint == "indelible answer r --budget USD"


def test_a_failed_run_is_retried_with_another_budget(store: RunStore) -> None:
    def body(run: ind.Run[Memory]) -> None:
        declared("a")
        declared("b")
        if run.attempt == 1 and not store.recover("r").record.budget_given == 1:
            raise ValueError

    agent = agent_of(body, attempts=1)
    agent.run("o", store=store, run_id="r", budget_usd=0.2)
    agent.run(store=store, run_id="r", retry=True, budget_usd=1, stop=lambda: True)
    assert kinds(store)[-2:] == ["run.budgeted", "run.reopened"]
    assert store.recover("r").record.budget == 1


class TestAtOnce:
    """What is called at the same time cannot pass the budget together."""

    @pytest.mark.parametrize("cost", [None, 0.1])
    @pytest.mark.parametrize("grouped", [False, True])
    def test_gather(self, store: RunStore, cost: float | None, grouped: bool) -> None:
        @ind.action(cost_usd=cost)
        async def ask(prompt: str) -> str:
            calls.append(prompt)
            await asyncio.sleep(0)
            ind.usage(usd=0.1)
            return prompt

        @ind.agent(state=Memory)
        async def agent(run: ind.Run[Memory]) -> None:
            results = await asyncio.gather(*(ask(str(n)) for n in range(8)), return_exceptions=grouped)
            run.finish(results)

        parked = asyncio.run(agent.run("o", store=store, run_id="r", budget_usd=0.5))
        assert (parked.kind, len(calls), round(spent(store), 9)) == ("budget", 5, 0.5)
        store.answer("r", 0.8)
        assert asyncio.run(agent.run(store=store, run_id="r")).result == [str(n) for n in range(8)]
        assert len(calls) == 8

    @pytest.mark.parametrize("action", [model, declared])
    def test_threads(self, store: RunStore, action: Callable[[str], str]) -> None:
        def body(run: ind.Run[Memory]) -> None:
            with ThreadPoolExecutor(8) as pool:
                asked = [pool.submit(contextvars.copy_context().run, action, str(n)) for n in range(40)]
            run.finish([future.result() for future in asked])

        agent = agent_of(body)
        parked = agent.run("o", store=store, run_id="r", budget_usd=2)
        assert (parked.kind, len(calls), round(spent(store), 9)) == ("budget", 20, 2.0)
        store.answer("r", 10)
        assert len(agent.run(store=store, run_id="r").result) == len(calls) == 40

    def test_those_that_may_turn_out_cheaper_are_waited_for(self, store: RunStore) -> None:
        """What is reserved for a call under way is more than it costs in the end: nobody is asked for that."""

        @ind.action(cost_usd=0.2)
        async def ask(prompt: str) -> str:
            calls.append(prompt)
            await asyncio.sleep(0)
            ind.usage(usd=0.05)
            return prompt

        @ind.agent(state=Memory)
        async def agent(run: ind.Run[Memory]) -> None:
            run.finish(await asyncio.gather(*(ask(str(n)) for n in range(4))))

        assert asyncio.run(agent.run("o", store=store, run_id="r", budget_usd=0.4)).status == FINISHED
        assert len(calls) == 4

    def test_a_call_that_is_cancelled_counts_as_what_it_declares_and_no_more(self, store: RunStore) -> None:
        """What was put aside for it is not kept beside that."""

        @ind.action(cost_usd=0.1)
        async def slow(prompt: str) -> str:
            calls.append(prompt)
            if prompt == "late":
                await asyncio.Event().wait()
            return prompt

        @ind.agent(state=Memory)
        async def agent(run: ind.Run[Memory]) -> None:
            late = asyncio.create_task(slow("late"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            late.cancel()
            await asyncio.gather(late, return_exceptions=True)
            run.finish(await slow("soon"))

        assert asyncio.run(agent.run("o", store=store, run_id="r", budget_usd=0.2)).result == "soon"
        assert (calls, spent(store)) == (["late", "soon"], 0.2)


def test_a_rounded_dollar_says_what_it_can() -> None:
    assert [budgets.dollars(usd) for usd in (5, 0.1 + 0.2, 0.000123, 1234567.8)] == [
        "$5.00", "$0.30", "$0.000123", "$1234567.80",
    ]  # fmt: skip
