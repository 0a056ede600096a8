"""How a cycle ends while something else is still going on, and what is counted of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import indelible as ind
from indelible.core import events as ev
from indelible.core import snapshots
from indelible.errors import RunMismatch, StoreUnavailable
from indelible.runtime.runstore import RunStore
from tests.unit.simple_agents import Death, Memory, agent_of


def test_an_action_under_way_when_the_cycle_parks_may_still_call_its_own_actions(store: RunStore) -> None:
    """B97: refused in the middle, the deed would be in doubt for no reason but the question of another branch."""
    world: list[str] = []

    @ind.action
    async def look(text: str) -> str:
        await asyncio.sleep(0)
        return text

    @ind.action(effect="irreversible")
    async def send(text: str) -> str:
        for _ in range(5):
            await asyncio.sleep(0)
        found = await look(text)
        world.append(found)
        return found

    @ind.agent(state=Memory, name="tester", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        async def asking() -> str:
            return str(run.ask("who?"))

        run.finish(await asyncio.gather(send("x"), asking()))

    assert asyncio.run(agent.run("o", store=store, run_id="r")).kind == "ask"
    assert store.recover("r").record.in_doubt() == []
    store.answer("r", "ada")
    assert asyncio.run(agent.run("o", store=store, run_id="r")).result == ["x", "ada"]
    assert world == ["x"]


def test_a_keyed_failure_of_this_attempt_is_raised_again_and_an_older_one_is_not(store: RunStore) -> None:
    calls: list[int] = []

    @ind.action(key=lambda: "k")
    def complete() -> None:
        calls.append(1)
        raise TimeoutError

    def body(run: ind.Run[Memory]) -> None:
        with pytest.raises(TimeoutError):
            complete()
        if run.cycle_number == 2:
            run.ask("go on?")
            run.finish()

    agent = agent_of(body)
    agent.run("o", store=store, run_id="r")
    store.answer("r", "yes")
    assert agent.run("o", store=store, run_id="r").is_finished
    assert len(calls) == 2


def test_what_a_deed_cost_is_counted_though_only_its_probe_knew_of_it(store: RunStore) -> None:
    """B113, B114: once each; what was refused before it was called is no call."""

    def probe() -> Any:
        return ind.happened()

    @ind.action(effect="irreversible", probe=probe)
    def order() -> None:
        ind.usage(usd=2.0)
        raise TimeoutError

    @ind.action(effect="irreversible", approve=True)
    def pay() -> None:
        ind.usage(usd=1.0)

    def body(run: ind.Run[Memory]) -> None:
        with pytest.raises(ind.DidNotHappen):
            pay()
        order()
        run.ask("go on?")
        run.finish()

    agent = agent_of(body)
    for answer in ("no", "yes"):
        agent.run("o", store=store, run_id="r")
        store.answer("r", answer)
    agent.run("o", store=store, run_id="r")
    usage = store.recover("r").record.usage
    assert (usage.calls, usage.usd) == (1, 2.0)


def test_a_call_of_unknown_price_is_made_durable_at_once(store: RunStore) -> None:
    """B114: nobody knows that it was free."""

    @ind.action
    def complete() -> None:
        ind.usage(tokens_in=10)

    def body(run: ind.Run[Memory]) -> None:
        complete()
        assert any(isinstance(event, ev.ActionCompleted) for _, event in store.events("r"))
        run.finish()

    assert agent_of(body).run("o", store=store, run_id="r").is_finished


@pytest.fixture
def down(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Put something in, and the store takes no batch."""
    failing: list[bool] = []
    append = store.store.append

    def flaky(writes: Any) -> Any:
        if failing:
            raise StoreUnavailable("the disk is full")
        return append(writes)

    monkeypatch.setattr(store.store, "append", flaky)
    monkeypatch.setattr("indelible.stores.writer.pauses", lambda _: iter(()))
    return failing


def test_an_interruption_is_told_though_the_store_is_out_of_reach(store: RunStore, down: list[bool]) -> None:
    def body(run: ind.Run[Memory]) -> None:
        down.append(True)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        agent_of(body).run("o", store=store, run_id="r")
    down.clear()
    assert not next(iter(store.entries())).live


def test_a_cycle_is_committed_though_its_snapshot_cannot_be_written(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B06: the journal is the truth; a snapshot only makes reading it fast."""

    def full(*_: object) -> None:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(store.store, "put_snapshot", full)
    monkeypatch.setattr(snapshots, "FIRST_AFTER_BYTES", 1)

    def body(run: ind.Run[Memory]) -> None:
        run.state.count += 1
        if run.state.count == 3:
            run.finish(run.state.count)

    assert agent_of(body).run("o", store=store, run_id="r").result == 3


def test_a_deed_in_doubt_stays_one_though_the_code_calls_it_repeatable_now(store: RunStore) -> None:
    sent: list[str] = []

    def send(text: str) -> None:
        sent.append(text)
        raise Death

    actions: list[Any] = [ind.action(effect="irreversible")(send), ind.action(send)]

    def body(run: ind.Run[Memory]) -> None:
        actions[0]("x")

    agent = agent_of(body)
    with pytest.raises(Death):
        agent.run("o", store=store, run_id="r")
    actions.pop(0)
    assert agent.run("o", store=store, run_id="r").kind == "doubt"
    assert sent == ["x"]


def test_the_person_is_told_how_the_deed_ended(store: RunStore) -> None:
    @ind.action(effect="irreversible")
    def send() -> None:
        raise TimeoutError("no answer from the relay")

    def body(run: ind.Run[Memory]) -> None:
        send()

    question = agent_of(body).run("o", store=store, run_id="r").question
    assert "It ended with TimeoutError: no answer from the relay" in question


def test_a_renamed_agent_is_told_how_to_keep_its_name(store: RunStore) -> None:
    def body(run: ind.Run[Memory]) -> None:
        run.ask("go on?")

    agent_of(body).run("o", store=store, run_id="r")
    with pytest.raises(RunMismatch, match=r'@agent\(name="tester"'):
        ind.agent(state=Memory, name="renamed")(body).run("o", store=store, run_id="r")


def test_code_whose_arguments_differ_at_every_entry_asks_a_person_in_the_end(store: RunStore) -> None:
    """A branch that lags behind is waited for, but not for ever."""
    sent: list[int] = []
    entries: list[int] = []
    die = [True]

    @ind.action(effect="irreversible")
    def send(text: int) -> None:
        sent.append(text)

    @ind.agent(state=Memory, name="tester", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        entries.append(1)

        async def first() -> None:
            if die:
                await asyncio.sleep(0)
                die.pop()
                raise Death
            send(len(entries))

        async def second() -> None:
            send(0)

        await asyncio.gather(first(), second())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("indelible.core.perform.PATIENCE_S", (0.0,))
        patch.setattr("indelible.core.perform.MAX_DETOURS", 5)
        with pytest.raises(Death):
            asyncio.run(agent.run("o", store=store, run_id="r"))
        assert asyncio.run(agent.run("o", store=store, run_id="r")).kind == "diverged"
    assert sent == [0]
    assert len(entries) == 7
