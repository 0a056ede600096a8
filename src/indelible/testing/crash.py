"""Real deaths: an agent in a real process on a real file, killed with SIGKILL at every point in turn.

Owns: the order in which points are tried, the person who answers, and the report.
Must never: clean up after a death, or judge; `checkers` does that.
Invariant: a case is named by the points at which its processes were killed, so it can be played again.

    report = crash.sweep(crash.Target("agent.py:research", "Find three suppliers"), "folder")
    assert not report.problems, str(report)

A point lies before and after each durable write and each call of an action (see `child`). The agent runs in a folder
of its own, with its store in `agent.db` there or wherever `Target.store` says; if it writes its deeds to
`Ledger("ledger")`, they are checked as well.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, TypeGuard

from indelible.core import events as ev
from indelible.core.record import DEEDS, FAILED, FINISHED, PARKED, Record, Wait
from indelible.drive.clock import seeded
from indelible.errors import IndelibleError, Misuse
from indelible.runtime.runstore import RunStore, open_runs
from indelible.runtime.verify import verify
from indelible.testing import checkers
from indelible.testing.checkers import Journal, Rule
from indelible.testing.child import RETURNED
from indelible.testing.ledger import Ledger
from indelible.testing.world import Deed

__all__ = ["Case", "Ledger", "Report", "Rule", "Target", "play", "sweep"]

MAX_PROCESSES = 40
WAVE = 8
KILLED = -9
Reply = Callable[[RunStore, Wait, list[Deed]], None]


def _nobody(_runs: RunStore, wait: Wait, _ledger: list[Deed]) -> None:
    raise Misuse(f"the run waits: {wait.question}", hint="crash.Target(..., reply=...)")


def _in_the_folder(place: Path) -> str:
    return str(place / "agent.db")


@dataclass(frozen=True)
class Target:
    """What is killed: the agent in `agent.py:name`, and its objective.

    rules: for each kind of deed in its ledger, what repeating it means.
    reply: the person; called when the run is parked, with the ledger that a person could look into.
    volatile: fields of the state that may differ between two runs, such as random ids.
    store: the URL of an empty store for the case that is played in this folder; asked for once per case.
    """

    agent: str
    objective: str
    run_id: str = "run"
    store: Callable[[Path], str] = _in_the_folder
    rules: Mapping[str, Rule] = field(default_factory=dict)
    reply: Reply = _nobody
    volatile: frozenset[str] = frozenset()


class Death(NamedTuple):
    """What a killed process left behind. `journal` is None if the run had not been accepted."""

    points: list[str]
    journal: Journal | None
    deeds: int

    @property
    def label(self) -> str:
        """Where it died."""
        return self.points[-1]


@dataclass
class Case:
    """One run from its start to its end, whose processes were killed at the points `kill_at`."""

    kill_at: tuple[int, ...]
    points: list[str] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    processes: int = 0
    journal: Journal | None = None
    ledger: list[Deed] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def where(self) -> str:
        """The case in words."""
        labels = [f"{at} ({self.points[at - 1]})" for at in self.kill_at if 0 < at <= len(self.points)]
        return f"killed at point {', '.join(labels)}" if labels else "untouched"


@dataclass
class Report:
    """What a sweep found. `points` counts those of the untouched run."""

    seed: int
    points: int = 0
    cases: int = 0
    kills: int = 0
    processes: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def add(self, case: Case) -> None:
        """Count one case."""
        self.cases += 1
        self.kills += len(case.deaths)
        self.processes += case.processes
        self.labels.update(death.label for death in case.deaths)
        self.problems += [f"{case.where}: {problem}" for problem in case.problems]

    def __str__(self) -> str:
        head = (
            f"{self.kills} kills in {self.cases} runs of {self.points} points, {self.processes} processes, "
            f"seed {self.seed}: {len(self.problems)} problems"
        )
        return "\n".join([head, *self.problems[:20]])


def sweep(
    target: Target, folder: str | os.PathLike[str], *, jobs: int = 2, twice: int = 0, seed: int = 1, stride: int = 1
) -> Report:
    """Kill at point 1, 2, 3, … until a run passes untouched; then `twice` runs that are killed two times.

    stride: n kills only at every n-th point.

    Points are numbered in the order in which they are reached: always the same one in a `def` agent, while an
    `async def` agent that does several things at once may reach them in another order. `seed` chooses the points of
    those killed twice. The folders of cases with problems are kept. Raises `Misuse` if the untouched run does not end.
    """
    report = Report(seed)
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        zygotes: SimpleQueue[Zygote] = SimpleQueue()
        for _ in range(jobs):
            zygotes.put(stack.enter_context(Zygote()))

        def one(kill_at: tuple[int, ...]) -> Case:
            zygote = zygotes.get()
            try:
                return play(target, folder, kill_at, zygote, untouched)
            finally:
                zygotes.put(zygote)

        def wave(kills: list[tuple[int, ...]]) -> bool:
            cases = list(pool.map(one, kills))
            for case in cases:
                report.add(case)
            return all(case.deaths for case in cases)

        untouched: Case | None = None
        untouched = one(())
        if untouched.problems:
            raise Misuse(f"the untouched run fails: {untouched.problems[0]}", hint="run the agent by itself")
        report.points = len(untouched.points)
        first = 1
        while wave([(at,) for at in range(first, first + WAVE * stride, stride)]):
            first += WAVE * stride
        random = seeded(f"crash {seed}".encode())
        firsts = [1 + random.randrange(report.points) for _ in range(twice)]
        wave([(at, at + 1 + random.randrange(12)) for at in firsts])
    return report


def play(
    target: Target,
    folder: str | os.PathLike[str],
    kill_at: tuple[int, ...],
    zygote: Zygote,
    untouched: Case | None = None,
) -> Case:
    """Play one case to its end, in a folder of its own below `folder`, and judge it against the untouched one."""
    case = Case(kill_at)
    place = Path(folder, f"{target.agent.rpartition(':')[2]}-" + ("-".join(map(str, kill_at)) or "untouched"))
    place.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(place)
    place.mkdir()
    try:
        _play(target, place, case, zygote)
    except IndelibleError as error:
        case.problems.append(str(error))
    case.points = _lines(place / "points")
    case.ledger = Ledger(place / "ledger").read()
    if case.journal is not None:
        case.problems += judge(target, case, untouched or case)
    if not case.problems:
        shutil.rmtree(place)
    return case


def _play(target: Target, place: Path, case: Case, zygote: Zygote) -> None:
    agent, colon, name = target.agent.rpartition(":")
    store = target.store(place)
    arguments = ["points", ",".join(map(str, case.kill_at)) or "0", os.path.abspath(agent) + colon + name,
                 store, target.run_id, target.objective]  # fmt: skip
    while True:
        case.processes += 1
        if case.processes > MAX_PROCESSES:
            case.problems.append("the run does not come to an end")
            return
        status = zygote.run(str(place), arguments)
        journal = inspect(target, store, case)
        ledger = Ledger(place / "ledger").read()
        if status == KILLED:
            case.deaths.append(Death(_lines(place / "points"), journal, len(ledger)))
        elif status != 0:
            case.problems.append(f"a process ended with {status}: {(place / 'errors.txt').read_text()[-2000:]}")
            return
        elif journal is None or journal.record.status not in (PARKED, FINISHED, FAILED):
            case.problems.append("a process ended well, and left a run that is neither over nor waiting")
            return
        elif journal.record.open_wait is None:
            case.journal = journal
            return
        else:
            with open_runs(store) as runs:
                target.reply(runs, journal.record.open_wait, ledger)


def inspect(target: Target, store: str, case: Case) -> Journal | None:
    """Read what a process left, in every way there is; None if it left no run. Raises what is wrong."""
    if os.path.isabs(store) and not os.path.exists(store):
        return None
    with open_runs(store, readonly=True) as runs:
        if not [entry for entry in runs.entries() if entry.run_id == target.run_id]:
            return None
        report = verify(runs, target.run_id)
        found = Journal([event for _, event in runs.events(target.run_id)], None, Record(""))
        recovered = runs.recover(target.run_id).record
        case.problems += report.faults
        if report.torn or report.kept_aside:
            case.problems.append("a batch is torn, though no disk failed")
        if report.events != len(found.events):
            case.problems.append(f"{len(found.events)} events were read, {report.events} verified")
        before = case.deaths[-1].journal if case.deaths else None
        if before is not None and found.events[: len(before.events)] != before.events:
            case.problems.append("lost: what was durable in the journal is not there any more")
        return found._replace(record=recovered)


def judge(target: Target, case: Case, untouched: Case) -> Iterator[str]:
    """What is wrong with a case that came to its end."""
    journal, expected, rules = case.journal, untouched.journal, target.rules
    assert journal is not None
    assert expected is not None
    record, wanted = journal.record, expected.record
    for death in case.deaths:
        yield from kept(death, journal)
        if death.journal is not None:
            yield from checkers.paid_once(death.journal, case.ledger[death.deeds :], rules)
    if (record.status, record.result, record.error) != (wanted.status, wanted.result, wanted.error):
        yield f"the run ended otherwise: {record.status}, and untouched {wanted.status}"
    yield from checkers.same_state(record.doc, wanted.doc, target.volatile)
    yield from checkers.conserved(record.doc)
    yield from checkers.done_once(case.ledger, untouched.ledger, rules, set(), journal)
    yield from checkers.deeds_match(journal, case.ledger, rules, set())
    yield from checkers.keys_kept(journal, case.ledger)
    yield from checkers.values_kept(journal)
    yield from checkers.waits_answered(journal)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def kept(death: Death, final: Journal) -> Iterator[str]:
    """What was handed to the agent, and had cost something or was a deed, was in the journal when the process died."""
    returned = {point.removeprefix(RETURNED) for point in death.points if point.startswith(RETURNED)}
    found = {event.call for event in death.journal.events if _is_outcome(event)} if death.journal else set()
    for event in final.events:
        if not isinstance(event, ev.ActionCompleted) or event.call not in returned - found:
            continue
        if event.effect in DEEDS or event.usage:
            yield f"lost: the result of {event.name} was returned to the agent, and was not in the journal"


def _is_outcome(event: ev.Event) -> TypeGuard[ev.ActionCompleted | ev.ActionSettled]:
    return isinstance(event, ev.ActionCompleted | ev.ActionSettled)


class Zygote:
    """A warm process that forks one to be killed for each case. Not for two threads at once."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "indelible.testing.child", "serve"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, folder: str, arguments: list[str]) -> int:
        """Run a process in `folder` to its end; its exit status, or minus the signal that ended it."""
        listening, answering = self._process.stdin, self._process.stdout
        assert listening is not None
        assert answering is not None
        listening.write(json.dumps({"folder": folder, "arguments": arguments}) + "\n")
        listening.flush()
        answer = answering.readline()
        if not answer:
            raise Misuse(
                "the program to be killed cannot be loaded; see above", hint="python -m indelible.testing.child"
            )
        return int(answer)

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
