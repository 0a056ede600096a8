"""An open store with its runs: start or resume them, list them, answer them, settle their deeds.

Owns: what `indelible.open` returns.
Must never: write to a run's journal; messages go to its inbox, the run takes them in.
Invariant: one writer and one lease renewer per open store.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, overload

from indelible.core import events as ev
from indelible.core.arriving import must_not_be_elsewhere
from indelible.core.budgets import must_suit
from indelible.core.codec import GENERIC, pack, to_plain
from indelible.core.costs import SECONDS_PER_HOUR, Economy
from indelible.core.cycle import AgentSpec
from indelible.core.inbox import Inbox, inbox_of, open_inbox
from indelible.core.journal import Torn, read_all
from indelible.core.record import BUDGET, UNPRICED, CallRecord, Record, Wait
from indelible.core.recovery import Recovered, recover
from indelible.core.state import Shape, State
from indelible.drive import blocking
from indelible.drive.clock import Clock, SystemClock
from indelible.drive.port import Port
from indelible.errors import JournalDamaged, Misuse, StaleWriter, UnknownRun
from indelible.runtime.actions import resolve
from indelible.runtime.beginnings import beginning
from indelible.runtime.holding import Holding, Observer
from indelible.runtime.importing import must_not_be_imported
from indelible.runtime.leases import Renewer
from indelible.runtime.runs import Run
from indelible.stores import open_store
from indelible.stores.base import Query, RunEntry, Store, Write, check_run_id
from indelible.stores.patience import usd_per_write as price_of_write
from indelible.stores.writer import Writer

if TYPE_CHECKING:
    from indelible.runtime.meter import Meter

S = TypeVar("S", bound=State)

_open_stores: weakref.WeakSet[RunStore] = weakref.WeakSet()


class RunStore:
    """Runs in a store. Use it as `with indelible.open("agent.db") as store:` (or `async with`)."""

    def __init__(self, store: Store, clock: Clock, economy: Economy | None = None) -> None:
        self.store = store
        self.economy = economy
        self.clock = clock
        self._begin()
        _open_stores.add(self)

    @property
    def url(self) -> str:
        """How to open this store again."""
        return self.store.url

    @overload
    def run(
        self, run_id: str, agent: type[S], objective: str | None = None, *, observe: Observer | None = None,
        retry: bool = False, budget_usd: float | None = None,
    ) -> Run[S]: ...  # fmt: skip
    @overload
    def run(
        self, run_id: str, agent: Any, objective: str | None = None, *, observe: Observer | None = None,
        retry: bool = False, budget_usd: float | None = None,
    ) -> Run[Any]: ...  # fmt: skip
    def run(
        self, run_id: str, agent: Any, objective: str | None = None, *, observe: Observer | None = None,
        retry: bool = False, budget_usd: float | None = None,
    ) -> Run[Any]:  # fmt: skip
        """A run to open with `with` or `async with`: started with `objective` if the id is new, else resumed.

        `agent` is an agent, or just its State class. Without an `objective` the run must exist.
        `observe` is called with each event as it happens, in this process. If it raises, it is not
        called again, the run goes on, and what it raised is raised when the run is closed.
        `retry` takes up a run that has failed, as `Agent.run` tells; any other is refused with `Misuse`.
        `budget_usd` is what the run may spend in all, as `Agent.run` tells.
        """
        must_not_be_imported("main()")
        if isinstance(agent, type) and issubclass(agent, State):
            spec = AgentSpec(agent.__name__, Shape.of(agent), 1)
        elif isinstance(getattr(agent, "spec", None), AgentSpec):
            spec = agent.spec
        else:
            raise Misuse(
                f"{getattr(agent, '__name__', type(agent).__name__)} is no agent",
                hint="@indelible.agent(state=...) above the function, or give the State class itself",
            )
        holding = Holding(
            self.store, self._writer, self._renewer, self.clock, run_id, spec, objective, observe, budget_usd
        )  # fmt: skip
        holding.economy = self.economy
        return Run(holding, retry)

    def entries(self, *, statuses: set[str] | None = None, agent: str | None = None) -> Iterator[RunEntry]:
        """Every accepted run that matches, newest update first."""
        cursor: str | None = None
        query = Query(frozenset(statuses) if statuses is not None else None, agent)
        while True:
            page = self.store.list_runs(query, cursor)
            yield from (entry for entry in page.runs if entry.head)
            cursor = page.cursor
            if cursor is None:
                return

    def recover(self, run_id: str) -> Recovered:
        """The run as its journal tells it, read without claiming it. Raises `UnknownRun`, `JournalDamaged`, and
        `RunMoved` for a run of which not all has arrived in this store.

        Its `notices` say what was found damaged and passed over, in the journal or in the inbox.
        """
        found = blocking.drive(Port(self.store, self.clock), recover(check_run_id(run_id)))
        if not found.record.agent:
            raise UnknownRun(f"there is no run {run_id!r} in {self.url}", hint="indelible ls", run=run_id)
        try:
            found.notices += filter(None, [self._inbox(run_id).notice])
        except JournalDamaged as error:
            found.notices.append(error.what)  # the run itself can be read all the same
        return found

    def events(self, run_id: str) -> Iterator[tuple[int, ev.Event]]:
        """The journal from its beginning on, each event with its seq. A torn last batch ends it quietly."""
        begun = beginning(self.store, check_run_id(run_id))
        for opened in read_all(begun.reader(), begun.batches):
            if isinstance(opened, Torn):
                return
            for offset, event in enumerate(opened.events):
                yield opened.after_seq + 1 + offset, event

    def pruned(self, run_id: str) -> int:
        """Up to which event a run's past was pruned; 0 if its journal begins at its first. Raises `JournalDamaged`."""
        return beginning(self.store, check_run_id(run_id)).seq

    def meter(self, run_id: str) -> Meter:
        """What a run has written and what its calls have cost, read from its journal in one pass.

        Of a damaged journal what can be read is counted, and `notices` tell. Raises `UnknownRun`.
        """
        from indelible.runtime.meter import measured

        found = measured(self.store, check_run_id(run_id))
        if not found.events and not found.batches and not found.notices:
            raise UnknownRun(f"there is no run {run_id!r} in {self.url}", hint="indelible ls", run=run_id)
        return found

    def meters(self, *, statuses: set[str] | None = None, agent: str | None = None) -> Iterator[Meter]:
        """The meter of every run that matches; `runtime.meter.total` sums them up."""
        from indelible.runtime.meter import measured

        for entry in self.entries(statuses=statuses, agent=agent):
            yield measured(self.store, entry.run_id)

    def answer(self, run_id: str, value: Any, *, wait: str = "", by: str = "a person") -> Wait:
        """Answer what a parked run asks; durable when it returns. The run goes on when it is resumed.

        A run that waits for its budget is answered with the new one: in US dollars, in total, and more than it has
        spent. Raises `Misuse` if the run waits for nothing, for a time, or for a settlement, and for what is no answer.
        """
        record = self._here(run_id)
        waiting = [w for w in record.waits.values() if not w.answered]
        found = next((w for w in waiting if w.wait == wait), None) if wait else record.open_wait
        if found is None:
            raise Misuse(f"run {run_id!r} does not wait for an answer", hint=f"indelible show {run_id}", run=run_id)
        if found.kind == "doubt":
            call = found.wait.partition(":")[2]
            raise Misuse(
                f"run {run_id!r} waits for a deed in doubt to be settled",
                hint=f"indelible settle {run_id} {call} --happened | --did-not-happen",
                run=run_id,
            )
        if found.kind == BUDGET:
            value = must_suit(record, value)
        _must_suit(run_id, found, value)
        self._post(run_id, lambda at: ev.Answer(at, found.wait, pack(to_plain(value, GENERIC, "answer")), _name(by)))
        return found

    def settle(
        self, run_id: str, action: str, *, happened: bool, result: Any = None, by: str = "a person"
    ) -> CallRecord:
        """Say what became of an action in doubt; durable when it returns.

        `action` is its call id, the beginning of it, or the action's name, if only one fits. Raises `Misuse`, and
        `StateInvalid` if the action is declared in this process and cannot return that result; if it is not, the run
        says so when it is opened next, and the deed stays in doubt.
        """
        record = self._here(run_id)
        doubts = record.in_doubt()
        fitting = [c for c in doubts if action == c.call] or [
            c for c in doubts if action == c.name or c.call.startswith(action)
        ]
        if len(fitting) != 1:
            listed = ", ".join(c.call for c in (fitting or doubts)) or "nothing"
            what = f"{len(fitting)} actions fit" if fitting else "it is not in doubt"
            raise Misuse(
                f"run {run_id!r}: {action!r} cannot be settled: {what}; in doubt: {listed}",
                hint=f"indelible effects {run_id}",
                run=run_id,
            )
        call = fitting[0]
        spec = resolve(call.name) if happened else None
        packed = spec.fitted(result) if spec is not None else pack(to_plain(result, GENERIC, "result"))
        self._post(run_id, lambda at: ev.Settlement(at, call.call, happened, packed, _name(by)))
        return call

    def delete(self, run_id: str) -> None:
        """Remove a run and all that belongs to it. Raises `UnknownRun`."""
        self.store.delete(check_run_id(run_id))

    def close(self) -> None:
        """End the writer and the renewer, and close the store; idempotent."""
        _open_stores.discard(self)
        self._renewer.close()
        self._writer.close()
        self.store.close()

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> RunStore:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def _here(self, run_id: str) -> Record:
        """The run, of which something may be said in this store. Raises `RunMoved` otherwise."""
        record = self.recover(run_id).record
        must_not_be_elsewhere(record, self.url)
        return record

    def _inbox(self, run_id: str) -> Inbox:
        return open_inbox(run_id, self.store.read(inbox_of(run_id)))

    def _post(self, run_id: str, message: Callable[[float], ev.Event]) -> None:
        """Append one message to the inbox by compare-and-set on its head."""
        inbox = inbox_of(run_id)
        for _ in range(20):
            journal = self._inbox(run_id).journal()
            journal.append(message(self.clock.now()))
            refused = self.store.append([Write(inbox, 0, journal.seal().batch)])[0]
            if refused is None:
                self._here(run_id)  # what is said while a run moves away may stay behind
                return
            if not isinstance(refused, StaleWriter):
                raise refused
        raise StaleWriter(f"the inbox of run {run_id!r} is written to by too many at once", hint="try again")

    def _begin(self) -> None:
        self._writer = Writer(self.store, self.clock.sleep)
        self._renewer = Renewer(self.store)

    def _after_fork(self) -> None:
        self._renewer.abandon("this process is a fork; the run is held by its parent")
        self._begin()


