"""A run in the user's hands: its state, its cycle, and what a cycle may ask of it.

Owns: `Run` and `Outcome`.
Must never: append to the journal but through the protocol.
Invariant: outside a cycle a run can be read, and changes nothing.
"""

from __future__ import annotations

from contextvars import Token
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from uuid import UUID

from indelible.core import events as ev
from indelible.core import protocol
from indelible.core.codec import Types, from_plain, pack, to_plain, unpack
from indelible.core.cycle import Live, Scope
from indelible.core.record import BUDGET, FINISHED, RUNNING, UNPRICED, Record
from indelible.core.recovery import recover
from indelible.core.reopening import must_have_failed, reopen
from indelible.core.requests import NOW, Append, Entropy, Park, Steps
from indelible.core.state import State
from indelible.drive import aio, blocking
from indelible.drive.clock import Random, seeded
from indelible.drive.context import current, host, restore
from indelible.errors import BudgetExceeded, Diverged, IndelibleError, InDoubt, Misuse, StoreUnavailable, UnknownRun

if TYPE_CHECKING:
    from indelible.runtime.holding import Holding

S = TypeVar("S", bound=State)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run stands: `finished`, `failed`, `parked`, or `running` if it was stopped between two cycles.

    For a parked run `kind` says what it waits for (`ask`, `approve`, `doubt`, `diverged`, `budget`, `unpriced`,
    `sleep`, `due`), `question` is for the person, `wake_at` (epoch seconds) is set if a time ends it.
    """

    run_id: str
    status: str
    result: Any = None
    error: str = ""
    kind: str = ""
    question: str = ""
    wait: str = ""
    wake_at: float | None = None

    @property
    def is_finished(self) -> bool:
        """True if the run reached its end."""
        return self.status == FINISHED


def outcome_of(record: Record, types: Types) -> Outcome:
    """The outcome a record tells of."""
    wait = record.open_wait
    result = from_plain(unpack(record.result), types, "result") if record.result else None
    if wait is None:
        return Outcome(record.run_id, record.status, result, record.error)
    return Outcome(record.run_id, record.status, result, record.error, wait.kind, wait.question, wait.wait,
                   wait.wake_at or None)  # fmt: skip


class Run(Generic[S]):
    """One agent pursuing one objective.

    Cycle functions receive it. People who own their loop open it themselves:

        with indelible.open("agent.db") as store, store.run("suppliers", research) as run:
            while run.is_active:
                with run.cycle():
                    ...
    """

    def __init__(self, holding: Holding, retry: bool = False) -> None:
        self._holding = holding
        self._retry = retry

    # What it is

    @property
    def run_id(self) -> str:
        """The run's id, for life."""
        return self._holding.run_id

    @property
    def objective(self) -> str:
        """What the run is for."""
        packed = self._record.objective if self._live is not None else b""
        return str(unpack(packed) if packed else self._holding.objective or "")

    @property
    def state(self) -> S:
        """The working memory. Changes count inside a cycle only, and hold with its commit."""
        return cast(S, self._held.workspace.state)

    @property
    def is_active(self) -> bool:
        """True while there is a cycle to enter: not finished, not failed, not waiting."""
        return self._record.status == RUNNING and not self._held.lost

    @property
    def outcome(self) -> Outcome:
        """How the run stands now."""
        return outcome_of(self._record, self._held.agent.shape.types)

    @property
    def notices(self) -> list[str]:
        """What was settled about actions in doubt since the last commit, one sentence each, for the prompt."""
        return list(self._record.notices)

    @property
    def cycle_number(self) -> int:
        """The open cycle's number, from 1."""
        return self._record.cycle

    @property
    def attempt(self) -> int:
        """How often this cycle was tried, this time included."""
        return self._record.attempt

    # The cycle

    def cycle(self) -> CycleBlock:
        """One logical transaction, as `with run.cycle():` or `async with run.cycle():`.

        Leaving it normally commits, durably. Leaving it by an exception rolls back and raises it
        on. Waiting (`ask`, `sleep`, a deed in doubt) suspends it: nothing is committed, the block
        ends quietly, and `is_active` is then False.
        """
        return CycleBlock(self)

    def finish(self, result: Any = None) -> None:
        """Let the run end with `result` when this cycle commits."""
        scope = self._scope("finish")
        scope.entry.result = pack(to_plain(result, self._held.agent.shape.types, "result"))

    def ask(self, question: str) -> Any:
        """Ask a person. Suspends the cycle; when the answer is there it is entered again and `ask` returns it."""
        scope = self._scope("ask")
        if not isinstance(question, str) or not question.strip():
            raise Misuse("a question must be a non-empty text", hint='run.ask("Which supplier?")')
        wait = protocol.wait_name(scope, "ask", question)
        types = self._held.agent.shape.types
        return protocol.wait_in(scope, "ask", Park(wait, "ask", question), types)

    def sleep(self, seconds: float) -> None:
        """Suspend the cycle until that much time has passed; costs no process meanwhile."""
        scope = self._scope("sleep")
        if not 0 <= seconds < 1e10:
            raise Misuse(f"a run cannot sleep {seconds} seconds", hint="run.sleep(3600)")
        wait = protocol.wait_name(scope, "sleep", repr(float(seconds)))
        wake_at = self._holding.port.clock.now() + seconds
        text = f"Sleeps for {seconds:g} s."
        protocol.wait_in(scope, "sleep", Park(wait, "sleep", text, wake_at), self._held.agent.shape.types)

    # Recorded values

    def now(self) -> datetime:
        """The time, in UTC; a cycle that is run again sees the recorded one."""
        stamp = self._recorded("now", NOW)
        return datetime.fromtimestamp(float(stamp), UTC)

    @property
    def random(self) -> Random:
        """A random generator that gives the same numbers when the cycle is run again."""
        scope = self._scope("random")
        if scope.random is None:
            scope.random = seeded(self._seed("random"))
        return cast(Random, scope.random)

    def new_id(self) -> str:
        """A new random id (a UUID, version 4) that stays the same when the cycle is run again."""
        return str(UUID(bytes=self._seed("id"), version=4))

    def _seed(self, kind: str) -> bytes:
        return cast(bytes, self._recorded(kind, Entropy(16)))

    def _recorded(self, kind: str, draw: Any) -> Any:
        scope = self._scope(kind)
        nth = 0 if kind == "random" else scope.nth(kind)
        slot = f"{kind}:{scope.call}:{nth}"
        found = self._record.values.get(slot)
        if found is not None:
            return unpack(found)

        def steps() -> Steps[Any]:
            value = yield draw
            at = yield NOW
            yield Append(ev.ValueRecorded(at, self._record.cycle, slot, pack(value)))
            return value

        return blocking.drive(self._holding.port, steps())

    # Opening and closing

    def __enter__(self) -> Run[S]:
        opened = False
        try:
            if self._retry:
                self._must_have_failed()
            self._holding.open(self)
            opened = True
            host(self._held)
            if self._retry:
                blocking.drive(self._holding.port, reopen(self._held, self._holding.claimed, self._holding.budget))
        except BaseException as error:
            # It may be open if Ctrl-C came when `open` was done and the block not begun.
            if opened or not isinstance(error, Exception):
                self._holding.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, ended: BaseException | None, _: object) -> None:
        try:
            self._holding.close()
        except StoreUnavailable as error:
            _tell_unwritten(error, ended)
        if kind is None:
            self._holding.tell()

    async def __aenter__(self) -> Run[S]:
        if self._retry:
            await aio.in_thread(self._must_have_failed)
        await self._holding.aopen(self)
        host(self._held)
        if self._retry:
            try:
                await aio.drive(self._holding.port, reopen(self._held, self._holding.claimed, self._holding.budget))
            except BaseException:
                await self._holding.aclose()
                raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, ended: BaseException | None, _: object) -> None:
        try:
            await self._holding.aclose()
        except StoreUnavailable as error:
            _tell_unwritten(error, ended)
        if kind is None:
            self._holding.tell()

    def __repr__(self) -> str:
        status = self._record.status if self._live is not None else "not open"
        return f"<run {self.run_id!r} {status}>"

    def _must_have_failed(self) -> None:
        """Look before the run is claimed, so that a retry that cannot be changes nothing."""
        record = blocking.drive(self._holding.port, recover(self.run_id)).record
        if not record.agent:
            store = self._holding.port.store
            raise UnknownRun(f"there is no run {self.run_id!r} in {store.url}", hint="indelible ls", run=self.run_id)
        must_have_failed(record)

    @property
    def _live(self) -> Live | None:
        return self._holding.live

    @property
    def _held(self) -> Live:
        live = self._holding.live
        if live is None:
            raise Misuse(f"run {self.run_id} is not open", hint="with store.run(...) as run: ...")
        return live

    @property
    def _record(self) -> Record:
        return self._held.record

    def _scope(self, what: str) -> Scope:
        scope = current.get()
        if scope is None and not self._record.agent:
            raise Misuse(
                f"run.{what} was called in the start function, where nothing is recorded yet",
                hint=f"call run.{what} in the cycle; start puts the first tasks into the state",
            )
        if scope is None or scope.entry.live is not self._held:
            raise Misuse(f"run.{what} was called outside a cycle of run {self.run_id}", hint="with run.cycle(): ...")
        scope.must_be_open(f"run.{what}")
        return scope


