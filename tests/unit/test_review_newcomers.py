"""What a newcomer stumbles over is either right or told with a way out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import indelible as ind
from indelible.errors import Misuse
from indelible.runtime.runstore import RunStore
from tests.unit.simple_agents import Memory, agent_of


def finishing(run: ind.Run[Memory]) -> None:
    run.finish("done")


def test_a_store_may_be_a_path(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    assert agent_of(finishing).run("o", store=path, run_id="r").result == "done"
    with ind.open(path) as store:
        assert [entry.run_id for entry in store.entries()] == ["r"]


def test_what_is_no_agent_is_told_so(store: RunStore) -> None:
    with pytest.raises(Misuse, match="finishing is no agent"):
        store.run("r", finishing, "o")


def test_a_cycle_function_with_a_yield_would_never_be_run(store: RunStore) -> None:
    """Called, it does nothing: the run would commit empty cycles for ever."""

    def body(run: ind.Run[Memory]) -> Any:
        yield run

    with pytest.raises(Misuse, match="generator"):
        ind.agent(state=Memory)(body)


def test_what_is_called_while_a_run_is_opened_is_a_plain_def() -> None:
    """An invariant that is a coroutine would hold always; a start function would start nothing."""
    agent = agent_of(finishing, version=2)

    async def later(state: Any) -> Any:
        return state

    for declare in (agent.start, agent.invariant, agent.migration(1)):
        with pytest.raises(Misuse, match="must be a plain 'def'"):
            declare(later)


def test_recorded_values_belong_in_the_cycle_and_not_in_the_start_function(store: RunStore) -> None:
    agent = agent_of(finishing)

    @agent.start
    def start(run: ind.Run[Memory]) -> None:
        run.state.notes.append(run.new_id())

    with pytest.raises(Misuse, match="start function"):
        agent.run("o", store=store, run_id="r")
    assert list(store.entries()) == []


def test_an_agent_that_is_called_with_an_objective_says_how_it_is_run() -> None:
    @ind.agent(state=Memory)
    async def later(run: ind.Run[Memory]) -> None: ...

    body: Any = agent_of(lambda run: None)
    with pytest.raises(Misuse) as refused:
        body("Find suppliers")
    assert refused.value.hint == "tester.run('Find suppliers')"
    call: Any = later
    with pytest.raises(Misuse, match="takes the run, not an objective"):
        asyncio.run(call("x"))
