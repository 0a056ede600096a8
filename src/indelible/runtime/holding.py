"""Holding a run: claim it, recover it, accept or carry it over, and let go of it.

Owns: the life of a run's lease and feed in this process.
Must never: do anything before the claim that a second process could do as well.
Invariant: a run that cannot be opened is let go of, and nothing about it has changed but its epoch.
"""

from __future__ import annotations

import inspect
import os
import platform
import shlex
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from indelible.core import events as ev
from indelible.core.arriving import must_not_be_elsewhere
from indelible.core.budgets import at_opening, checked
from indelible.core.codec import unpack
from indelible.core.costs import Economic, Economy
from indelible.core.cycle import AgentSpec, Live
from indelible.core.inbox import has_news, read_inbox
from indelible.core.protocol import wake
from indelible.core.record import PARKED, RUNNING, Record, fold
from indelible.core.recovery import Recovered, accept, fit, migrate, recover
from indelible.core.requests import FLUSH, NOW, Append, Steps
from indelible.core.state import Workspace
from indelible.drive import aio, blocking
from indelible.drive.clock import Clock
from indelible.drive.port import Port
from indelible.errors import IndelibleError, JournalDamaged, Misuse, RunMismatch, StoreUnavailable, UnknownRun
from indelible.runtime.actions import resolve
from indelible.runtime.labels import label_of
from indelible.runtime.leases import TTL_S, Hold, Renewer
from indelible.runtime.pricing import price_of
from indelible.stores.base import Query, Store, check_run_id
from indelible.stores.feed import Feed
from indelible.stores.owner import Owner, enter, leave
from indelible.stores.writer import Writer
from indelible.version import __version__

Observer = Callable[[ev.Event], None]


def _never() -> bool:
    return False


