"""The real half of a proof: real processes on a real file, sent SIGKILL at every point in turn.

Owns: the processes, the folders of the cases, and the order in which points are tried.
Must never: clean up after a death before the next process has started on what it left.
Invariant: a case is named by where its processes were killed, so it can be played again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from time import monotonic

from indelible.core.record import FAILED, FINISHED, Record
from indelible.drive.clock import seeded
from indelible.errors import IndelibleError, Misuse
from indelible.runtime.labels import about_of
from indelible.runtime.runstore import open_runs
from indelible.runtime.verify import verify
from indelible.testing.checkers import Journal
from indelible.testing.child import RETURNED
from indelible.testing.prove_child import ERRORS, PERFORMED, POINTS, STORE, Request
from indelible.testing.prove_evidence import RUN_ID, Case, Life, Seen
from indelible.testing.prove_limits import UNTOUCHED_S, gets_nowhere, still_running
from indelible.testing.prove_person import Person
from indelible.testing.prove_simulated import spread
from indelible.testing.prove_subject import Subject
from indelible.testing.prove_world import VARIABLE, Outside

KILLED = -9
BEYOND = 2
"""So many points after the last one of the untouched run are tried as well; nothing is killed there, as a rule."""
BETWEEN_LOOKS_S = 2.0
BEFORE, AFTER = "before ", "after "
WRITES = ("append", "claim", "put_snapshot", "delete")


@dataclass(frozen=True)
class Death:
    """Where the processes of a case are killed: at points counted over the whole case, or after some seconds."""

    at: tuple[int, ...] = ()
    after_s: float = 0.0

    @property
    def name(self) -> str:
        """As the name of a folder."""
        return f"after-{self.after_s:.4f}" if self.after_s else "-".join(map(str, self.at)) or "untouched"


class Nursery:
    """A warm process that forks the ones to be killed, and the world in which they act."""

    def __init__(self, subject: Subject, outside: Outside | None, errors: Path) -> None:
        self.outside = outside
        environment = {**os.environ, **({VARIABLE: outside.url} if outside else {})}
        command = [sys.executable, "-m", "indelible.testing.prove_child", subject.reference, subject.objective]
        self._errors = errors
        with errors.open("wb") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True, env=environment
            )

    def run(self, request: Request) -> int:
        """Run a process to its end; its exit status, or minus the signal that ended it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer.strip().lstrip("-").isdigit():
            said = self._errors.read_text(errors="replace").strip().splitlines()
            raise Misuse(f"the agent's file cannot be loaded: {said[-1] if said else answer!r}",
                         hint="import it by itself first: it must do nothing but define things")  # fmt: skip
        return int(answer)

    def close(self) -> None:
        """End it."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait()


class Killing:
    """Cases of one agent in real processes, below `folder`. Use it in a `with` block."""

    def __init__(self, subject: Subject, folder: Path, person: Person, *, with_world: bool, jobs: int) -> None:
        self.subject, self.folder, self.person, self.with_world, self.jobs = subject, folder, person, with_world, jobs
        self.limit_s = UNTOUCHED_S
        """A process that lives longer hangs, and is killed."""
        self.processes = 0
        self.kills = 0
        self._free: SimpleQueue[Nursery] = SimpleQueue()
        self._stack = ExitStack()
        self._looking = Lock()

    def __enter__(self) -> Killing:
        with ExitStack() as stack:
            for number in range(self.jobs):
                place = self.folder / f"job-{number}"
                place.mkdir(parents=True, exist_ok=True)
                outside = stack.enter_context(Outside(place)) if self.with_world else None
                nursery = Nursery(self.subject, outside, place / "errors.txt")
                stack.callback(nursery.close)
                self._free.put(nursery)
            self._pool = stack.enter_context(ThreadPoolExecutor(self.jobs))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def untouched(self, tell: Callable[[int], None]) -> Case:
        """Play the run without any death; `tell` is given, now and then, how many cycles it has committed so far."""
        going = self._pool.submit(self.play, Death())
        while not wait([going], BETWEEN_LOOKS_S).done:
            with self._looking:
                cycles = _committed(self.folder / Death().name / STORE)
            tell(cycles)
        return going.result()

    def play_all(self, deaths: list[Death], judge: Callable[[Case], None]) -> Iterator[None]:
        """Play the cases, several at a time."""
        for case in self._pool.map(self.play, deaths):
            self.processes += len(case.lives)
            self.kills += sum(life.killed for life in case.lives)
            judge(case)
            yield

    def play(self, death: Death) -> Case:
        """Play one case to its end."""
        nursery = self._free.get()
        place = self.folder / death.name
        place.mkdir()
        try:
            return self._play(death, place, nursery)
        finally:
            self._free.put(nursery)
            with self._looking:  # whoever looks into a store may make files beside it
                shutil.rmtree(place)

    def _play(self, death: Death, place: Path, nursery: Nursery) -> Case:
        where = f"a process killed after {death.after_s:.4f} s" if death.after_s else "untouched"
        case = Case(where)
        if nursery.outside is not None:
            nursery.outside.book.clear()
        while not case.endless:
            planned_s = 0.0 if case.lives else death.after_s
            request: Request = {"folder": str(place), "kill_at": list(death.at),
                                "kill_after_s": planned_s or self.limit_s}  # fmt: skip
            began = monotonic()
            life = self._live(case, place, nursery, request)
            case.lives.append(life)
            if life.killed and not planned_s and monotonic() - began >= self.limit_s:
                case.endless = still_running(self.limit_s)
                break
            if life.error or (life.journal is not None and life.journal.record.status in (FINISHED, FAILED)):
                break
            if life.journal is not None and life.journal.record.open_wait is not None:
                with open_runs(str(place / STORE)) as runs:
                    self.person.attend(runs, life.journal.record, case)
            case.endless = gets_nowhere(case)
        points = _lines(place / POINTS)
        case.points = len(points)
        if death.at:
            named = ", ".join(f"{at} ({points[at - 1]})" for at in death.at if at <= len(points))
            case.where = f"killed at point {named}" if named else "untouched"
        return case

    def _live(self, case: Case, place: Path, nursery: Nursery, request: Request) -> Life:
        passed, performed = len(_lines(place / POINTS)), len(_lines(place / PERFORMED))
        book = nursery.outside.book if nursery.outside is not None else None
        if book is not None:
            book.under_way = lambda: _under_way(_lines(place / POINTS)[passed:])
        status = nursery.run(request)
        if nursery.outside is not None:
            nursery.outside.settle()
            case.entries = nursery.outside.book.entries
        life = Life(killed=status == KILLED)
        if status not in (0, KILLED):
            said = _lines(place / ERRORS)
            life.error = said[-1] if said else f"exit status {status}"
        points = _lines(place / POINTS)[passed:]
        life.began = [point.removeprefix(BEFORE) for point in points if _is_call(point, BEFORE)]
        life.again = _again(points)
        for line in _lines(place / PERFORMED)[performed:]:
            call, effect, result, matters = json.loads(line)
            life.returned.append(Seen(call, effect, bytes.fromhex(result), matters))
        matter = {seen.call for seen in life.returned if seen.matters}
        life.handed = matter & {point.removeprefix(RETURNED) for point in points if point.startswith(RETURNED)}
        try:
            life.journal = self._inspect(case, place)
        except Misuse:
            pass  # killed while it made the store's tables: there is nothing to read yet
        except IndelibleError as error:
            case.problems.append(f"after the kill the run cannot be read: {error.what}")
        if life.killed and life.began and not life.journal:
            case.problems.append("lost: calls were made before the run was accepted")
        return life

    def _inspect(self, case: Case, place: Path) -> Journal | None:
        """Read what a process left, in every way there is."""
        if not (place / STORE).exists():
            return None
        with open_runs(str(place / STORE), readonly=True) as runs:
            if not [entry for entry in runs.entries() if entry.run_id == RUN_ID]:
                return None
            report = verify(runs, RUN_ID)
            found = Journal([event for _, event in runs.events(RUN_ID)], None, Record(""))
            case.problems += report.faults
            if report.torn or report.kept_aside:
                case.problems.append("a batch is torn, though no disk failed")
            before = next((life.journal for life in reversed(case.lives) if life.journal is not None), None)
            if before is not None and found.events[: len(before.events)] != before.events:
                case.problems.append("lost: what was durable in the journal is not there any more")
            return found._replace(record=runs.recover(RUN_ID).record)


def deaths(points: int, *, at_most: int | None, random: int, longest_s: float, seed: int) -> list[Death]:
    """Where to kill: at every point or at most so many, then two times in a run and at random moments, `random` each.

    longest_s: how long the untouched run took.
    """
    chance = seeded(f"prove {seed}".encode())
    every = spread([Death((at,)) for at in range(1, points + 1 + BEYOND)], at_most, seed)
    firsts = [chance.randrange(1, points + 1) for _ in range(random)]
    twice = [Death((at, at + 1 + chance.randrange(12))) for at in firsts]
    moments = [Death(after_s=0.001 + chance.random() * longest_s) for _ in range(random)]
    return list(dict.fromkeys([*every, *twice, *moments]))


def _is_call(point: str, side: str) -> bool:
    return point.startswith(side) and point.removeprefix(side) not in WRITES


def _again(points: list[str]) -> list[str]:
    """The calls that were made once more when their result had been given to the agent."""
    got: set[str] = set()
    found = []
    for point in points:
        if point.startswith(RETURNED):
            got.add(point.removeprefix(RETURNED))
        elif _is_call(point, BEFORE) and point.removeprefix(BEFORE) in got:
            found.append(point.removeprefix(BEFORE))
    return found


def _under_way(points: list[str]) -> tuple[str, ...]:
    going: list[str] = []
    for point in points:
        if _is_call(point, BEFORE):
            going.append(point.removeprefix(BEFORE))
        elif _is_call(point, AFTER) and point.removeprefix(AFTER) in going:
            going.remove(point.removeprefix(AFTER))
    return tuple(going)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []


def _committed(store: Path) -> int:
    """How many cycles the run in a store has committed, as its label tells; 0 if it is not there yet."""
    try:
        if store.exists():
            with open_runs(str(store), readonly=True) as runs:
                return sum(about_of(entry.label).cycle for entry in runs.entries())
    except IndelibleError:
        pass  # it is just being made
    return 0
