"""Opening a run that cannot be gone on with changes nothing, and neither does opening one that has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import indelible as ind
from indelible.errors import IndelibleError, JournalDamaged, RunMismatch, StateInvalid
from indelible.runtime.runstore import RunStore
from indelible.stores.base import inbox_of
from indelible.stores.memory import MemoryStore
from tests.unit.simple_agents import Death, Memory, agent_of, kinds


class Renamed(ind.State):
    tasks: ind.Queue[str]
    notes: ind.Log[str]
    count: str = ""


def asking(run: ind.Run[Memory]) -> None:
    run.finish(run.ask("who?"))


def older() -> Any:
    return agent_of(asking)


def failing_migration() -> Any:
    agent = agent_of(asking, version=3)

    @agent.migration(2)
    def to_3(state: dict[str, Any]) -> dict[str, Any]:
        raise KeyError("count")

    return agent


def other_fields() -> Any:
    return ind.agent(state=Renamed, name="tester", version=2)(lambda run: None)


def broken_invariant(version: int) -> Callable[[], Any]:
    def make() -> Any:
        agent = agent_of(asking, version=version)

        @agent.invariant
        def counted(state: Memory) -> bool:
            return state.count > 0

        return agent

    return make


def other_name() -> Any:
    return ind.agent(state=Memory, name="another")(asking)


@pytest.mark.parametrize(
    ("make", "objective", "error"),
    [
        (older, "o", StateInvalid),
        (failing_migration, "o", StateInvalid),
        (other_fields, "o", StateInvalid),
        (broken_invariant(2), "o", StateInvalid),
        (broken_invariant(3), "o", StateInvalid),
        (other_name, "o", RunMismatch),
        (lambda: agent_of(asking, version=2), "another objective", RunMismatch),
    ],
)
def test_an_opening_that_is_refused_writes_nothing(
    make: Callable[[], Any], objective: str, error: type[IndelibleError], store: RunStore
) -> None:
    """B27: code that does not fit is told so, and the journal is as it was, also if it is tried again and again."""
    agent_of(asking, version=2).run("o", store=store, run_id="r")
    before = list(store.events("r"))
    for _ in range(2):
        with pytest.raises(error):
            make().run(objective, store=store, run_id="r")
    assert list(store.events("r")) == before
    assert [entry.live for entry in store.entries()] == [False]
    store.answer("r", "ann")
    assert agent_of(asking, version=2).run("o", store=store, run_id="r").result == "ann"


def test_an_opening_that_finds_a_damaged_inbox_writes_nothing(store: RunStore) -> None:
    agent = agent_of(asking)
    wait = agent.run("o", store=store, run_id="r").wait
    store.answer("r", "ann", wait=wait)
    store.answer("r", "bob", wait=wait)
    before = list(store.events("r"))
    memory = store.store
    assert isinstance(memory, MemoryStore)
    batches = memory._journals[inbox_of("r")].batches
    batches[0] = batches[0]._replace(data=b"\x01\x01" + bytes(40))
    with pytest.raises(JournalDamaged):
        agent.run("o", store=store, run_id="r")
    assert list(store.events("r")) == before


def test_a_state_that_breaks_an_invariant_at_the_start_is_no_run(store: RunStore) -> None:
    """B09: what is refused was never accepted."""
    with pytest.raises(StateInvalid, match="counted does not hold") as refused:
        broken_invariant(1)().run("o", store=store, run_id="r")
    assert refused.value.hint == "mend @tester.start; no run was accepted"
    assert list(store.entries()) == []
    assert agent_of(lambda run: run.finish("anew")).run("o", store=store, run_id="r").result == "anew"


def failing(run: ind.Run[Memory]) -> None:
    raise ValueError("never works")


@pytest.mark.parametrize("body", [lambda run: run.finish(1), failing])
def test_a_run_that_has_ended_is_opened_without_a_trace(body: Any, store: RunStore) -> None:
    agent = agent_of(body, tasks=(), attempts=1)
    first = agent.run("o", store=store, run_id="r")
    before = list(store.events("r"))
    assert agent.run("o", store=store, run_id="r") == first
    with store.run("r", agent) as run:
        assert not run.is_active
        assert run.state.count == 0
    assert list(store.events("r")) == before


def test_what_is_said_to_a_run_that_has_ended_is_taken_in_once(store: RunStore) -> None:
    """B97: the deed that was left in doubt is settled, and the journal says by which process that was read."""
    mails: list[str] = []

    @ind.action(name="mail_the_end", effect="irreversible")
    def mail() -> None:
        mails.append("x")
        raise Death

    def body(run: ind.Run[Memory]) -> None:
        if not mails:
            mail()
        run.finish()

    agent = agent_of(body)
    with pytest.raises(Death):
        agent.run("o", store=store, run_id="r")
    assert agent.run("o", store=store, run_id="r").is_finished
    store.settle("r", "mail_the_end", happened=True)
    before = kinds(store)
    for _ in range(2):
        assert agent.run("o", store=store, run_id="r").is_finished
    assert kinds(store)[len(before) :] == ["run.claimed", "action.settled"]


def test_a_run_that_is_retried_says_who_took_it_up(store: RunStore) -> None:
    agent = agent_of(failing, tasks=(), attempts=1)
    agent.run("o", store=store, run_id="r")
    before = list(store.events("r"))
    with pytest.raises(StateInvalid):
        broken_invariant(1)().run(run_id="r", store=store, retry=True)
    assert list(store.events("r")) == before
    agent.run(run_id="r", store=store, retry=True)
    assert kinds(store)[len(before) :][:2] == ["run.claimed", "run.reopened"]
