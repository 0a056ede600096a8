"""An async agent that waits everywhere it can, a world that counts, and a way to cancel it at its nth wait.

Owns: the workload, what was really done, and the counting of suspensions.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import indelible as ind
from indelible.runtime.agents import AsyncAgent
from indelible.runtime.runs import Outcome
from indelible.runtime.runstore import RunStore


class Journey(ind.State):
    tasks: ind.Queue[str]
    notes: ind.Log[str]


class World:
    """What was done outside, whatever the journal says."""

    def __init__(self) -> None:
        self.answered: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.keys: dict[str, set[str]] = {}
        self.undone: set[str] = set()

    def do(self, what: str, key: str) -> None:
        self.done[what] += 1
        self.keys.setdefault(what, set()).add(key)


async def turn() -> None:
    await asyncio.sleep(0)


def journey(world: World) -> AsyncAgent[Journey]:
    """The agent; it pays for four answers and does five deeds, one of which is undone."""

    async def looked(what: str, *, key: str = "") -> Any:
        await turn()
        return ind.happened(f"{what} done") if world.done[what] else ind.did_not_happen()

    def take_back(what: str) -> None:
        world.undone.add(what)

    @ind.action
    async def think(prompt: str) -> str:
        await turn()
        world.answered[prompt] += 1
        ind.usage(usd=0.01)
        return prompt.upper()

    @ind.action(effect="irreversible", probe=looked)
    async def send(what: str, *, key: str = "") -> str:
        await turn()
        world.do(what, key)
        await turn()
        return f"{what} done"

    @ind.action(effect="irreversible", probe=looked, key=lambda what: f"order {what}")
    async def charge(what: str, *, key: str = "") -> str:
        world.do(what, key)
        await turn()
        return f"{what} done"

    @ind.action(effect="irreversible", probe=looked, undo=take_back)
    async def reserve(what: str, *, key: str = "") -> str:
        world.do(what, key)
        await turn()
        return f"{what} done"

    async def first(run: ind.Run[Journey]) -> list[str]:
        return [await think("plan"), *await asyncio.gather(think("left"), send("mail"))]

    async def second(run: ind.Run[Journey]) -> list[str]:
        charged = await asyncio.gather(charge("order"), charge("order"))
        async with asyncio.timeout(3600):
            limited = await think("limited")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(send("fax")), group.create_task(think("aside"))]
        return [*charged, limited, *(task.result() for task in tasks)]

    async def third(run: ind.Run[Journey]) -> list[str]:
        await reserve("room")
        raise ValueError("no such hotel")

    async def fourth(run: ind.Run[Journey]) -> list[str]:
        return [str(run.ask("And now?")), await send("letter")]

    stages = {"first": first, "second": second, "third": third, "fourth": fourth}

    @ind.agent(state=Journey, name="journey", attempts=1, backoff_s=0)
    async def agent(run: ind.Run[Journey]) -> None:
        run.state.notes.extend(await stages[run.state.tasks.take()](run))
        if not run.state.tasks:
            run.finish(list(run.state.notes))

    @agent.start
    def start(run: ind.Run[Journey]) -> None:
        run.state.tasks.extend(stages)

    return agent


RESULT = [
    *("PLAN", "LEFT", "mail done", "order done", "order done"),
    *("LIMITED", "fax done", "ASIDE", "go on", "letter done"),
]


class Watched(Coroutine[Any, Any, Any]):
    """A coroutine whose suspensions are counted."""

    def __init__(self, inner: Coroutine[Any, Any, Any], saboteur: Saboteur) -> None:
        self._inner = inner
        self._saboteur = saboteur

    def send(self, value: Any) -> Any:
        waits_for = self._inner.send(value)
        self._saboteur.suspended()
        return waits_for

    def throw(self, error: Any, *rest: Any) -> Any:
        waits_for = self._inner.throw(error)
        self._saboteur.suspended()
        return waits_for

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Any:
        return self._inner.__await__()


class Saboteur:
    """Strikes at the nth suspension: cancels the task that began it all, or the one that waits there, or lets the
    program end while the tasks are still at work."""

    def __init__(self, at: int, whom: str) -> None:
        self._left = at
        self._whom = whom
        self._first: asyncio.Task[Any] | None = None
        self._enough: asyncio.Future[None] | None = None
        self.complaints: list[dict[str, Any]] = []
        """What the event loop was told of: exceptions that nobody looked at."""

    @property
    def struck(self) -> bool:
        return self._left <= 0

    def suspended(self) -> None:
        self._left -= 1
        if self._left:
            return
        assert self._first is not None
        assert self._enough is not None
        if self._whom == "the program":
            self._enough.set_result(None)
        else:
            victim = self._first if self._whom == "the first task" else asyncio.current_task()
            assert victim is not None
            asyncio.get_running_loop().call_soon(victim.cancel)

    async def run(self, work: Coroutine[Any, Any, Any]) -> None:
        """Let it run to its end, or until the program ends."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.complaints.append(context))
        loop.set_task_factory(self._make)
        self._enough = loop.create_future()
        self._first = loop.create_task(work)
        try:
            await asyncio.wait([self._first, self._enough], return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.set_task_factory(None)
        if self._first.done() and not self._first.cancelled():
            self._first.result()

    def _make(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        return asyncio.Task(Watched(work, self), loop=loop, **options)


def to_the_end(agent: AsyncAgent[Journey], runs: RunStore) -> Outcome:
    """Resume, answering what is asked, until it has ended."""
    while True:
        outcome = asyncio.run(agent.run("See the world", store=runs, run_id="r"))
        if outcome.status != "parked":
            return outcome
        assert outcome.kind == "ask", outcome
        runs.answer("r", "go on")
