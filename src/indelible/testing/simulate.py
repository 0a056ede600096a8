"""The sweep: every operation of a run goes wrong in every way, and the run must still end well.

Owns: the order in which faults are tried, the person who answers, and the report.
Must never: wait on the machine's clock, or judge; `checkers` does that.
Invariant: a world that was recovered once is not recovered again, but each point that led to it counts.

    report = simulate.sweep(simulate.Workload("mine", program=lambda store: agent.run("x", store=store, run_id="run")))
    assert not report.problems, str(report)
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from indelible.core.inbox import inbox_of
from indelible.core.record import FAILED, FINISHED, INTENDED, PARKED, SETTLED_NOT, Record
from indelible.drive.clock import SystemClock
from indelible.errors import IndelibleError, LeaseLost, Misuse, StoreUnavailable
from indelible.runtime.runstore import RunStore
from indelible.stores.owner import Owner
from indelible.testing import checkers, faults
from indelible.testing.checkers import Journals, Rule
from indelible.testing.faults import DEATHS, HANGS, Fault, Plan
from indelible.testing.likeness import likeness
from indelible.testing.processes import Process, SimulatedDeath, receipt, world
from indelible.testing.world import Deed, World

__all__ = ["Fault", "Report", "Rule", "SimulatedDeath", "Workload", "sweep", "world"]

MAX_PROCESSES = 60
ANSWERS = {"ask": "yes", "approve": "yes", "diverged": "recorded"}


@dataclass(frozen=True)
class Workload:
    """What is swept. `program` starts or resumes the run in one process; it may be a coroutine function.

    rules: for each kind of deed the program does, what repeating it means.
    probed: names of the actions whose probe can always tell; nobody may be asked about them.
    must_do: deeds, as (kind, what), that the run has to do when nothing goes wrong.
    volatile: fields of the state that may differ between two runs, such as random ids.
    answers: what the person says, by the kind of what the run waits for.
    retried: True if the program takes up a run that has failed, which is then not its end.
    """

    name: str
    program: Callable[[RunStore], Any]
    rules: Mapping[str, Rule] = field(default_factory=dict)
    probed: frozenset[str] = frozenset()
    must_do: frozenset[tuple[str, str]] = frozenset()
    run_id: str = "run"
    volatile: frozenset[str] = frozenset()
    answers: Mapping[str, Any] = field(default_factory=lambda: ANSWERS)
    retried: bool = False


@dataclass
class Report:
    """What a sweep tried, and what it found. `problems` must be empty."""

    workload: str
    points: int = 0
    double_points: int = 0
    worlds: int = 0
    processes: int = 0
    deeds: int = 0
    repeats: int = 0
    lost: int = 0
    by_fault: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        parts = ", ".join(f"{fault}: {count}" for fault, count in self.by_fault.items())
        lines = [
            f"{self.workload}: simulated points: {self.points:,} (double: {self.double_points:,}), "
            f"{self.worlds:,} different worlds, {self.processes:,} processes, {self.deeds:,} deeds, "
            f"{self.repeats} repeated, {self.lost} lost, {len(self.problems)} problems",
            f"  {parts}",
            *(f"  {problem}" for problem in self.problems[:20]),
        ]
        return "\n".join(lines)


class _Ended(NamedTuple):
    """How a process ended, and how the run stands then."""

    process: Process
    error: BaseException | None


class _Base(NamedTuple):
    """A process of the untouched run: the world it found, and what it did there."""

    world: World
    operations: list[faults.Operation]


def sweep(
    workload: Workload,
    *,
    faults: tuple[Fault, ...] = tuple(Fault),
    double: bool = True,
    stride: int = 1,
    exact: bool = False,
    stop_early: bool = False,
) -> Report:
    """Run the workload untouched; then with each fault at each operation; then with a second death in each recovery.

    stride: n tries only every n-th point of a second death.
    exact: after a second death recover every world, even one that differs only in times, keys and
        seqs from one that was recovered already. That is what takes long.
    stop_early: end with the first problem.
    """
    return _Sweep(workload, faults, double, stride, exact, stop_early).run()


class _Sweep:
    def __init__(
        self, workload: Workload, kinds: tuple[Fault, ...], double: bool, stride: int, exact: bool, stop_early: bool
    ) -> None:
        self.workload = workload
        self.kinds = kinds
        self.double = double
        self.stride = stride
        self.exact = exact
        self.stop_early = stop_early
        self.report = Report(workload.name)
        self.journals = Journals(workload.run_id)
        self.expected: World | None = None
        self._verdicts: dict[Any, list[str]] = {}
        self._doubled: dict[Any, int] = {}
        self._alike: set[Any] = set()
        self._read: set[Any] = set()
        self._fenced_at = -1

    def run(self) -> Report:
        bases = list(self._untouched())
        for plan, base in ((Plan(n, f), b) for b in bases for n, o in enumerate(b.operations) for f in o.faults):
            if self.stop_early and self.report.problems:
                break
            if plan.fault in self.kinds:
                self._single(base, plan)
        self.report.worlds = len(self._verdicts)
        return self.report

    def _new_world(self) -> World:
        return World()

    def _untouched(self) -> Iterator[_Base]:
        world = self._new_world()
        problems: list[str] = []
        while not self._is_over(world):
            before = world.copy()
            ended = self._process(world, None)
            problems += self._judge(before, world, ended)
            if ended.error is not None or world.processes >= MAX_PROCESSES:
                raise Misuse(
                    f"workload {self.workload.name} does not end by itself; process {world.processes} ended with "
                    f"{type(ended.error).__name__}: {ended.error}",
                    hint="make the program end without any fault first",
                ) from ended.error
            yield _Base(before, ended.process.operations)
            self._attend(world)
        self.expected = world
        problems += [*self._judge_end(world), *checkers.all_done(world.ledger, self.workload.must_do)]
        self._note(problems, "untouched")

    def _single(self, base: _Base, plan: Plan) -> None:
        self.report.points += 1
        self.report.by_fault[plan.fault] += 1
        world = base.world.copy()
        before = world.copy()
        where = f"process {world.processes + 1}, operation {plan.at} ({base.operations[plan.at].label}), {plan.fault}"
        problems: list[str] = []
        self._fenced_at = -1
        ended = self._process(world, plan, problems)
        problems += self._judge(before, world, ended)
        first = world.copy() if self.double and plan.fault in DEATHS else None
        exactly = self.exact or plan.fault in DEATHS
        self._note(problems + (self._finish(world) if exactly else self._recover(before, world)), where)
        if first is not None:
            self.report.double_points += self._deaths(first, where)

    def _deaths(self, world: World, where: str) -> int:
        """Let the recovery of `world` die at each of its operations; returns how many points that makes.

        A death is a copy of the world as it was at that moment: nothing of the process reaches it any more.
        """
        if self._is_over(world):
            return 0
        self._attend(world)
        alike = self._likeness(world)
        if alike in self._doubled:
            return self._doubled[alike]
        moments: list[tuple[int, World]] = []
        last = -1

        def watch(process: Process) -> None:
            nonlocal last
            number = len(process.operations)
            if process.world.changes != last and number % self.stride == 0:
                last = process.world.changes
                moments.append((number, process.world.copy()))

        before = world.copy()
        labels = self._process(world, None, watch=watch).process.operations
        for number, moment in moments:
            at = f"{where}; then process {moment.processes} died at operation {number} ({labels[number].label})"
            self._note(self._recover(before, moment), at)
        self._doubled[alike] = 2 * len(labels) // self.stride + self._deaths(world, where)
        return self._doubled[alike]

    def _recover(self, before: World, moment: World) -> list[str]:
        """Judge a world, and what becomes of it unless that is known of one like it."""
        alike = self._likeness(moment)
        if alike in self._alike:
            return []
        self._alike.add(alike)
        return self._judge_store(before, moment) + self._finish(moment)

    def _likeness(self, world: World) -> Any:
        if self.exact:
            return world.fingerprint(self.workload.run_id)
        return likeness(world, self.journals.read(world), self.workload.run_id, self.workload.volatile)

    def _finish(self, world: World) -> list[str]:
        """Restart the run in `world` until it ends, and judge; a world that was seen before is not run again."""
        path = []
        problems: list[str] = []
        for _ in range(MAX_PROCESSES):
            state = world.fingerprint(self.workload.run_id)
            if state in self._verdicts:
                problems = problems + self._verdicts[state]
                break
            path.append((state, len(problems)))
            if self._is_over(world):
                problems += self._judge_end(world)
                break
            self._attend(world)
            before = world.copy()
            ended = self._process(world, None)
            problems += self._judge(before, world, ended)
        else:
            problems.append(f"the run does not end: after {MAX_PROCESSES} processes it is {self._status(world)}")
        for state, known in path:
            self._verdicts[state] = problems[known:]
        return problems

    def _process(
        self, world: World, plan: Plan | None, problems: list[str] | None = None,
        watch: Callable[[Process], None] | None = None,
    ) -> _Ended:  # fmt: skip
        self.report.processes += 1
        process = Process(world, plan, watch)
        process.hang = lambda hung: self._hang(hung, problems if problems is not None else [])
        try:
            process.run(self.workload.program)
        except BaseException as error:
            return _Ended(process, error)
        return _Ended(process, None)

    def _hang(self, hung: Process, problems: list[str]) -> None:
        """While a process hangs its lease runs out, and others claim the run, and maybe end it."""
        world = hung.world
        if self._is_over(world):
            return
        told = checkers.stories(self.journals.read(world).events).values()
        world.late = {story.key for story in told if story.status in (INTENDED, SETTLED_NOT)}
        world.expire_leases()
        if hung.plan is not None and hung.plan.fault is Fault.FENCED_OFF:
            world.store.claim(self.workload.run_id, Owner.here("nobody"), 1.0)
            world.changes += 1
            if any(operation.label == "store claim" for operation in hung.operations[:-1]):
                self._fenced_at = self._head(world)
            return
        started = world.processes

        def others() -> None:
            for _ in range(MAX_PROCESSES):
                if self._is_over(world):
                    return
                if world.processes > started:
                    self._attend(world)
                before = world.copy()
                problems.extend(self._judge(before, world, self._process(world, None)))
            problems.append("the run does not end once it is taken over")

        thread = threading.Thread(target=others)
        thread.start()
        thread.join()

    def _judge(self, before: World, after: World, ended: _Ended) -> list[str]:
        problems = self._judge_store(before, after)
        process, error = ended
        if error is not None and not process.dead:
            # An ordinary error is the program's own affair; it is started again.
            ours = isinstance(error, IndelibleError) and not isinstance(error, StoreUnavailable | LeaseLost)
            hung = process.plan is not None and process.plan.fault in HANGS
            if process.plan is None or (ours and not hung) or (isinstance(error, LeaseLost) and not hung):
                problems.append(f"the process ended with {type(error).__name__}: {error}")
        if process.plan is not None and process.plan.fault in HANGS:
            if process.plan.fault is Fault.FENCED_OFF and self._fenced_at >= 0:
                problems += checkers.not_written(after, self.workload.run_id, self._fenced_at)
            return problems
        if error is None and process.opened and process.opened[-1]._live is not None:
            live = process.opened[-1]._live.record
            problems += checkers.readable(self.journals.read(after), live)
        return problems

    def _judge_store(self, before: World, after: World) -> list[str]:
        run_id = self.workload.run_id
        problems = list(checkers.grown(before, after, run_id))
        try:
            journal, old = self.journals.read(after), self.journals.read(before)
            at = (journal.chain, after.store.get_snapshot(run_id, checkers.FINAL))
            if journal.events and at not in self._read:
                self._read.add(at)
                found = self._person(after).recover(run_id)
                problems += [*checkers.readable(journal, found.record), *found.notices]
        except IndelibleError as error:
            return [*problems, checkers.outcome_of_open(error)]
        done = [deed for deed in after.ledger[len(before.ledger) :] if deed.process == before.processes + 1]
        problems += checkers.kept(after.seen, journal)
        problems += checkers.paid_once(old, done, self.workload.rules)
        return problems

    def _judge_end(self, world: World) -> list[str]:
        assert self.expected is not None
        rules, ledger = self.workload.rules, world.ledger
        journal = self.journals.read(world)
        end, wanted = journal.record, self.journals.read(self.expected).record
        self.report.deeds += len(ledger)
        problems = [
            *checkers.keys_kept(journal, ledger),
            *checkers.deeds_match(journal, ledger, rules, world.late),
            *checkers.done_once(ledger, self.expected.ledger, rules, world.late, journal),
            *checkers.same_state(end.doc, wanted.doc, self.workload.volatile),
            *checkers.conserved(end.doc),
            *checkers.values_kept(journal),
            *checkers.waits_answered(journal),
            *checkers.budget_kept(journal),
        ]
        if end.status != wanted.status or end.result != wanted.result:
            problems.append(f"the run {end.status} with another result than without the crash")
        return problems

    def _head(self, world: World) -> int:
        return max((batch.last_seq for batch in world.store.read(self.workload.run_id)), default=0)

    def _status(self, world: World) -> str:
        return self._record(world).status

    def _record(self, world: World) -> Record:
        return self.journals.read(world).record

    def _is_over(self, world: World) -> bool:
        return self._record(world).status in ((FINISHED,) if self.workload.retried else (FINISHED, FAILED))

    def _person(self, world: World) -> RunStore:
        return RunStore(world.store, SystemClock())

    def _attend(self, world: World) -> None:
        """A person looks at what waits, and answers truly."""
        record = self._record(world)
        wait = record.open_wait
        if record.status != PARKED or wait is None or wait.wake_at:
            return
        if self._is_answered(world, record):
            return
        self.report.waits[wait.kind] += 1
        person, run_id = self._person(world), self.workload.run_id
        if wait.kind != "doubt":
            person.answer(run_id, self.workload.answers[wait.kind])
            return
        call = next(call for call in record.in_doubt() if wait.wait == f"doubt:{call.call}")
        if call.name in self.workload.probed and not world.blind:
            self._note([f"a person was asked about {call.name}, whose probe can tell"], f"process {world.processes}")
        done: Deed | None = next((deed for deed in world.ledger if deed.key == call.key), None)
        person.settle(run_id, call.call, happened=done is not None, result=done and receipt(done.kind, done.what))

    def _is_answered(self, world: World, record: Record) -> bool:
        """True if a message lies in the inbox that no process has taken yet."""
        batches = list(world.store.read(inbox_of(self.workload.run_id)))
        return bool(batches) and batches[-1].last_seq > record.inbox_seq

    def _note(self, problems: list[str], where: str) -> None:
        for problem in problems:
            self.report.repeats += problem.startswith("repeated")
            self.report.lost += problem.startswith("lost")
            self.report.problems.append(f"{where}: {problem}")
