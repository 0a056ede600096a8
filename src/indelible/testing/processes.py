"""One simulated process: the store, clock and world as it sees them, and its death.

Owns: the numbering of a process's operations, and the carrying out of a fault at one of them.
Must never: wait on the machine's clock, or let a dead process reach the store or the world.
Invariant: the same process on the same world performs the same operations in the same order.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any, TypeVar, TypeVarTuple

import msgspec

from indelible.core import events as ev
from indelible.core.record import DEEDS
from indelible.core.requests import Append, Call, Called, Steps
from indelible.errors import DidNotHappen, IndelibleError, Misuse, StoreUnavailable
from indelible.runtime.leases import Hold, Renewer
from indelible.runtime.runs import Run
from indelible.runtime.runstore import RunStore
from indelible.stores.base import Batch, Page, Query, Write
from indelible.stores.writer import Writer
from indelible.testing import faults
from indelible.testing.faults import Fault, Operation, Plan
from indelible.testing.world import Deed, World

T = TypeVar("T")
Parts = TypeVarTuple("Parts")

MAX_OPERATIONS = 5_000

_current: ContextVar[Process] = ContextVar("indelible_process")


class SimulatedDeath(BaseException):
    """This process does not exist any more. Whatever still runs of it reaches nothing."""


def world() -> Process:
    """The world as the running simulated process sees it, for the actions of a workload."""
    try:
        return _current.get()
    except LookupError:
        raise Misuse("no simulated process is running", hint="simulate.sweep(workload)") from None


class Process:
    """One process. Its operations are numbered from 0; `plan` says at which one what goes wrong."""

    def __init__(self, world: World, plan: Plan | None = None, watch: Callable[[Process], None] | None = None) -> None:
        self.world = world
        self.number = world.start_process()
        self.plan = plan
        self.watch = watch
        self.operations: list[Operation] = []
        self.dead = False
        self.store_gone = False
        self.hit = ""
        self.hang: Callable[[Process], None] | None = None
        self.store = SimulatedStore(self)
        self.clock = SimulatedClock(self)
        self.runs = SimulatedRuns(self)
        self.opened: list[Run[Any]] = []

    # What a workload's actions do with the world

    def perform(self, kind: str, what: str, *, key: str = "", usd: float = 0.0) -> str:
        """Do a deed of that kind; `what` says which one. Returns its receipt."""
        return self.do(f"deed {kind} {what}", faults.DEED, lambda: self._record(kind, what, key, usd, False))

    def upsert(self, kind: str, what: str, *, key: str) -> str:
        """Do a deed that the other side ignores if it knows the key."""
        repeat = any(deed.kind == kind and deed.key == key for deed in self.world.ledger)
        return self.do(f"upsert {kind} {what}", faults.DEED, lambda: self._record(kind, what, key, 0.0, repeat))

    def find(self, kind: str, key: str) -> Deed | None:
        """Look whether a deed was done; changes nothing."""
        found = [deed for deed in self.world.ledger if deed.kind == kind and deed.key == key]
        return self.do(f"look {kind}", faults.LOOK, lambda: found[0] if found else None)

    def _record(self, kind: str, what: str, key: str, usd: float, repeat: bool) -> str:
        self.world.ledger.append(Deed(kind, what, key, usd, self.number, repeat))
        self.world.changes += 1
        return receipt(kind, what)

    # Operations and what goes wrong at them

    def do(self, label: str, possible: tuple[Fault, ...], apply: Callable[[], T]) -> T:
        """One operation."""
        fault = self.before(label, possible)
        if fault is Fault.FAIL_CLEANLY:
            self.world.blind |= possible is faults.LOOK
            raise self._clean(label)
        if fault is Fault.STORE_GONE or (self.store_gone and label.startswith("store")):
            self.store_gone = True
            raise self._clean(label)
        answer = apply()
        if fault is Fault.STORE_GONE_AFTER:
            self.store_gone = True
        if fault in (Fault.APPLIED_BUT_FAILED, Fault.STORE_GONE_AFTER):
            raise self._unclear(label)
        if fault is Fault.INTERRUPTED:
            raise _interruption()
        self.after(fault)
        return answer

    def before(self, label: str, possible: tuple[Fault, ...]) -> Fault | None:
        """The start of an operation: the fault to carry out, if this is the one."""
        self.must_live()
        if self.watch is not None:
            self.watch(self)
        number = len(self.operations)
        if number >= MAX_OPERATIONS:
            raise Misuse(f"the process does not end: it has done {number} operations", hint="make the program smaller")
        self.operations.append(Operation(label, possible))
        if self.plan is None or self.plan.at != number:
            return None
        self.hit = label
        fault = self.plan.fault
        if fault is Fault.DIE_BEFORE:
            self.die()
        if fault in faults.HANGS and self.hang is not None:
            self.hang(self)
        return fault

    def after(self, fault: Fault | None) -> None:
        """The end of an operation."""
        if fault is Fault.DIE_AFTER:
            self.die()
        self.must_live()

    def die(self) -> None:
        """Be gone from here on."""
        self.dead = True
        raise SimulatedDeath(f"process {self.number} died at {self.hit}")

    def must_live(self) -> None:
        """Stop whatever still runs of a dead process."""
        if self.dead:
            raise SimulatedDeath(f"process {self.number} is dead")

    def _clean(self, label: str) -> Exception:
        if label.startswith("store"):
            return StoreUnavailable(f"simulated: {label} failed", hint="try again")
        return DidNotHappen(f"simulated: {label}") if label.startswith("deed") else ConnectionRefusedError(label)

    def _unclear(self, label: str) -> Exception:
        return StoreUnavailable(f"simulated: {label}") if label.startswith("store") else TimeoutError(label)

    def wire(self, steps: Steps[T]) -> Steps[T]:
        """Drive `steps` so that each of its requests is two points at which this process may die."""
        answer: Any = None
        error: BaseException | None = None
        done: list[tuple[str, str]] = []
        while True:
            try:
                request = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as stop:
                if done:
                    self.world.seen.update(done)
                    self.world.changes += 1
                value: T = stop.value
                return value
            answer, error = None, None
            try:
                fault = self.before(_label(request), faults.REQUEST)
                began = self.world.time
                answer = yield timeless(request)
                if isinstance(answer, Called):
                    answer.took = self.world.time - began  # what the machine took would differ from run to run
                self.after(fault)
            except BaseException as raised:
                error = raised
            else:
                done += _done(request)

    def run(self, body: Callable[[RunStore], Any]) -> Any:
        """Run `body` as this process. Raises what ends it, `SimulatedDeath` for one."""
        token = _current.set(self)
        try:
            result = body(self.runs)
            if asyncio.iscoroutine(result):
                with asyncio.Runner(loop_factory=lambda: SimulatedLoop(self)) as runner:
                    result = runner.run(result)
            self.must_live()
            return result
        finally:
            _current.reset(token)


def receipt(kind: str, what: str) -> str:
    """What a deed returns; so that a person who sees the ledger knows it too."""
    return f"{kind} {what}: done"


def _interruption() -> BaseException:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return KeyboardInterrupt()
    return asyncio.CancelledError()


def timeless(request: Any) -> Any:
    """The same, without what the machine's writes took, which would differ from run to run."""
    if isinstance(request, Append) and isinstance(request.event, ev.CycleCommitted):
        request.event = msgspec.structs.replace(request.event, waited=0.0)
    return request


