"""What calls cost that leave no outcome: cut off, in doubt, or with nothing that could be kept. Counted once each."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import indelible as ind
from indelible.core import events as ev
from indelible.errors import Misuse, NotStorable
from indelible.runtime.runs import Outcome
from indelible.runtime.runstore import RunStore
from tests.unit.simple_agents import Memory, agent_of, kinds

calls: list[str] = []


@pytest.fixture(autouse=True)
def world() -> None:
    """Nothing was called."""
    calls.clear()


def spent(store: RunStore) -> float:
    """By the record, and by the meter, which must agree."""
    usage, metered = store.recover("r").record.usage, store.meter("r").calls
    assert (metered.calls, metered.usd, metered.unpriced) == (usage.calls, usage.usd, usage.unpriced)
    return round(usage.usd, 9)


def processes(run: Callable[[], Outcome], count: int = 9) -> Outcome | None:
    """As many processes as it takes until one of them says how the run stands; each forgets what it had in memory."""
    for _ in range(count):
        try:
            return run()
        except (SystemExit, KeyboardInterrupt, Misuse, NotStorable):
            continue
    return None


def leaves(how: str) -> Any:
    """What ends a call without an outcome."""
    if how == "exit":
        sys.exit(1)
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "misuse":
        raise Misuse("the program is wrong", hint="mend it")
    return threading.Lock()


@pytest.mark.parametrize("how", ["exit", "interrupt", "misuse", "what cannot be stored"])
@pytest.mark.parametrize("effect", ["repeatable", "idempotent"])
@pytest.mark.parametrize("declares", [False, True])
def test_a_storm_of_calls_that_leave_nothing_ends_at_the_budget(
    store: RunStore, how: str, effect: Any, declares: bool
) -> None:
    """B113, B119: each process of it finds what the ones before have paid."""
    if effect == "idempotent" and how == "what cannot be stored":
        how = "misuse"  # such a deed is done all the same

    @ind.action(effect=effect, cost_usd=0.4 if declares else None)
    def ask(key: str = "") -> Any:
        calls.append("ask")
        if not declares:
            ind.usage(usd=0.4)
        return leaves(how)

    def body(run: ind.Run[Memory]) -> None:
        ask()

    agent = agent_of(body)
    outcome = processes(lambda: agent.run("o", store=store, run_id="r", budget_usd=1))
    assert outcome is not None
    assert (outcome.kind, len(calls), spent(store)) == ("budget", 2, 0.8)


@pytest.mark.parametrize("declares", [False, True])
def test_a_storm_of_time_limits_ends_at_the_budget(store: RunStore, declares: bool) -> None:
    """B119: a call that was cut off is paid for, and the processes after a crash know it."""

    @ind.action(cost_usd=0.1 if declares else None)
    async def slow() -> None:
        calls.append("slow")
        if not declares:
            ind.usage(usd=0.1)
        await asyncio.Event().wait()

    @ind.agent(state=Memory, name="tester")
    async def agent(run: ind.Run[Memory]) -> None:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await slow()
        raise KeyboardInterrupt

    outcome = processes(lambda: asyncio.run(agent.run("o", store=store, run_id="r", budget_usd=0.55)))
    assert outcome is not None
    assert (outcome.kind, len(calls), spent(store)) == ("budget", 5, 0.5)


def test_what_an_action_paid_before_it_had_to_wait_is_counted_each_time(store: RunStore) -> None:
    """It is called from its beginning when the answer is there, and pays again."""
    runs: list[ind.Run[Memory]] = []

    @ind.action(cost_usd=0.1)
    def outer() -> str:
        calls.append("outer")
        ind.usage(usd=0.05)
        return str(runs[-1].ask("May I?"))

    def body(run: ind.Run[Memory]) -> None:
        runs.append(run)
        run.finish(outer())

    agent = agent_of(body)
    agent.run("o", store=store, run_id="r", budget_usd=1)
    assert spent(store) == 0.05
    store.answer("r", "yes")
    assert agent.run(store=store, run_id="r").result == "yes"
    assert (len(calls), spent(store)) == (2, 0.1)


def test_an_unknown_price_stays_unknown_if_the_call_is_cut_off(store: RunStore) -> None:
    """Unknown is never zero."""

    @ind.action
    def ask() -> None:
        calls.append("ask")
        ind.usage(tokens_in=7, model="m-1")
        sys.exit(1)

    def body(run: ind.Run[Memory]) -> None:
        ask()

    agent = agent_of(body)
    outcome = processes(lambda: agent.run("o", store=store, run_id="r", budget_usd=1))
    assert outcome is not None
    assert (outcome.kind, len(calls)) == ("unpriced", 1)
    assert store.recover("r").record.usage.tokens_in == 7


class TestInDoubt:
    """B113: a deed in doubt is counted once, however the doubt ends."""

    @pytest.mark.parametrize("ends", ["happened", "did not happen", "probed", "probed not", "assumed", "assumed not"])
    @pytest.mark.parametrize("reports", [False, True])
    @pytest.mark.parametrize("cut", [False, True])
    def test_however_it_ends(self, store: RunStore, ends: str, reports: bool, cut: bool) -> None:
        probes = {"probed": ind.happened("late"), "probed not": ind.did_not_happen()}
        policies: dict[str, Any] = {"assumed": "assume_happened", "assumed not": "assume_not"}

        @ind.action(
            name="send in doubt", effect="irreversible", cost_usd=0.3, on_doubt=policies.get(ends, "ask"),
            probe=(lambda: probes[ends]) if ends in probes else None,
        )  # fmt: skip
        def send() -> str:
            calls.append("send")
            if len(calls) == 1:
                if reports:
                    ind.usage(usd=0.2)
                raise KeyboardInterrupt if cut else TimeoutError
            return "done"

        def body(run: ind.Run[Memory]) -> None:
            send()
            run.finish()

        agent = agent_of(body)

        def once() -> Outcome:
            return agent.run("o", store=store, run_id="r")

        outcome = processes(once)
        assert outcome is not None
        if ends in ("happened", "did not happen"):
            assert (outcome.kind, spent(store)) == ("doubt", 0.2 if reports else 0.0)
            store.settle("r", "send in doubt", happened=ends == "happened")
            outcome = once()
        assert outcome.is_finished
        again = ends in ("did not happen", "probed not", "assumed not")
        first = 0.2 if reports else 0.0 if again else 0.3
        assert (len(calls), spent(store)) == (1 + again, round(first + 0.3 * again, 9))

    def test_what_it_reported_is_on_disk_while_it_is_in_doubt(self, store: RunStore) -> None:
        seen: list[float] = []

        def looked() -> Any:
            seen.append(spent(store))
            return ind.unknown("no")

        @ind.action(effect="irreversible", probe=looked)
        def send() -> None:
            ind.usage(usd=0.2)
            raise TimeoutError

        def body(run: ind.Run[Memory]) -> None:
            send()

        assert agent_of(body).run("o", store=store, run_id="r").kind == "doubt"
        assert seen[0] == 0.2
        assert kinds(store).count("action.charged") == 1
        (charged,) = [event for _, event in store.events("r") if isinstance(event, ev.ActionCharged)]
        assert charged.name == "send"


def test_a_keyed_call_that_fails_in_one_cycle_after_another_is_counted_once_each(store: RunStore) -> None:
    """B113: it fails with the same number of the attempt, and is another call all the same."""

    @ind.action(key=lambda: "one")
    def flaky() -> None:
        calls.append("flaky")
        ind.usage(usd=0.1)
        raise ConnectionError

    def body(run: ind.Run[Memory]) -> None:
        with pytest.raises(ConnectionError):
            flaky()
        run.state.count += 1
        if run.state.count == 4:
            run.finish()

    assert agent_of(body).run("o", store=store, run_id="r", budget_usd=0.4).is_finished
    assert (len(calls), spent(store)) == (4, 0.4)


def test_with_a_budget_what_was_paid_is_written_at_once_however_dear_a_write_is() -> None:
    """B113: what a crash forgets would be spent beyond the budget."""
    seen: list[float] = []

    @ind.action
    def ask(number: int) -> int:
        ind.usage(usd=0.1)
        return number

    with ind.open("memory:", durability="economic", mtbf_hours=720, usd_per_write=1.0) as store:

        def body(run: ind.Run[Memory]) -> None:
            for number in range(3):
                ask(number)
                seen.append(spent(store))
            run.finish()

        agent_of(body).run("o", store=store, run_id="r", budget_usd=1)
    assert seen == [0.1, 0.2, 0.3]
