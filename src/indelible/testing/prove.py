"""A proof on the user's own agent: it dies everywhere, and the report says what was lost and what was done twice.

Owns: the order of the parts of a proof, its size, and its report.
Must never: run the agent on a store, or in a world, that is anybody's own.
Invariant: a proof that holds has tried at least one death, simulated and real, unless its `size` asks for none.

    proof = crash_everywhere("agent.py:research", "Find three suppliers")
    assert proof.holds, str(proof)

The agent finds a fake outside world (see `service`) at `INDELIBLE_WORLD`, unless `world=False`. It is started in an
empty folder, many times. Its file is run anew for each simulated process, so it must do nothing but define things.
"""

from __future__ import annotations

import gc
import os
import platform
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import apsw

from indelible import __version__
from indelible.testing.prove_evidence import Case
from indelible.testing.prove_judge import Finding, Findings, Usual, judge
from indelible.testing.prove_killed import Killing, deaths
from indelible.testing.prove_limits import limit_for
from indelible.testing.prove_person import Person
from indelible.testing.prove_simulated import Simulation, Sweep, works
from indelible.testing.prove_subject import Subject, subject_of
from indelible.testing.prove_world import Environment, Outside

__all__ = ["FULL", "QUICK", "Finding", "Proof", "Size", "crash_everywhere"]

Progress = Callable[[str, int, int], None]
"""Called with the part of the proof, how many cases of it are done, and how many there are; of the untouched run, with
the cycles it has committed so far, and 0."""
UNTOUCHED = "untouched run"
SCANT = 10
"""If less than one point in so many was tried, the report says so beside the verdict."""


class Size(NamedTuple):
    """How much is tried: at most so many points of each kind, spread evenly; None for all of them.

    random: so many runs are killed at random moments, and so many at two random points.
    within_s: a slow agent gets fewer points than that, so that each of the three kinds takes about so long, and no
        more than twice so long.
    """

    singles: int | None
    doubles: int | None
    kills: int | None
    random: int
    jobs: int = 2
    within_s: float | None = None

    def for_cases_of(self, simulated_s: float, real_s: float) -> Size:
        """This size for an agent whose untouched run takes so long."""
        if self.within_s is None:
            return self
        simulated = _limit(self.within_s / (1.5 * simulated_s))
        real = _limit(self.within_s * self.jobs / (2.5 * real_s))
        random = None if self.random <= real // 4 else max(1, real // 4)
        return self._replace(
            singles=_least(self.singles, simulated), doubles=_least(self.doubles, simulated),
            kills=_least(self.kills, real), random=self.random if random is None else random,
        )  # fmt: skip


def _limit(cases: float) -> int:
    return max(8, int(cases))


def _least(given: int | None, limit: int) -> int:
    return limit if given is None else min(given, limit)


QUICK = Size(singles=250, doubles=120, kills=80, random=8, within_s=7.0)
FULL = Size(singles=None, doubles=None, kills=None, random=100)
NOT_IN_THE_WORLD = (
    "the agent did nothing in the fake world, so a deed done elsewhere is seen only if its action is declared "
    "irreversible: outside an @action, or as a repeatable one, it may be done twice unseen"
)
ENOUGH_ENDLESS = 5
"""After so many cases that do not come to an end the others of that part are left out: each takes its full time."""


@dataclass
class Proof:
    """What was tried, and what was found. `findings` is empty if all holds.

    simulated, doubles: points tried, of `simulated_of` and `doubles_of` that there are.
    kills: SIGKILLs that struck. deeds: calls of idempotent and irreversible actions that were really performed.
    repeats, lost: cases in which a deed was done again, or a result was gone.
    notes: what could not be judged, and why.
    """

    agent: str
    objective: str
    seed: int
    mode: str
    versions: dict[str, str]
    simulated: int = 0
    simulated_of: int = 0
    doubles: int = 0
    doubles_of: int = 0
    kill_points: int = 0
    kills: int = 0
    cases: int = 0
    processes: int = 0
    deeds: int = 0
    entries: int = 0
    repeats: int = 0
    lost: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """True if nothing was found."""
        return not self.findings

    @property
    def verdict(self) -> str:
        """The proof in a few words."""
        return "holds" if self.holds else f"{len(self.findings)} found"

    def rows(self) -> Iterator[tuple[str, str]]:
        """The report as a table of two columns."""
        yield "agent", self.agent
        yield "objective", self.objective
        yield "versions", ", ".join(f"{name} {version}" for name, version in self.versions.items())
        yield "mode, seed", f"{self.mode}, {self.seed}"
        yield "simulated points", f"{self.simulated:,} of {self.simulated_of:,}"
        yield "double deaths", f"{self.doubles:,} of {self.doubles_of:,}"
        yield "real kills", f"{self.kills:,} (SIGKILL; {self.kill_points:,} points in the run)"
        yield "runs, processes", f"{self.cases:,}, {self.processes:,}"
        yield "deeds performed", f"{self.deeds:,} ({self.entries:,} entries in the world)"
        yield "repeated", f"{self.repeats:,}"
        yield "lost", f"{self.lost:,}"
        yield "time", f"{self.seconds:.1f} s"
        yield "verdict", self.verdict + self._scant()

    def _scant(self) -> str:
        if self.mode == "full" or self.simulated * SCANT >= self.simulated_of:
            return ""
        return f" ({self.simulated:,} of {self.simulated_of:,} simulated points: --full tries all)"

    def to_json(self) -> dict[str, Any]:
        """The report as JSON data."""
        return {**asdict(self), "holds": self.holds, "verdict": self.verdict}

    def __str__(self) -> str:
        lines = [f"{name:<16}  {value}" for name, value in self.rows()]
        for found in self.findings:
            lines += [f"found: {found.sentence}", f"  {found.cases} cases; the first: {found.where}"]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def crash_everywhere(
    agent: Any,
    objective: str,
    *,
    quick: bool = True,
    seed: int = 1,
    world: bool = True,
    answer: str = "yes",
    size: Size | None = None,
    progress: Progress | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Proof:
    """Let `agent` (or `"agent.py:name"`) die everywhere, and report.

    quick: try points at even distances, in seconds; False tries all. `size` sets it in detail.
    seed: chooses where the distances begin, and what is random; the same seed tries the same again.
    world: start the fake outside world and name it to the agent in `INDELIBLE_WORLD`.
    answer: what the person says to every question of the agent.
    folder: where the cases work; a temporary one if None.

    Nothing of it is left when it returns. Raises `Misuse` if the agent cannot be loaded, or does not come to an end
    without any fault.
    """
    subject = subject_of(agent, objective)
    chosen = size or (QUICK if quick else FULL)
    versions = {"indelible": __version__, "python": platform.python_version(), "sqlite": apsw.sqlite_lib_version()}
    mode = "quick" if quick else "full"
    proof = Proof(f"{os.path.basename(subject.path)}:{subject.name}", objective, seed, mode, versions)
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="indelible-prove-", dir=folder) as place:
        _Proving(proof, subject, chosen, Path(place), Person(answer), world, progress or _silent).run()
    proof.seconds = monotonic() - began
    return proof