def _label(request: Any) -> str:
    if isinstance(request, Append):
        return f"append {ev.kind_of(request.event)}"
    if isinstance(request, Call):
        return f"call {getattr(request.fn, '__name__', 'it')}"
    return f"request {type(request).__name__}"


def _done(request: Any) -> list[tuple[str, str]]:
    """What the agent may rely on once the operation has returned."""
    if not isinstance(request, Append):
        return []
    event = request.event
    if isinstance(event, ev.CycleCommitted):
        return [(f"cycle {event.cycle}", "a commit")]
    if isinstance(event, ev.ActionCompleted) and (event.effect in DEEDS or event.usage):
        return [(event.call, event.name)]
    return []


class SimulatedClock:
    """Time passes only while someone waits for it. Random bytes depend on the process's number alone."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._drawn = 0

    def now(self) -> float:
        """Epoch seconds."""
        self._process.must_live()
        return self._process.world.time

    def sleep(self, seconds: float) -> None:
        """Let the time pass."""
        self._process.must_live()
        self._process.world.time += seconds

    async def asleep(self, seconds: float) -> None:
        """Let the time pass."""
        self.sleep(seconds)

    def entropy(self, size: int) -> bytes:
        """Bytes that no other process draws."""
        self._process.must_live()
        self._drawn += 1
        return blake2b(f"{self._process.number}/{self._drawn}".encode(), digest_size=size).digest()


class SimulatedStore:
    """The world's store, through which this process can die or fail."""

    url = "memory:"
    durable = True
    shared = True

    def __init__(self, process: Process) -> None:
        self._process = process
        self._inner = process.world.store

    def append(self, writes: Sequence[Write]) -> list[IndelibleError | None]:
        """See `Store.append`."""
        return self._write("append", lambda: self._inner.append(writes))

    def read(self, run_id: str, after_seq: int = 0) -> Iterator[Batch]:
        """See `Store.read`."""
        return iter(self._read("read", lambda: list(self._inner.read(run_id, after_seq))))

    def list_runs(self, query: Query, cursor: str | None = None) -> Page:
        """See `Store.list_runs`."""
        return self._read("list_runs", lambda: self._inner.list_runs(query, cursor))

    def claim(self, run_id: str, owner: str, ttl_s: float) -> int:
        """See `Store.claim`."""
        return self._write("claim" if ttl_s else "release", lambda: self._inner.claim(run_id, owner, ttl_s))

    def put_snapshot(self, run_id: str, seq: int, data: bytes, begins: bool = False) -> None:
        """See `Store.put_snapshot`."""
        self._write("put_snapshot", lambda: self._inner.put_snapshot(run_id, seq, data, begins))

    def get_snapshot(self, run_id: str, at_most_seq: int) -> tuple[int, bytes] | None:
        """See `Store.get_snapshot`."""
        return self._read("get_snapshot", lambda: self._inner.get_snapshot(run_id, at_most_seq))

    def delete(self, run_id: str) -> None:
        """See `Store.delete`."""
        self._write("delete", lambda: self._inner.delete(run_id))

    def close(self) -> None:
        """The store outlives this process."""

    def _read(self, what: str, apply: Callable[[], T]) -> T:
        return self._process.do(f"store {what}", faults.STORE_READ, apply)

    def _write(self, what: str, apply: Callable[[], T]) -> T:
        def applied() -> T:
            self._process.world.changes += 1
            return apply()

        return self._process.do(f"store {what}", faults.STORE_WRITE, applied)


