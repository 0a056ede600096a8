"""The process that a proof really kills: one run of the user's agent, watched at its points.

Owns: what such a process leaves behind about its calls, and the warm process that forks it.
Must never: clean up at a death, or wait for a time: whoever sleeps here finds that the time has passed.
Invariant: a call that returned has its line in `performed` before any point after it is reached.

`python -m indelible.testing.prove_child AGENT.py:name OBJECTIVE` takes requests as JSON lines, and answers each with
the exit status of the process that it forked (below 0: the signal that ended it).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import traceback
from typing import Any, TypedDict

from indelible.drive.clock import SystemClock
from indelible.runtime.runstore import open_runs
from indelible.testing.child import Points
from indelible.testing.prove_evidence import RUN_ID
from indelible.testing.prove_simulated import seen_of
from indelible.testing.prove_subject import Subject

STORE, POINTS, PERFORMED, ERRORS = "agent.db", "points", "performed", "errors.txt"


class Request(TypedDict):
    """One process to run. kill_at: the points at which it dies. kill_after_s: when it is killed from outside."""

    folder: str
    kill_at: list[int]
    kill_after_s: float


class SkippingClock(SystemClock):
    """Whoever waits on it finds that the time has passed."""

    def __init__(self) -> None:
        self._skipped = 0.0

    def now(self) -> float:
        """Epoch seconds, and what was slept."""
        return super().now() + self._skipped

    def sleep(self, seconds: float) -> None:
        """Be later."""
        self._skipped += seconds

    async def asleep(self, seconds: float) -> None:
        """Be later, and let other tasks run."""
        self._skipped += seconds
        await super().asleep(0)


class WatchedPoints(Points):
    """Points, and a file of the calls that returned."""

    def __init__(self, kill_at: frozenset[int]) -> None:
        super().__init__(POINTS, kill_at)
        self._performed = os.open(PERFORMED, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def saw(self, scope: Any, value: Any) -> None:
        """See `Points.saw`."""
        seen = seen_of(scope, value)
        line = json.dumps([seen.call, seen.effect, seen.result.hex(), seen.matters])
        os.write(self._performed, f"{line}\n".encode())


def work(agent: Any, objective: str, request: Request) -> None:
    """Start or resume the run in this process. Returns only if it was not killed."""
    WatchedPoints(frozenset(request["kill_at"])).hang_in()
    with open_runs(STORE, clock=SkippingClock()) as runs:
        outcome = agent.run(objective, store=runs, run_id=RUN_ID)
        if asyncio.iscoroutine(outcome):
            asyncio.run(outcome)


def serve(reference: str, objective: str) -> None:
    """Fork for each request on standard input; answer with its exit status."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the file prints while it is loaded is no answer
    path, _, name = reference.rpartition(":")
    agent = Subject(path, name, objective).load()
    for line in sys.stdin:
        request: Request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            os._exit(_forked(agent, objective, request))
        timer = threading.Timer(request["kill_after_s"], os.kill, (pid, signal.SIGKILL))
        timer.start()
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # not reaped yet, so its number is not another's
        finally:
            timer.cancel()
            timer.join()
            _end(pid)
        _, status = os.waitpid(pid, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()


def _end(pid: int) -> None:
    """Kill that process, and those which it has started and left behind."""
    for kill in (os.killpg, os.kill):  # it may not have come to have a group
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _forked(agent: Any, objective: str, request: Request) -> int:
    try:
        os.chdir(request["folder"])
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1):
            os.dup2(nothing, standard)
        os.dup2(os.open(ERRORS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), 2)
        work(agent, objective, request)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        return 1
    return 0


if __name__ == "__main__":
    serve(*sys.argv[1:])
