"""What the tests of a run's semantics share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import indelible as ind
from indelible.core import events as ev
from indelible.runtime.agents import Agent
from indelible.runtime.runstore import RunStore


class Death(BaseException):
    """Ends a process's work on a run without an outcome, as a kill would."""


class Memory(ind.State):
    tasks: ind.Queue[str]
    notes: ind.Log[str]
    count: int = 0


@dataclass
class Order:
    id: int
    amount: int


Body = Callable[[ind.Run[Memory]], None]


def agent_of(body: Body, *, tasks: tuple[str, ...] = ("a",), **options: Any) -> Agent[Memory]:
    options = {"name": "tester", "backoff_s": 0.0, **options}
    made: Agent[Memory] = ind.agent(state=Memory, **options)(body)

    @made.start
    def start(run: ind.Run[Memory]) -> None:
        run.state.tasks.extend(tasks)

    return made


def kinds(store: RunStore, run_id: str = "r") -> list[str]:
    return [ev.kind_of(event) for _, event in store.events(run_id)]