class SimulatedWriter(Writer):
    """Writes in the background without a thread: when the event loop comes round to it."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.store, process.clock.sleep)
        self._later: deque[Callable[[], None]] = deque()

    def submit(self, make: Callable[[], Write], landed: Callable[[Any], object]) -> None:
        """See `Writer.submit`."""

        def commit() -> None:
            error: BaseException | None = None
            try:
                self.write(make)
            except (SimulatedDeath, Exception) as raised:
                error = raised
            landed(error)

        self._later.append(commit)
        asyncio.get_running_loop().call_soon(self.catch_up)

    def catch_up(self) -> None:
        """Write what waits."""
        while self._later:
            self._later.popleft()()


class SimulatedRenewer(Renewer):
    """Renews nothing by itself: a simulated process holds its runs until it dies or is made to hang."""

    def add(self, hold: Hold) -> None:
        """See `Renewer.add`."""

    def remove(self, hold: Hold) -> None:
        """See `Renewer.remove`."""


class SimulatedRuns(RunStore):
    """What the process's program gets as its open store."""

    writer: SimulatedWriter

    def __init__(self, process: Process) -> None:
        self._process = process
        super().__init__(process.store, process.clock)

    def run(self, *args: Any, **kwargs: Any) -> Run[Any]:
        """See `RunStore.run`."""
        run = super().run(*args, **kwargs)
        run._holding.port.wire = self._process.wire
        self._process.opened.append(run)
        return run

    def _begin(self) -> None:
        self._writer = self.writer = SimulatedWriter(self._process)
        self._renewer = SimulatedRenewer(self.store)


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers wait for simulated time, and whose executor is this thread."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._began = process.world.time
        super().__init__(_Jumps(process))
        self.set_exception_handler(lambda _loop, _context: None)

    def time(self) -> float:
        """Simulated seconds since the loop began: epoch seconds are too coarse for a loop's timers."""
        return self._process.world.time - self._began

    def run_in_executor(self, executor: object, func: Callable[[*Parts], T], *args: *Parts) -> asyncio.Future[T]:
        """Call `func` here and now, after what was to be written before it."""
        del executor
        self._process.runs.writer.catch_up()
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except BaseException as error:
            future.set_exception(error)
        return future


class _Jumps(selectors.SelectSelector):
    def __init__(self, process: Process) -> None:
        self._process = process
        super().__init__()

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("the simulated agent waits for something that nothing in its world brings about")
        self._process.world.time += max(timeout, 0.001)
        return ready
