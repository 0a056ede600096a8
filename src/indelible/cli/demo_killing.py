"""When the processes of the demonstration die, and what is known at each death.

Owns: choosing the moments from a seed, carrying them out, and the lines that are shown meanwhile.
Must never: describe a kill by what was intended; where it struck is read from the call log and the store.
Invariant: every process but the last is ended by SIGKILL, and the last one by reaching the agent's end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol

from indelible.cli.demo_process import GONE, Process, command
from indelible.cli.demo_room import Paid, Room, read_calls
from indelible.drive.clock import Random

IN_CALL, BETWEEN, HELD = "in a model call", "between two calls", "between the delivery and its record"


@dataclass(frozen=True)
class Moment:
    """When to kill: in the model call of that number (from 1), or so many events behind it; or behind the delivery."""

    where: str
    call: int = 0
    fraction: float = 0.0
    events: int = 0


@dataclass(frozen=True)
class Standing:
    """What a dead process left behind, read from its store."""

    cycle: int
    waiting: int
    at: str
    """The last thing that is durable, for people."""
    unrecorded: bool = False
    """True if a delivery that was made would not be known as made."""
    kept: frozenset[str] = frozenset()
    """The calls whose answers are durable."""
    usable: int = 0
    """How many of these belong to the cycle that is open."""


@dataclass(frozen=True)
class Kill:
    """One SIGKILL, and what was found after it."""

    process: int
    where: str
    standing: Standing
    mails: int


class Subject(Protocol):
    """The agent that is killed: how its processes are started, and what they left behind."""

    module: str

    def standing(self, room: Room) -> Standing:
        """What a new process would start from."""
        ...

    def resumed(self, standing: Standing) -> str:
        """What a new process has found, in a few words."""
        ...


@dataclass
class Course:
    """How a run went."""

    room: Room
    calls: list[Paid]
    kills: list[Kill]
    processes: int
    took_s: float
    saved_bytes: int = 0
    up_s: list[float] = field(default_factory=list)


def choose(seed: int, kills: int, calls: int) -> list[Moment]:
    """The moments for a run that makes that many model calls, in the order in which they come.

    The last one is behind the delivery. The others are spread over the run; two fall into the same call only if
    there are more kills than calls.
    """
    chance = Random(seed)
    wanted = kills - 1
    numbers = [chance.randint(1, calls) for _ in range(max(0, wanted - calls))]
    numbers = sorted(numbers + chance.sample(range(1, calls + 1), min(wanted, calls)))
    moments = []
    for at, number in enumerate(numbers):
        again = at + 1 < len(numbers) and numbers[at + 1] == number
        where = IN_CALL if again or chance.random() < 0.6 else BETWEEN
        moments.append(Moment(where, number, chance.uniform(0.05, 0.95), chance.randint(1, 2)))
    return [*moments, Moment(HELD)]


class Runner:
    """Runs one agent to its end, by as many processes as it takes."""

    def __init__(
        self, subject: Subject, room: Room, given: Mapping[str, str | None], tell: Callable[[str], None],
        tick: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._subject = subject
        self._room = room
        self._given = given
        self._tell = tell
        self._tick = tick
        self._kills: list[Kill] = []
        self._processes = 0
        self._numbers: dict[str, int] = {}
        self._saved_bytes = 0
        self._up_s: list[float] = []

    def run(self, moments: list[Moment], usual_s: list[float]) -> Course:
        """To the agent's end, with a kill at each moment. `usual_s` is what each model call takes."""
        began = perf_counter()
        for number, moment in enumerate(moments, 1):
            with self._start("behind" if moment.where == HELD else "before") as process:
                if not self._until(process, moment) or not self._wait(process, moment, usual_s):
                    break
                if not process.kill():
                    break
                self._struck(process, f"kill {number} of {len(moments)}")
        with self._start(None) as process:
            last = GONE
            while (report := process.report() or GONE) is not GONE:
                self._take(report)
                last = report
            process.must_have_finished(last)
        self._tick("")
        return Course(self._room, read_calls(self._room), self._kills, self._processes, perf_counter() - began,
                      self._saved_bytes, self._up_s)  # fmt: skip

    def _start(self, hold: str | None) -> Process:
        given = self._given if self._processes == 0 else {}
        words = command(self._subject.module, hold=hold, **given)
        self._processes += 1
        return Process(words, self._room, self._processes)

    def _until(self, process: Process, moment: Moment) -> bool:
        """Follow the process to the moment, at the latest to the delivery. False if it ended without coming there."""
        behind = False
        events = moment.events
        while True:
            report = process.report() or GONE
            if report is GONE:
                return False
            self._take(report)
            what, number = report["what"], self._numbers.get(report.get("call", ""), 0)
            if what == "done":
                return False
            if what == "held":
                return True
            if moment.where == IN_CALL and what == "began" and number >= moment.call:
                return True
            if moment.where == BETWEEN and what == "ended" and number >= moment.call:
                behind = True
            elif behind and what == "event":
                events -= 1
                if events == 0:
                    return True

    def _wait(self, process: Process, moment: Moment, usual_s: list[float]) -> bool:
        """Let it go on for a random while, which in a model call is a part of what that call usually takes."""
        usual = usual_s[min(moment.call, len(usual_s)) - 1] if moment.where == IN_CALL else 0.002
        until = perf_counter() + moment.fraction * usual
        while (left := until - perf_counter()) > 0:
            report = process.report(left)
            if report is GONE:
                return False
            if report is not None:
                self._take(report)
        return True

    def _struck(self, process: Process, which: str) -> None:
        """Say what the kill left, as the call log and the store show it."""
        while (report := process.report() or GONE) is not GONE:
            self._take(report)
        standing, mails = self._subject.standing(self._room), len(self._room.mails())
        mine = [paid for paid in read_calls(self._room) if paid.process == process.number]
        if mine and not mine[-1].ended:
            where = IN_CALL
        elif mails and standing.unrecorded:
            where = HELD
        else:
            where = BETWEEN
        self._kills.append(Kill(process.number, where, standing, mails))
        self._tick("")
        self._tell(f"{which}: SIGKILL {where}, {standing.at}; {standing.waiting} tasks waiting")

    def _take(self, report: dict[str, Any]) -> None:
        what = report["what"]
        if what == "up":
            self._up_s.append(report["took_s"])
            if self._kills:
                found = self._subject.resumed(self._kills[-1].standing)
                self._tell(f"  resumed in {report['took_s']:.3f} s: {found}")
        elif what == "began":
            self._numbers.setdefault(report["call"], len(self._numbers) + 1)
            self._tick(f"process {self._processes}, model call {self._numbers[report['call']]} ...")
        elif what == "event":
            self._saved_bytes += report.get("bytes", 0)
