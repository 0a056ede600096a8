"""The `@agent` decorator: one cycle's body, its state, and how to run it.

Owns: `Agent` and `AsyncAgent`, and the local loop that runs them.
Must never: keep anything about a run between two calls.
Invariant: `run` starts what is new and resumes what exists, by the run id alone.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Literal, TypeVar, overload

from indelible.core.cycle import AgentSpec
from indelible.core.protocol import pursue
from indelible.core.state import Shape, State
from indelible.drive import aio, blocking
from indelible.errors import Misuse
from indelible.runtime.holding import Observer
from indelible.runtime.importing import must_not_be_imported
from indelible.runtime.runs import Outcome, Run
from indelible.runtime.runstore import RunStore, open_runs

S = TypeVar("S", bound=State)
F = TypeVar("F", bound=Callable[..., Any])
Stop = Callable[[], bool]


def _never() -> bool:
    return False


def _plain(fn: F, what: str) -> F:
    if inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise Misuse(f"{what} must be a plain 'def'", hint="await what must be awaited in the cycle function")
    return fn


class Declared(Generic[S]):
    """What both kinds of agent share."""

    def __init__(self, spec: AgentSpec) -> None:
        self.spec = spec
        self.__name__ = spec.name
        self.__doc__ = spec.body.__doc__

    @property
    def name(self) -> str:
        """The agent's name in the journal."""
        return self.spec.name

    def start(self, fn: F) -> F:
        """Declare what is done once, in the commit that accepts the run: put the first tasks in the queue."""
        self.spec.start = _plain(fn, f"the start function of agent {self.name}")
        return fn

    def migration(self, from_version: int) -> Callable[[F], F]:
        """Declare how state of that version becomes state of the next: a function from dict to dict."""
        if not 1 <= from_version < self.spec.version:
            raise Misuse(
                f"agent {self.name} is version {self.spec.version}; it cannot have a migration from {from_version}",
                hint=f"@agent(..., version={from_version + 1})",
            )

        def declare(fn: F) -> F:
            self.spec.migrations[from_version] = _plain(fn, f"a migration of agent {self.name}")
            return fn

        return declare

    def invariant(self, fn: F) -> F:
        """Declare what must be true of the state whenever a run is opened.

        The function gets the state and returns nothing or True if all is well, False or a
        sentence if not.
        """
        self.spec.invariants.append(_plain(fn, f"an invariant of agent {self.name}"))
        return fn

    def _must_not_be_started(self, run: object) -> None:
        if isinstance(run, str):
            raise Misuse(
                f"{self.name}(...) is the body of one cycle and takes the run, not an objective",
                hint=f"{self.name}.run({run[:60]!r})",
            )

    def _run(
        self, store: RunStore, run_id: str | None, objective: str | None, observe: Observer | None, retry: bool,
        budget_usd: float | None,
    ) -> Run[S]:  # fmt: skip
        if run_id is None:
            if retry:
                raise Misuse("which run is to be retried?", hint=f'{self.name}.run(run_id="...", retry=True)')
            if objective is None:
                raise Misuse("neither an objective nor a run id was given", hint=f'{self.name}.run("...")')
            run_id = f"{self.name}-{store.clock.entropy(4).hex()}"
        return store.run(run_id, self, objective, observe=observe, retry=retry, budget_usd=budget_usd)


