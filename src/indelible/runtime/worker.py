"""The worker: claims runs that can go on, advances several at once, and drains when it is asked to.

Owns: which run gets a free place, what follows when a run or the store fails, and the end of the process's work.
Must never: rely on a listing (a claim decides), drop a run because of a fault that passes, or end because of one run.
Invariant: a run has at most one job here; whatever is told is told in the thread of `run`, in the order it came.

`def` agents each get a thread for as long as they run, `async def` agents share one event loop in a thread of its own.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from indelible.core import events as ev
from indelible.errors import IndelibleError, Misuse, RunBusy, StaleWriter, StoreUnavailable, UnknownRun
from indelible.runtime.agents import Agent, AsyncAgent
from indelible.runtime.runnable import Lookout, Runnable
from indelible.runtime.runs import Outcome
from indelible.runtime.runstore import RunStore
from indelible.stores.base import Query

if TYPE_CHECKING:
    import asyncio

POLL_S = 1.0
GRACE_S = 30.0
SLICE_S = 30.0
"""After so long a run gives its place up, between two cycles, if others wait for one."""
LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True)
class Told:
    """One thing that a worker has to say.

    `kind` is `claimed`, `taken over`, `finished`, `failed`, `parked`, `yielded` or `stopped` (between two cycles),
    `lost`, `postponed`, `set aside`, or, of the worker itself, `trouble`, `draining` and `cut off`.
    """

    kind: str
    run_id: str = ""
    epoch: int | None = None
    outcome: Outcome | None = None
    error: BaseException | None = None
    count: int = 0


@dataclass(eq=False)
class _Job:
    """One run being worked on."""

    run_id: str
    owned_before: bool = False
    began: float | None = None
    epoch: int | None = None
    done: Future[Outcome] = field(default_factory=Future)

    @contextmanager
    def ending(self) -> Iterator[list[Outcome]]:
        """Whatever ends the block is noted, also `SystemExit`, which would end an event loop."""
        found: list[Outcome] = []
        try:
            yield found
        except BaseException as error:
            self.done.set_exception(error)
        else:
            self.done.set_result(found[0])


@dataclass
class _Delay:
    """How often a run could not be reached in the store, and when it is tried again."""

    failures: int = 0
    until: float = 0.0


class Worker:
    """Advances runs of `agents` in a store, `concurrency` at once. Use it with `with`; call `run` in the main thread.

    `tell` is called with each `Told`. Raises `Misuse` for numbers that cannot be, and for two agents of one name.
    """

    def __init__(
        self,
        runs: RunStore,
        agents: Iterable[Agent[Any] | AsyncAgent[Any]],
        *,
        concurrency: int = 1,
        poll_s: float = POLL_S,
        tell: Callable[[Told], object] | None = None,
    ) -> None:
        self._agents: dict[str, Agent[Any] | AsyncAgent[Any]] = {}
        for agent in agents:
            if self._agents.setdefault(agent.name, agent) is not agent:
                raise Misuse(f"two agents have the name {agent.name!r}", hint='@agent(name="...", ...)')
        if not self._agents or concurrency < 1 or not 0 < poll_s <= LONGEST_PAUSE_S:
            raise Misuse(
                f"a worker needs an agent, a concurrency from 1 up and a poll of up to {LONGEST_PAUSE_S:g} seconds",
                hint="Worker(runs, [research], concurrency=4, poll_s=1.0)",
            )
        self._runs = runs
        self._lookout = Lookout(runs, self._agents)
        self._concurrency, self._poll_s, self._tell = concurrency, poll_s, tell or _nothing
        self._pause_s, self._due_at = poll_s, 0.0
        self._jobs: dict[str, _Job] = {}
        self._backlog: list[Runnable] = []
        self._delays: dict[str, _Delay] = {}
        self._draining = False
        # Its `put` takes no lock that a signal handler could find taken.
        self._bell: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def aside(self) -> int:
        """How many runs were set aside because they cannot go on as they are."""
        return self._lookout.aside

    def advance(self, run_id: str) -> Outcome:
        """Claim a run and go on with it until it ends, parks, or this worker drains; how it stands then.

        Raises what `Agent.run` raises, `UnknownRun`, and `Misuse` if its agent is none of this worker's.
        """
        entries = self._runs.store.list_runs(Query(run_ids=(run_id,))).runs
        label = entries[0].label if entries else None
        if label is None:
            raise UnknownRun(f"there is no run {run_id!r} in {self._runs.url}", hint="indelible ls", run=run_id)
        if label.agent not in self._agents:
            raise Misuse(
                f"run {run_id!r} belongs to agent {label.agent!r}, which this worker was not given",
                hint=f"indelible worker AGENT.py:{label.agent}",
                run=run_id,
            )
        job = _Job(run_id)
        self._begin(job, label.agent)
        return job.done.result()

    def run(self, until_idle: bool = False, grace_s: float = GRACE_S) -> bool:
        """Claim and advance until `drain` is called; True if every run has let go of its place within `grace_s`.

        With `until_idle` it returns as well when nothing can go on and nothing will by itself. After False some runs
        are still in the middle of a cycle: end the process, which is to them as a crash.
        """
        while not self._draining:
            if self.turn(until_idle) and until_idle:
                return True
            if not self._draining:
                self._listen(max(0.0, self._due_at - self._now()))
        return self._drained(grace_s)

    def drain(self) -> None:
        """Claim no more, and stop each run at its next cycle boundary. From any thread, and in a signal handler."""
        self._draining = True
        self._bell.put(_nothing)

    def turn(self, every_inbox: bool = False) -> bool:
        """Look for runs if it is time to, and fill the free places; never waits. True if the worker is idle."""
        idle = False
        if not 0.0 < self._due_at - self._now() <= LONGEST_PAUSE_S:  # or the clock was set
            idle = self._look(every_inbox)
        while self._backlog and len(self._jobs) < self._concurrency and not self._draining:
            self._take(self._backlog.pop(0))
        return idle and not self._jobs

    def close(self) -> None:
        """Claim no more, and end the event loop if no run is left in it; idempotent."""
        self._draining = True
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
            if self._thread is not None and not self._jobs:
                self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Looking

    def _look(self, every_inbox: bool) -> bool:
        try:
            survey = self._lookout.look(self._jobs, every_inbox)
        except IndelibleError as error:  # no fault of one run; it may pass, as a server comes back
            self._trouble(error)
            return False
        for found, fault in survey.broken:
            self._set_aside(found.run_id, fault)
        if survey.trouble is not None:
            self._trouble(survey.trouble)
        else:
            self._pause_s, self._due_at = self._poll_s, self._now() + self._poll_s
        now = self._now()
        ready = [found for found in survey.runnable if not self._is_delayed(found.run_id, now)]
        present = {found.run_id for found in survey.runnable}.union(self._jobs)
        self._delays = {run_id: delay for run_id, delay in self._delays.items() if run_id in present}
        # What the store has failed at comes last, so that it keeps nobody else waiting.
        self._backlog = sorted(ready, key=lambda found: self._delays.get(found.run_id, _Delay()).failures)
        return not (survey.runnable or survey.unsettled or survey.broken or survey.trouble or self._jobs)

    def _is_delayed(self, run_id: str, now: float) -> bool:
        delay = self._delays.get(run_id)
        return delay is not None and 0.0 < delay.until - now <= LONGEST_PAUSE_S

    def _trouble(self, error: IndelibleError) -> None:
        """Look again after a pause, which grows while it goes on."""
        self._tell(Told("trouble", error=error))
        self._due_at = self._now() + self._pause_s
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    def _take(self, found: Runnable) -> None:
        """Begin with a run, unless something has become of it since it was listed."""
        try:
            if not self._lookout.still(found):
                return
        except IndelibleError as error:
            self._postpone(found.run_id, error)
            return
        job = self._jobs[found.run_id] = _Job(found.run_id, bool(found.entry.owner))
        job.done.add_done_callback(lambda _: self._bell.put(partial(self._ended, job)))
        self._begin(job, found.agent)

    def _postpone(self, run_id: str, error: BaseException) -> None:
        delay = self._delays.setdefault(run_id, _Delay())
        delay.until = self._now() + min(self._poll_s * 2**delay.failures, LONGEST_PAUSE_S)
        delay.failures = min(delay.failures + 1, 10)
        self._tell(Told("postponed", run_id, error=error))

    # Working

    def _begin(self, job: _Job, name: str) -> None:
        agent = self._agents[name]
        going: Any = partial(
            agent.run, store=self._runs, run_id=job.run_id, wait=False, stop=partial(self._must_stop, job),
            observe=partial(self._saw, job),
        )  # fmt: skip
        if isinstance(agent, AsyncAgent):
            import asyncio

            asyncio.run_coroutine_threadsafe(_awaited(job, going), self._event_loop())
        else:
            threading.Thread(target=_called, args=(job, going), name=f"run {job.run_id}", daemon=True).start()

    def _must_stop(self, job: _Job) -> bool:
        now = self._now()
        if job.began is None:  # now it is open
            job.began = now
        return self._draining or (bool(self._backlog) and not 0 <= now - job.began < SLICE_S)

    def _saw(self, job: _Job, event: ev.Event) -> None:
        if isinstance(event, ev.RunClaimed) and job.epoch is None:
            job.epoch = event.epoch
            self._bell.put(partial(self._tell, Told("taken over" if job.owned_before else "claimed", job.run_id,
                                                    event.epoch)))  # fmt: skip

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            import asyncio

            made: Future[asyncio.AbstractEventLoop] = Future()

            def serve() -> None:
                with asyncio.Runner() as runner:
                    made.set_result(loop := runner.get_loop())
                    while True:
                        with suppress(SystemExit, KeyboardInterrupt):  # of a task that an agent has made
                            loop.run_forever()
                            return

            self._thread = threading.Thread(target=serve, name="indelible-agents", daemon=True)
            self._thread.start()
            self._loop = made.result()
        return self._loop

    # What has become of it

    def _ended(self, job: _Job) -> None:
        del self._jobs[job.run_id]
        error = job.done.exception()
        if error is None:
            outcome = job.done.result()
            self._delays.pop(job.run_id, None)
            kind = outcome.status
            if kind == "running":
                kind = "stopped" if self._draining else "yielded"
            self._tell(Told(kind, job.run_id, job.epoch, outcome))
        elif isinstance(error, RunBusy | UnknownRun):
            pass  # another worker was quicker, or it was deleted
        elif isinstance(error, StaleWriter):
            self._tell(Told("lost", job.run_id, job.epoch, error=error))
        elif isinstance(error, StoreUnavailable):
            self._postpone(job.run_id, error)
        else:
            self._set_aside(job.run_id, error)

    def _set_aside(self, run_id: str, error: BaseException) -> None:
        self._lookout.set_aside(run_id)
        self._tell(Told("set aside", run_id, error=error))

    # Ending

    def _drained(self, grace_s: float) -> bool:
        self._backlog.clear()
        self._listen(0.0)
        self._tell(Told("draining", count=len(self._jobs)))
        until = self._now() + grace_s
        while self._jobs and (left := until - self._now()) > 0:
            self._listen(min(left, grace_s))
        for run_id in self._jobs:
            self._tell(Told("cut off", run_id))
        return not self._jobs

    def _listen(self, seconds: float) -> None:
        """Wait until something has happened, or so long; take in all that has."""
        with suppress(queue.Empty):
            self._bell.get(timeout=seconds)()
            while True:
                self._bell.get_nowait()()

    def _now(self) -> float:
        return self._runs.clock.now()


def _nothing(_: object = None) -> None:
    """A ring of the bell that only wakes; told to nobody."""


def _called(job: _Job, going: Callable[[], Outcome]) -> None:
    with job.ending() as found:
        found.append(going())


async def _awaited(job: _Job, going: Callable[[], Any]) -> None:
    with job.ending() as found:
        found.append(await going())
