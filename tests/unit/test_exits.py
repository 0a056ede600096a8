"""A body that ends its process, and the run that goes on with the next one."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import indelible as ind
from indelible.core import events as ev
from indelible.runtime.runstore import RunStore
from tests.unit.simple_agents import agent_of


def test_a_call_that_failed_before_the_body_left_by_sys_exit_is_made_again(store: RunStore) -> None:
    """B117: the next process would be told of the recorded failure, and end in the same way, for ever."""
    calls: list[str] = []

    @ind.action
    def model(text: str) -> str:
        calls.append(text)
        if len(calls) < 5:
            raise ConnectionError("no route")
        return text.upper()

    def body(run: ind.Run[Any]) -> None:
        task = run.state.tasks.take()
        try:
            run.finish(model(task))
        except ConnectionError:
            sys.exit("try again tomorrow")

    agent = agent_of(body)
    for _ in range(4):
        with pytest.raises(SystemExit, match="tomorrow"):
            agent.run("o", store=store, run_id="r")
    assert agent.run("o", store=store, run_id="r").result == "A"
    assert len(calls) == 5
    kinds = [type(event) for _, event in store.events("r")]
    assert kinds.count(ev.CycleRolledBack) == 4


def test_an_exit_without_a_failure_leaves_the_attempt_open(store: RunStore) -> None:
    """As a crash would: what was paid for is answered from the journal."""
    calls: list[str] = []

    @ind.action
    def model(text: str) -> str:
        calls.append(text)
        return text

    def body(run: ind.Run[Any]) -> None:
        model("a")
        if len(calls) == 1 and run._record.entries == 1:
            sys.exit(3)
        run.finish()

    with pytest.raises(SystemExit):
        agent_of(body).run("o", store=store, run_id="r")
    assert agent_of(body).run("o", store=store, run_id="r").is_finished
    assert calls == ["a"]
    assert ev.CycleRolledBack not in [type(event) for _, event in store.events("r")]
