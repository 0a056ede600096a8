"""The simulated half of a proof: each operation of the user's agent is a place where it dies or fails.

Owns: the simulated processes of a user's agent, and the order in which points are tried.
Must never: let a fault reach anything but the process it is for; the agent's own actions are really performed.
Invariant: every case begins with nothing: an empty store, an empty world, an empty folder, the agent's file run anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import selectors
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from indelible.core.codec import GENERIC, pack, to_plain
from indelible.core.record import DEEDS, FAILED, FINISHED
from indelible.core.requests import Call, Steps
from indelible.core.usage import used
from indelible.drive.clock import SystemClock
from indelible.errors import DidNotHappen, IndelibleError, Misuse, NotStorable
from indelible.runtime.runstore import RunStore
from indelible.testing import checkers
from indelible.testing.checkers import Journals
from indelible.testing.faults import DEATHS, Fault, Operation, Plan
from indelible.testing.likeness import likeness
from indelible.testing.processes import MAX_OPERATIONS, Process, SimulatedDeath, SimulatedLoop, _label, timeless
from indelible.testing.prove_evidence import RUN_ID, Case, Life, Seen
from indelible.testing.prove_limits import UNTOUCHED_S, alarm, gets_nowhere, still_running
from indelible.testing.prove_person import Person
from indelible.testing.prove_subject import Subject
from indelible.testing.prove_world import Outside
from indelible.testing.world import World

T = TypeVar("T")

FAULTS = (Fault.DIE_BEFORE, Fault.DIE_AFTER, Fault.FAIL_CLEANLY, Fault.APPLIED_BUT_FAILED)
LONGEST_WAIT_S = 60.0
AMBIGUOUS = (TimeoutError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
"""None of these is a clean failure, whatever is declared: the deed may be done."""
Plans = Mapping[int, Plan]


class Deaths(NamedTuple):
    """One death that led to a world of its own.

    recovery: the operations, of the process that took the run up then, before which something had changed.
    """

    process: int
    plan: Plan
    recovery: list[int]


class UserProcess(Process):
    """A simulated process that performs a user's actions, which know nothing of it."""

    def __init__(self, world: World, plan: Plan | None, life: Life, outside: Outside | None) -> None:
        super().__init__(world, plan)
        self.life = life
        self.under_way: list[str] = []
        self.raised = False
        self.hung = False
        self.got: set[str] = set()
        self.outside = outside
        self.turns: list[int] = []
        self._last: tuple[int, int, int, int] | None = None

    def before(self, label: str, possible: tuple[Fault, ...]) -> Fault | None:
        """See `Process.before`. A death here is unlike the one before only if something has changed since."""
        done = len(self.outside.book.entries) if self.outside is not None else 0
        found = (self.world.changes, len(self.life.began), len(self.life.returned), done)
        if found != self._last:
            self._last = found
            self.turns.append(len(self.operations))
        return super().before(label, possible)

    def time_out(self) -> None:
        """It has taken too long: be gone."""
        self.hung = True
        self.die()

    def wire(self, steps: Steps[T]) -> Steps[T]:
        """See `Process.wire`. A call of an action may also fail, before or after it was made."""
        answer: Any = None
        error: BaseException | None = None
        done = matters = ""
        while True:
            try:
                request = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as stop:
                self.life.handed |= {matters} - {""}
                self.got |= {done} - {""}
                value: T = stop.value
                return value
            answer, error = None, None
            scope = request.scope if isinstance(request, Call) else None
            try:
                if scope is None or not scope.call:
                    fault = self.before(_label(request), DEATHS)
                    answer = yield timeless(request)
                    self.after(fault)
                    continue
                fault = self.before(f"call {scope.call}", FAULTS)
                if fault is Fault.FAIL_CLEANLY:
                    self.raised = True
                    deed = scope.effect in DEEDS
                    raise DidNotHappen("simulated") if deed else ConnectionRefusedError("simulated")
                self.life.began.append(scope.call)
                if scope.call in self.got:
                    self.life.again.append(scope.call)
                self.under_way.append(scope.call)
                try:
                    answer = yield request
                finally:
                    self.under_way.remove(scope.call)
                seen = seen_of(scope, answer.value)
                self.life.returned.append(seen)
                done, matters = seen.call, seen.call if seen.matters else ""
                answer.took = 0.0  # what the machine took would differ from run to run
                if fault is Fault.APPLIED_BUT_FAILED:
                    self.raised = True
                    raise _ambiguous(scope)("simulated")
                self.after(fault)
            except BaseException as raised:
                error = raised

    def run(self, body: Callable[[RunStore], Any]) -> Any:
        """See `Process.run`. The event loop waits for real sockets and pipes, and skips all other waiting."""

        def blocking(runs: RunStore) -> Any:
            result = body(runs)
            if asyncio.iscoroutine(result):
                with asyncio.Runner(loop_factory=lambda: PatientLoop(self)) as runner:
                    return runner.run(result)
            return result

        return super().run(blocking)