@contextmanager
def _left_open() -> Iterator[None]:
    """A simulated death closes nothing and awaits nothing, as a real one; Python need not complain of that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        try:
            yield
        finally:
            gc.collect()


def _silent(_part: str, _done: int, _of: int) -> None:
    pass


class _Proving:
    def __init__(
        self, proof: Proof, subject: Subject, size: Size, folder: Path, person: Person, world: bool, progress: Progress
    ) -> None:
        self.proof, self.subject, self.size, self.folder = proof, subject, size, folder
        self.person, self.world, self.progress = person, world, progress
        self.findings = Findings()
        self.endless = 0
        self.usual: Usual | None = None

    def run(self) -> None:
        real = Killing(self.subject, self.folder, self.person, with_world=self.world, jobs=self.size.jobs)
        with real:
            works(real.untouched(self.tell))  # what is loaded only once, is now
            began = monotonic()
            untouched = real.untouched(self.tell)
            took = monotonic() - began
            real.limit_s = limit_for(took)
            self.simulate(untouched, took)
            self.kill(real, untouched.points, took)
        proof, found = self.proof, self.findings
        proof.processes += real.processes
        proof.findings = list(found.all.values())
        proof.repeats, proof.lost = found.count("repeated"), found.count("lost")

    def tell(self, cycles: int) -> None:
        """How far the untouched run has come; nobody knows yet how far it goes."""
        self.progress(UNTOUCHED, cycles, 0)

    def simulate(self, untouched: Case, took: float) -> None:
        """The untouched runs, and everything that can go wrong in a simulated process."""
        proof = self.proof
        with ExitStack() as stack:
            stack.enter_context(_left_open())
            outside = None
            if self.world:
                outside = stack.enter_context(Outside(self.folder / "simulated"))
                stack.enter_context(Environment(outside.url))
            simulation = Simulation(self.subject, outside, self.folder, self.person)
            simulation.limit_s = limit_for(took)
            sweep = Sweep(simulation, self.judge, proof.seed)
            first = sweep.untouched()
            operations = simulation.operations
            self.person.usual = first
            began = monotonic()
            second = sweep.untouched(skipped=6)
            size = self.size = self.size.for_cases_of(monotonic() - began, took)
            self.usual = Usual.of([first, second, works(untouched)])
            proof.notes += self.usual.notes()
            if self.world and not untouched.entries:
                proof.notes.append(NOT_IN_THE_WORLD)
            for _ in self.in_time(sweep.singles(operations, size.singles)):
                proof.simulated, proof.simulated_of = sweep.points, sweep.of_points
                self.progress("simulated", sweep.points, min(sweep.of_points, size.singles or sweep.of_points))
            for _ in self.in_time(sweep.twice(size.doubles)):
                proof.doubles = sweep.doubles
                self.progress("double deaths", sweep.doubles, min(sweep.of_doubles, size.doubles or sweep.of_doubles))
            proof.doubles_of = sweep.of_doubles
            proof.processes += simulation.processes

    def kill(self, real: Killing, points: int, took: float) -> None:
        """Everything that SIGKILL can do to a real one."""
        size, proof = self.size, self.proof
        proof.kill_points = points
        planned = deaths(points, at_most=size.kills, random=size.random, longest_s=took, seed=proof.seed)
        for number, _ in enumerate(self.in_time(real.play_all(planned, self.judge)), 1):
            self.progress("real kills", number, len(planned))
        proof.kills = real.kills

    def in_time(self, cases: Iterator[None]) -> Iterator[None]:
        """The cases, as long as there is time for them, and they come to an end."""
        began, within_s, before = monotonic(), self.size.within_s, self.endless
        for case in cases:
            yield case
            if within_s is not None and monotonic() - began > 2 * within_s:
                return
            if self.endless - before >= ENOUGH_ENDLESS:
                return

    def judge(self, case: Case) -> None:
        assert self.usual is not None
        self.proof.cases += 1
        self.endless += bool(case.endless)
        self.proof.deeds += case.deeds
        self.proof.entries += len(case.entries)
        self.findings.add(case, judge(case, self.usual))