def _tell_unwritten(error: StoreUnavailable, ended: BaseException | None) -> None:
    """Raise what a run could not be closed with; or tell what is lost with what ended it, if that is something else."""
    if ended is None or (isinstance(ended, StoreUnavailable) and error.ids.get("results")):
        raise error
    if error.ids.get("results"):
        ended.add_note(str(error))


class CycleBlock:
    """A cycle as a block of code."""

    def __init__(self, run: Run[Any]) -> None:
        self._run = run
        self._token: Token[Scope | None] | None = None

    def __enter__(self) -> None:
        live = self._ready()
        if live.record.abandoned:
            blocking.drive(self._port, protocol.finish_abandoned(live, self._port))
            self._ready()
        entry = blocking.drive(self._port, protocol.enter(live, self._port))
        self._token = current.set(entry.scope)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        live = self._left()
        assert live.entry is not None
        return blocking.drive(self._port, protocol.leave(live.entry, error)) == "parked"

    async def __aenter__(self) -> None:
        live = self._ready()
        if live.record.abandoned:
            await aio.drive(self._port, protocol.finish_abandoned(live, self._port))
            self._ready()
        entry = await aio.drive(self._port, protocol.enter(live, self._port))
        self._token = current.set(entry.scope)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        live = self._left()
        assert live.entry is not None
        return await aio.drive(self._port, protocol.leave(live.entry, error)) == "parked"

    @property
    def _port(self) -> Any:
        return self._run._holding.port

    def _ready(self) -> Live:
        live = self._run._held
        record = live.record
        if record.status != RUNNING:
            raise _nothing_to_enter(record)
        return live

    def _left(self) -> Live:
        if self._token is not None:
            restore(self._token)
            self._token = None
        return self._run._held


def _nothing_to_enter(record: Record) -> IndelibleError:
    run_id, wait = record.run_id, record.open_wait
    if wait is None:
        what = f"run {run_id} is {record.status}; there is no cycle to enter"
        return Misuse(what, hint="while run.is_active: ...", run=run_id)
    what = f"run {run_id} waits: {wait.question}"
    if wait.kind == "doubt":
        call = wait.wait.partition(":")[2]
        hint = f"indelible settle {run_id} {call} --happened | --did-not-happen"
        return InDoubt(what, hint=hint, run=run_id, call=call)
    if wait.kind in (BUDGET, UNPRICED):
        answer = "--budget USD" if wait.kind == BUDGET else "yes"
        return BudgetExceeded(what, hint=f"indelible answer {run_id} {answer}", run=run_id)
    if wait.kind == "diverged":
        return Diverged(what, hint=f"indelible answer {run_id} recorded|both", run=run_id)
    return Misuse(what, hint=f"indelible show {run_id}", run=run_id)