def _must_suit(run_id: str, wait: Wait, value: Any) -> None:
    allowed = {"approve": ("yes", "no"), "diverged": ("recorded", "both"), UNPRICED: ("yes",)}.get(wait.kind)
    if wait.kind in ("sleep", "due"):
        raise Misuse(f"run {run_id!r} waits for a time, not for an answer", hint=f"indelible show {run_id}", run=run_id)
    if allowed and value not in allowed:
        raise Misuse(
            f"run {run_id!r}: {wait.question}", hint=f"indelible answer {run_id} {'|'.join(allowed)}", run=run_id
        )


def _name(by: str) -> str:
    return by.encode("utf-8", "replace").decode()


def _after_fork_in_child() -> None:
    for store in list(_open_stores):
        store._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def open_runs(
    url: str | os.PathLike[str],
    *,
    durability: str = "full",
    readonly: bool = False,
    clock: Clock | None = None,
    mtbf_hours: float = 24.0,
    usd_per_hour: float = 1.0,
    usd_per_write: float | None = None,
) -> RunStore:
    """Open a store of runs: a path such as `agent.db`, or `memory:`.

    `durability="full"`: what is acknowledged survives power loss. `"os"`: it survives the death
    of the process, but power loss may take the last moments. `"economic"`: as "full", but within a
    cycle a repeatable result is written only when the loss to be expected has grown to the price of
    the write: a crash every `mtbf_hours`, the agent's time at `usd_per_hour`, a write at
    `usd_per_write` (object storage: the list price of a request, if nothing is given; else 0) and the time it is
    measured to take. Deeds and commits are as durable as ever.
    Raises `StoreUnavailable` if the path cannot be used, `FormatTooNew` if a newer release wrote
    it, `Misuse` for numbers that cannot be.
    """
    clock, economy = clock or SystemClock(), None
    if durability == "economic":
        given = 0.0 if usd_per_write is None else usd_per_write
        durability, economy = "full", _economy(mtbf_hours, usd_per_hour, given)
    store = open_store(os.fspath(url), clock=clock.now, durability=durability, readonly=readonly, pause=clock.sleep)
    if economy is not None and usd_per_write is None:
        economy = replace(economy, usd_per_write=price_of_write(store))
    return RunStore(store, clock, economy)


def _economy(mtbf_hours: float, usd_per_hour: float, usd_per_write: float) -> Economy:
    for name, value, least in (("mtbf_hours", mtbf_hours, 1e-9), ("usd_per_hour", usd_per_hour, 0.0),
                               ("usd_per_write", usd_per_write, 0.0)):  # fmt: skip
        if type(value) not in (int, float) or not least <= value < math.inf:
            raise Misuse(f"{name}={value!r} is no such number", hint='durability="economic", mtbf_hours=24')
    return Economy(mtbf_hours * SECONDS_PER_HOUR, usd_per_hour, usd_per_write)