class PatientLoop(SimulatedLoop):
    """A simulated event loop with real things to wait for."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._began = process.world.time
        asyncio.SelectorEventLoop.__init__(self, _Patient(process))
        self.set_exception_handler(lambda _loop, _context: None)


class _Patient(selectors.DefaultSelector):
    """Waits really if anything but the loop's own pipe is waited for; else lets the time jump."""

    def __init__(self, process: Process) -> None:
        self._process = process
        super().__init__()

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is not None and len(self.get_map()) <= 1:
            self._process.world.time += max(timeout, 0.001)
            return ready
        began = monotonic()
        ready = super().select(LONGEST_WAIT_S if timeout is None else timeout)
        self._process.world.time += monotonic() - began
        if not ready and timeout is None:
            raise RuntimeError(f"the agent waits for something that did not come within {LONGEST_WAIT_S:g} s")
        return ready


def seen_of(scope: Any, value: Any) -> Seen:
    """A call as it returned; a result that cannot be kept is not."""
    try:
        result = pack(to_plain(value, scope.entry.live.resolve(_action(scope.call)).types, "result"))
    except (NotStorable, AttributeError):
        try:
            result = pack(to_plain(value, GENERIC, "result"))
        except NotStorable:
            result = b""
    usage = used(scope, value) or {}
    return Seen(scope.call, str(scope.effect), result, scope.effect in DEEDS or bool(usage.get("usd")))


def _ambiguous(scope: Any) -> type[Exception]:
    """An error that proves nothing; one of those that the action declares to be a clean failure, if it does."""
    spec = scope.entry.live.actions.get(_action(scope.call))
    declared = spec.fails_cleanly if spec is not None else ()
    return next((error for error in AMBIGUOUS if issubclass(error, declared)), TimeoutError)


def _action(call: str) -> str:
    return call.rpartition("-")[0]


class Simulation:
    """Cases of one agent in simulated processes, with their files below `folder`."""

    def __init__(self, subject: Subject, outside: Outside | None, folder: Path, person: Person) -> None:
        self.subject = subject
        self.outside = outside
        self.folder = folder
        self.person = person
        self.limit_s = UNTOUCHED_S
        """A process that takes longer hangs, and is ended."""
        self.processes = 0
        self.operations: list[list[Operation]] = []
        """Those of each process of the last case."""
        self.turns: list[list[int]] = []
        """For each process of the last case, its operations before which something had changed."""
        self._journals = Journals(RUN_ID)
        self._read: set[bytes | None] = set()

    def play(self, plans: Plans, where: str, *, skipped: int = 0, known: Callable[[Any], bool] | None = None) -> Case:
        """Play one case. `plans` gives the fault of the process of that number, counted from 0.

        skipped: so many processes are said to have been before, so that times and random values differ.
        known: asked once the last fault has struck, with what the world is like; True ends the case there.
        """
        case, world = Case(where), World()
        world.processes = skipped
        self.operations, self.turns = [], []
        if self.outside is not None:
            self.outside.book.clear()
            case.entries = self.outside.book.entries  # grows while the case goes on
        with _nowhere(self.folder):
            while not case.endless:
                number = len(case.lives)
                life = self._live(case, world, plans.get(number))
                if case.endless or is_over(life) or (life.error and number > max(plans, default=-1)):
                    break
                if known is not None and number == max(plans) and known(self._alike(case, world)):
                    case.cut = True
                    break
                if life.journal is not None:
                    self.person.attend(RunStore(world.store, SystemClock()), life.journal.record, case)
                case.endless = gets_nowhere(case)
        return case

    def _live(self, case: Case, world: World, plan: Plan | None) -> Life:
        before, life = world.copy(), Life()
        case.lives.append(life)
        process = UserProcess(world, plan, life, self.outside)
        self.processes += 1
        if self.outside is not None:
            self.outside.book.under_way = lambda: None if process.dead else tuple(process.under_way)
        try:
            with (
                contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()),
                alarm(self.limit_s, process.time_out),
            ):  # fmt: skip
                process.run(self._program)
        except (SimulatedDeath, asyncio.CancelledError):
            life.killed = True
        except (Exception, SystemExit) as error:  # an agent may end its process, and not this one
            life.killed = process.dead
            life.error = "" if process.dead else f"{type(error).__name__}: {error}"
        life.killed = life.killed or process.dead
        if life.killed and self.outside is not None:
            self.outside.settle()  # what it had sent and nobody had taken yet is lost with it
        if process.hung:
            case.endless = still_running(self.limit_s)
        elif len(process.operations) == MAX_OPERATIONS:
            case.endless, life.error = f"a process had done {MAX_OPERATIONS:,} operations, and went on", ""
        self.operations.append(process.operations)
        self.turns.append(process.turns)
        case.raised |= process.raised or (plan is not None and plan.fault not in DEATHS and not life.error)
        self._inspect(case, before, world, life)
        return life

    def _program(self, runs: RunStore) -> Any:
        return self.subject.load().run(self.subject.objective, store=runs, run_id=RUN_ID)

    def _inspect(self, case: Case, before: World, world: World, life: Life) -> None:
        case.problems += checkers.grown(before, world, RUN_ID)
        try:
            journal = self._journals.read(world)
            if not journal.events:
                return
            life.journal = journal
            if journal.chain not in self._read:
                self._read.add(journal.chain)
                found = RunStore(world.store, SystemClock()).recover(RUN_ID)
                case.problems += [*checkers.readable(journal, found.record), *found.notices]
        except IndelibleError as error:
            case.problems.append(checkers.outcome_of_open(error))

    def _alike(self, case: Case, world: World) -> Any:
        life = case.lives[-1]
        if life.journal is None:
            return len(case.lives), repr(self.outside.book.entries) if self.outside else "", case.raised, _files()
        entries = [(entry.what, entry.under_way) for entry in self.outside.book.entries] if self.outside else []
        done = sorted(seen.call for seen in case.returned)
        return (likeness(world, life.journal, RUN_ID, frozenset()), repr(entries), repr(done), life.error,
                case.raised, _files())  # fmt: skip


