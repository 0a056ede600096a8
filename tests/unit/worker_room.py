"""What the tests of the worker share: a clock that moves only while nobody works, and a store that fails on purpose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import indelible as ind
from indelible.core.inbox import INBOX
from indelible.drive.clock import SystemClock
from indelible.errors import StoreUnavailable
from indelible.runtime.agents import Agent
from indelible.runtime.runstore import RunStore
from indelible.runtime.worker import Told, Worker
from indelible.stores.base import Batch, Page, Query
from indelible.stores.memory import MemoryStore
from tests.unit.simple_agents import Memory, agent_of

T0 = 1_800_000_000.0


class Standing(SystemClock):
    """A clock that moves when it is told to, or when somebody sleeps on it."""

    def __init__(self) -> None:
        self.time = T0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


class Faulty(MemoryStore):
    """Fails where `fails(method, run_id)` says so, and counts what it is asked."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self.fails: Callable[[str, str], bool] = lambda method, run_id: False
        self.asked: Counter[str] = Counter()

    def list_runs(self, query: Query, cursor: str | None = None) -> Page:
        self._ask("look" if query.run_ids is None else "still", "".join(query.run_ids or ()))
        return super().list_runs(query, cursor)

    def claim(self, run_id: str, owner: str, ttl_s: float) -> int:
        if ttl_s:
            self._ask("claim", run_id)
        return super().claim(run_id, owner, ttl_s)

    def now(self) -> float:
        self._ask("now", "")
        return super().now()

    def read(self, run_id: str, after_seq: int = 0) -> Iterator[Batch]:
        self._ask("read inbox" if run_id.endswith(INBOX) else "read", run_id)
        return super().read(run_id, after_seq)

    def _ask(self, method: str, run_id: str) -> None:
        self.asked[method] += 1
        if self.fails(method, run_id):
            raise StoreUnavailable(f"{self.url} is away", hint="start the server")


class Driven(Worker):
    """A worker whose waits end when something happens; when nothing can, its clock moves instead."""

    def __init__(self, room: Room, agents: list[Any], **options: Any) -> None:
        self.told: list[Told] = []
        self.room = room
        self.waits: list[float] = []
        self.between: Callable[[], object] = int
        super().__init__(room.runs, agents, **{"tell": self.told.append, **options})

    def said(self) -> list[tuple[str, str]]:
        return [(told.kind, told.run_id) for told in self.told]

    def ended(self, run_id: str) -> list[str]:
        return [told.kind for told in self.told if told.run_id == run_id]

    def _listen(self, seconds: float) -> None:
        if self._jobs or not self._bell.empty():
            super()._listen(20)
            return
        assert len(self.waits) < 300, self.told[-5:]
        self.waits.append(seconds)
        self.room.clock.time += seconds
        self.between()


class Room:
    """A store, its clock, and runs that are accepted."""

    def __init__(self) -> None:
        self.clock = Standing()
        self.store = Faulty(self.clock.now)
        self.runs = RunStore(self.store, self.clock)

    def accept(self, agent: Any, *run_ids: str) -> None:
        for run_id in run_ids:
            self.clock.time += 1
            with self.runs.run(run_id, agent, "o"):
                pass

    def status(self, run_id: str) -> str:
        return self.runs.recover(run_id).record.status

    def works(self, *agents: Any, **options: Any) -> Driven:
        """A worker that has gone on until it was idle."""
        with Driven(self, list(agents), **options) as worker:
            assert worker.run(until_idle=True)
        return worker


def finishing(name: str = "tester") -> Agent[Memory]:
    made: Agent[Memory] = ind.agent(state=Memory, name=name)(lambda run: run.finish(run.run_id))
    return made


def asking(name: str = "tester") -> Agent[Memory]:
    def asks(run: ind.Run[Memory]) -> None:
        run.finish(run.ask("Which supplier?"))

    return agent_of(asks, tasks=(), name=name)


async def finishes(run: ind.Run[Memory]) -> None:
    run.finish()