class Agent(Declared[S]):
    """An agent whose cycle is a `def`."""

    def __call__(self, run: Run[S]) -> None:
        """The body of one cycle, as the user wrote it; for their own tests."""
        self._must_not_be_started(run)
        assert self.spec.body is not None
        self.spec.body(run)

    def run(
        self,
        objective: str | None = None,
        *,
        store: str | os.PathLike[str] | RunStore = "agent.db",
        run_id: str | None = None,
        wait: bool = True,
        stop: Stop = _never,
        observe: Observer | None = None,
        retry: bool = False,
        budget_usd: float | None = None,
    ) -> Outcome:
        """Start the run, or resume it, and go on until it ends or waits for a person.

        wait: sleep in this process while the run waits for a time; False returns it parked.
        stop: asked between two cycles; True ends the loop, and the run stays resumable.
        observe: called with each event. If it raises, the run goes on without it; then that is raised.
        retry: take up a run that has failed: its failed tasks go back into their queues, with their attempts
            counted anew, and what it has done is not done again. Raises `Misuse` if it has not failed.
        budget_usd: what the run may spend in all, in US dollars; before a call that would pass it the run parks, and
            `store.answer(run_id, 10.0)` or `indelible answer RUN --budget 10` lets it go on. It is kept with the run.
            Another value replaces it; the value of last time leaves what a person has set since. Needs actions that
            report what they cost (`usage`) or declare it (`cost_usd=`). Raises `Misuse` unless it is above 0.

        Everything up to the last commit is durable when it returns or raises. Raises `RunBusy`
        if a live process holds the run, `RunMismatch` if the id belongs to another agent or
        objective, and what a cycle raised if that is not for a retry, such as `NotStorable`.
        """
        must_not_be_imported(f"{self.name}.run(...)")
        if not isinstance(store, RunStore):
            with open_runs(store) as opened:
                return self.run(
                    objective, store=opened, run_id=run_id, wait=wait, stop=stop, observe=observe, retry=retry,
                    budget_usd=budget_usd,
                )  # fmt: skip
        with self._run(store, run_id, objective, observe, retry, budget_usd) as run:
            port = run._holding.port
            blocking.drive(port, pursue(run._held, port, wait, stop))
            return run.outcome


class AsyncAgent(Declared[S]):
    """An agent whose cycle is an `async def`."""

    async def __call__(self, run: Run[S]) -> None:
        """The body of one cycle, as the user wrote it; for their own tests."""
        self._must_not_be_started(run)
        assert self.spec.body is not None
        await self.spec.body(run)

    async def run(
        self,
        objective: str | None = None,
        *,
        store: str | os.PathLike[str] | RunStore = "agent.db",
        run_id: str | None = None,
        wait: bool = True,
        stop: Stop = _never,
        observe: Observer | None = None,
        retry: bool = False,
        budget_usd: float | None = None,
    ) -> Outcome:
        """As `Agent.run`, awaited."""
        must_not_be_imported(f"{self.name}.run(...)")
        if not isinstance(store, RunStore):
            with open_runs(store) as opened:
                return await self.run(
                    objective, store=opened, run_id=run_id, wait=wait, stop=stop, observe=observe, retry=retry,
                    budget_usd=budget_usd,
                )  # fmt: skip
        async with self._run(store, run_id, objective, observe, retry, budget_usd) as run:
            port = run._holding.port
            await aio.drive(port, pursue(run._held, port, wait, stop))
            return run.outcome


class Declaring(Generic[S]):
    """Makes an agent of a cycle function."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec

    @overload
    def __call__(self, body: Callable[[Run[S]], Coroutine[Any, Any, None]]) -> AsyncAgent[S]: ...
    @overload
    def __call__(self, body: Callable[[Run[S]], None]) -> Agent[S]: ...
    def __call__(self, body: Any) -> Any:
        if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
            raise Misuse(
                f"{body.__name__} is a generator, and nothing would run it",
                hint="remove its 'yield': the function is one cycle, called again for the next",
            )
        spec = AgentSpec(body=body, **{**self._spec, "name": self._spec["name"] or body.__name__})
        return AsyncAgent(spec) if inspect.iscoroutinefunction(body) else Agent(spec)


def agent(
    *,
    state: type[S],
    version: int = 1,
    name: str | None = None,
    attempts: int = 3,
    on_failure: Literal["continue", "fail"] = "continue",
    backoff_s: float = 1.0,
) -> Declaring[S]:
    """Declare a function as the body of one cycle of an agent.

    state: its whole working memory, a class derived from `State`.
    version: of the state; raise it when older state needs a migration.
    attempts: how often a task is tried before it moves to its queue's failed list.
    on_failure: whether the run goes on then (`continue`), or fails (`fail`). A cycle that fails
        that often without having taken a task fails the run either way.
    backoff_s: seconds before the second try, doubled for each further one, 60 at most.
    """
    if not isinstance(version, int) or version < 1 or attempts < 1 or on_failure not in ("continue", "fail"):
        raise Misuse("an agent's version and attempts are whole numbers from 1 up", hint="@agent(state=..., version=1)")
    return Declaring({"name": name, "shape": Shape.of(state), "version": version, "attempts": attempts,
                      "on_failure": on_failure, "backoff_s": backoff_s})  # fmt: skip