class Holding:
    """One run, to be held by this process."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        renewer: Renewer,
        clock: Clock,
        run_id: str,
        agent: AgentSpec,
        objective: str | None,
        observe: Observer | None = None,
        budget_usd: float | None = None,
    ) -> None:
        self.budget = None if budget_usd is None else checked(budget_usd)
        self.run_id = check_run_id(run_id)
        self.objective = objective
        self.agent = agent
        self.port = Port(store, clock)
        self.live: Live | None = None
        self.economy: Economy | None = None
        self.warnings: list[str] = []
        self.claimed: ev.RunClaimed | None = None
        """What is yet to be written of the claim: nothing is told to a run that has ended, unless it is reopened."""
        self._writer = writer
        self._renewer = renewer
        self._observe = observe
        self._feed: Feed | None = None
        self._hold: Hold | None = None
        self._nonce, self._pid = "", 0
        if objective is not None and (not isinstance(objective, str) or not objective.strip()):
            raise Misuse("the objective is empty", hint=f'{agent.name}.run("Find three suppliers", ...)')

    def open(self, handle: Any) -> None:
        """Claim and recover the run, or accept it; durable when it returns.

        Raises `RunBusy`, `RunMismatch`, `RunMoved`, `UnknownRun`, `JournalDamaged`, `StateInvalid`,
        `StoreUnavailable`; then the run is not held.
        """
        if self.live is not None:
            raise Misuse(f"run {self.run_id} is open already", hint="use the run that is open, or close it first")
        if self.objective is None:
            self._must_exist()
        self._nonce, self._pid = self.port.clock.entropy(8).hex(), os.getpid()
        owner, epoch = Owner.here(self._nonce), 0
        try:
            enter(self._nonce)
            epoch = self.port.store.claim(self.run_id, owner, TTL_S)
            live = blocking.drive(self.port, self._take_up(handle, owner, epoch))
            self._hold = Hold(live, owner)
            self._renewer.add(self._hold)
        except BaseException as error:
            hold, self._hold, self.live = self._hold, None, None
            if hold is not None:
                self._renewer.remove(hold)
            leave(self._nonce)
            if epoch or not isinstance(error, Exception):  # Ctrl-C in the claim leaves open whether it was granted
                self._let_go(owner)
            raise

    async def aopen(self, handle: Any) -> None:
        """As `open`, without blocking the event loop. Cancelled, it leaves the run not held."""
        before = self._hold
        try:
            await aio.in_thread(self.open, handle)
        except BaseException:
            if self._hold is not before:  # a cancellation came, and the thread claimed the run all the same
                await self.aclose()
            raise

    def close(self) -> None:
        """Write what waits, and let go of the run; idempotent.

        Raises `StoreUnavailable` if it cannot be written even after the store's pauses; it then says how many
        results are lost with it, and has their number in `ids["results"]`.
        """
        hold, live = self._hold, self.live
        if hold is None or live is None:
            return
        try:
            self._hold = None
            self._renewer.remove(hold)
            if not live.lost and self.port.feed is not None:
                self.port.feed.flush()
        except StoreUnavailable as error:
            raise _unwritten(error, live) from error
        finally:
            self._let_go(hold.owner)
            live.lost = live.lost or f"run {self.run_id} is closed"

    async def aclose(self) -> None:
        """As `close`, without blocking the event loop; done even if it is cancelled."""
        await aio.in_thread(self.close)

    def tell(self) -> None:
        """Raise what the observer raised, if it did."""
        if self._feed is not None and self._feed.complaint is not None:
            raise self._feed.complaint

    def _let_go(self, owner: str) -> None:
        leave(self._nonce)
        if os.getpid() != self._pid:
            return  # a fork has its parent's name
        try:
            self.port.store.claim(self.run_id, owner, 0)
        except (IndelibleError, StoreUnavailable):
            pass  # not ours any more, or out of reach: the lease runs out by itself

    def _take_up(self, handle: Any, owner: str, epoch: int) -> Steps[Live]:
        found: Recovered = yield from recover(self.run_id)
        self.warnings += found.notices
        record, agent = found.record, self.agent
        new = not record.agent
        if not new:
            must_not_be_elsewhere(record, self.port.store.url)
            self._must_match(found)
        journal = found.journal()
        workspace = Workspace(agent.shape, agent.shape.initial_doc())
        live = Live(agent, record, journal, workspace, epoch, resolve, handle, snapshot_size=found.snapshot_size,
                    stored_at_snapshot=-found.stored_bytes, warnings=self.warnings, price=price_of)  # fmt: skip
        if self.economy is not None:
            live.rule = Economic(self.economy)
        self.live = live
        self.port.feed = self._feed = Feed(self._writer, live, label_of, self._observe)
        torn = max(0, found.cut_to - record.seq) if found.cut_to else 0
        going = record.status in (RUNNING, PARKED)
        moved: ev.StateMigrated | None = None
        if new:
            if self.objective is None:
                raise JournalDamaged(
                    f"run {self.run_id!r}: nothing of its journal can be read, not even its objective",
                    hint=f"indelible verify {self.run_id}",
                    run=self.run_id,
                )
            yield from accept(live, self.objective, __version__, self.budget)
        elif going:
            moved = fit(live)
        elif agent.shape.matches(record.doc):
            live.workspace = Workspace(agent.shape, record.doc)
        at = yield NOW
        version = f"{__version__} on Python {platform.python_version()}"
        claimed = ev.RunClaimed(at, epoch, owner, version, torn)
        if not going and not (yield from has_news(record)):
            self.claimed = claimed
            return live
        # Nothing is written before it is certain that the run can be opened.
        yield Append(claimed)
        yield from migrate(live, moved)
        if record.status == PARKED:
            yield from wake(live, False, _never)
        else:
            yield from read_inbox(live)  # also of a run that has ended: a deed in doubt may have been settled since
        if going:
            yield from at_opening(live, self.budget)
        yield FLUSH
        return live

    def _must_exist(self) -> None:
        """A claim would make the run known; so look before."""
        page = self.port.store.list_runs(Query(run_ids=(self.run_id,)))
        if not any(entry.head for entry in page.runs):
            raise UnknownRun(f"there is no run {self.run_id!r} in {self.port.store.url}", hint="indelible ls")

    def _must_match(self, found: Recovered) -> None:
        record = found.record
        objective = unpack(record.objective)
        if record.agent != self.agent.name:
            raise RunMismatch(
                f"run {self.run_id!r} belongs to agent {record.agent!r}, not to {self.agent.name!r}",
                hint=f'@agent(name="{record.agent}", ...) if it was renamed; else choose another --run-id',
                run=self.run_id,
            )
        if self.objective is not None and objective != self.objective:
            raise RunMismatch(
                f"run {self.run_id!r} pursues {objective!r}, not {self.objective!r}",
                hint=f"{self._resume()}   # to go on with it; or choose another run id",
                run=self.run_id,
            )

    def _resume(self) -> str:
        """The command that goes on with the run, with the file of the agent as far as that can be known."""
        body, own = self.agent.body, os.path.dirname(os.path.dirname(__file__)) + os.sep
        file = body.__code__.co_filename if inspect.isfunction(body) else ""
        words = ["indelible", "resume", self.run_id]
        if not file.endswith((".py", ".pyw")) or body is None:
            words.append(f"AGENT.py:{self.agent.name}")
        elif not file.startswith(own):  # the shipped agent is found without
            with suppress(OSError):  # the folder of this process may be gone
                file = file.removeprefix(os.getcwd() + os.sep)
            words.append(f"{file}:{body.__name__}")
        return shlex.join(words)


def _unwritten(error: StoreUnavailable, live: Live) -> StoreUnavailable:
    """The same, and what goes with it: results that were there, and must be asked and paid for again."""
    lost = [event for event in live.journal.unwritten() if isinstance(event, ev.ActionCompleted)]
    if not lost:
        return error
    run_id, told = live.record.run_id, Record(live.record.run_id)
    for event in lost:
        fold(told, 0, event)
    spent = told.usage
    cost = f", which cost {spent.usd:.4f} USD" if spent.usd else ""
    cost += f" ({spent.unpriced} without a known price)" if spent.unpriced else ""
    many = "1 result is" if len(lost) == 1 else f"{len(lost)} results are"
    again = f"indelible resume {run_id} AGENT.py:{live.agent.name}"
    return StoreUnavailable(
        f"{error.what}; {many} not written{cost}, and will be asked for again",
        hint=f"{error.hint}; then: {again}" if error.hint else again,
        **{**error.ids, "run": run_id, "results": len(lost), "usd": spent.usd},
    )