def _files() -> tuple[tuple[str, bytes], ...]:
    """What the agent has left in its folder: a process that takes the run up may find it there."""
    found = []
    for place, _, names in os.walk("."):
        for path in (Path(place, name) for name in names):
            with contextlib.suppress(OSError):
                found.append((str(path), blake2b(path.read_bytes(), digest_size=16).digest()))
    return tuple(sorted(found))


def is_over(life: Life) -> bool:
    """True if the run has come to its end."""
    return life.journal is not None and life.journal.record.status in (FINISHED, FAILED)


def works(case: Case) -> Case:
    """An untouched case, if it ended well. Raises `Misuse` if not."""
    last = case.lives[-1]
    hint = "indelible run AGENT.py:name OBJECTIVE   # it must work by itself first, in an empty folder"
    if last.error or last.journal is None or not is_over(last):
        why = last.error or case.endless or "it goes on"
        raise Misuse(f"the agent does not come to an end without any fault: {why}", hint=hint)
    if last.journal.record.status == FAILED:
        raise Misuse(f"the agent fails without any fault: {last.journal.record.error[:300]}", hint=hint)
    if case.problems:
        raise Misuse(f"the untouched run is wrong: {case.problems[0]}", hint="indelible verify RUN")
    return case


class Sweep:
    """All points of a simulation. `judge` is given each case; `at_most` limits singles and doubles."""

    def __init__(self, simulation: Simulation, judge: Callable[[Case], None], seed: int) -> None:
        self.simulation = simulation
        self.judge = judge
        self.seed = seed
        self.points = self.of_points = self.doubles = self.of_doubles = 0
        self._alike: set[Any] = set()
        self._deaths: list[Deaths] = []

    def untouched(self, skipped: int = 0) -> Case:
        """The run without any fault. Raises as `works`."""
        return works(self.simulation.play({}, "untouched", skipped=skipped))

    def singles(self, operations: list[list[Operation]], at_most: int | None) -> Iterator[None]:
        """Each fault at each operation of the untouched run."""
        every = [(process, Plan(at, fault)) for process, found in enumerate(operations)
                 for at, operation in enumerate(found) for fault in FAULTS if fault in operation.faults]  # fmt: skip
        self.of_points = len(every)
        for process, plan in spread(every, at_most, self.seed):
            self.points += 1
            label = operations[process][plan.at].label
            case = self.simulation.play({process: plan}, f"simulated: {plan.fault} at operation {plan.at} ({label})"
                                        f" of process {process + 1}", known=self._known)  # fmt: skip
            self.judge(case)
            found = self.simulation.turns
            if plan.fault in DEATHS and len(found) > process + 1:
                self._deaths.append(Deaths(process, plan, found[process + 1]))
            yield

    def twice(self, at_most: int | None) -> Iterator[None]:
        """For each death that led to a world of its own: a second death at each turn of the recovery."""
        every = [(death, Plan(at, Fault.DIE_BEFORE)) for death in self._deaths for at in death.recovery]
        self.of_doubles = len(every)
        for death, plan in spread(every, at_most, self.seed):
            self.doubles += 1
            case = self.simulation.play(
                {death.process: death.plan, death.process + 1: plan},
                f"simulated: {death.plan.fault} at operation {death.plan.at} of process {death.process + 1}, then "
                f"{plan.fault} at operation {plan.at} of the next one",
                known=self._known,
            )
            self.judge(case)
            yield

    def _known(self, alike: Any) -> bool:
        if alike in self._alike:
            return True
        self._alike.add(alike)
        return False


def spread(every: list[T], at_most: int | None, seed: int) -> list[T]:
    """All of them, or so many at about equal distances; `seed` chooses with which one to begin."""
    count = len(every)
    if at_most is None or count <= at_most:
        return every
    return [every[at] for at in sorted((seed + number * count // at_most) % count for number in range(at_most))]


@contextlib.contextmanager
def _nowhere(folder: Path) -> Iterator[None]:
    """Work in a new folder that is gone afterwards."""
    before, place = os.getcwd(), tempfile.mkdtemp(dir=folder)
    os.chdir(place)
    try:
        yield
    finally:
        os.chdir(before)
        shutil.rmtree(place, ignore_errors=True)
