"""The process that is killed: it runs an agent and dies, by its own SIGKILL, at chosen points.

Owns: the numbering of the points, and the way they are hung into a process from outside, so
that the library itself has no code for them.
Must never: clean up at a death, or run anything but the program it was given.
Invariant: each point that is passed is one line of the points file, which outlives the process:
the next process of the same case counts on from there, so a point is a place in the case, not in a process.

    python -m indelible.testing.child POINTS KILL_AT agent.py:name STORE RUN_ID OBJECTIVE
    python -m indelible.testing.child POINTS KILL_AT program.py [ARGUMENT ...]

KILL_AT is a list like 7,19, or 0 for none. With the single argument `serve` it takes such lines as JSON from its
standard input, forks for each, and answers with the exit status: a fork of a warm process takes a few milliseconds.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import os
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from indelible.core.requests import Call, Steps
from indelible.drive.port import Port
from indelible.errors import Misuse
from indelible.runtime import runstore
from indelible.runtime.agents import Agent, AsyncAgent
from indelible.stores import open_store
from indelible.stores.base import Store
from indelible.stores.patience import at_once

T = TypeVar("T")

RETURNED = "returned "
"""The agent has got the result of a call: what was paid for or done must be in the journal by then."""
WRITES = ("append", "claim", "put_snapshot", "delete")
"""The methods of a store that make something durable."""


class Points:
    """The points of one process. They are passed from any thread."""

    def __init__(self, path: str, kill_at: frozenset[int]) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        self._kill_at = kill_at
        self._mutex = threading.Lock()
        with open(path, "rb") as file:
            self._passed = sum(1 for _ in file)

    def reach(self, label: str) -> None:
        """Be at a point, and die here if this is the one."""
        with self._mutex:
            self._passed += 1
            os.write(self._file, f"{label}\n".encode())
            if self._passed in self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def hang_in(self) -> None:
        """From here on every durable write and every deed of this process has a point before it and one after it."""

        def opened(*args: Any, **kwargs: Any) -> Store:
            store = open_store(*args, **kwargs)
            innermost = at_once(store)
            for name in WRITES:
                setattr(innermost, name, self._around(name, getattr(innermost, name)))
            return store

        patched: Any = runstore  # the one place where every store is opened
        patched.open_store = opened
        Port.wire = self._wire

    def saw(self, scope: Any, value: Any) -> None:
        """A call has returned `value`; it stands in `scope`. For those who keep more than the points."""

    def _around(self, name: str, method: Callable[..., T]) -> Callable[..., T]:
        def pointed(*args: Any) -> T:
            self.reach(f"before {name}")
            result = method(*args)
            self.reach(f"after {name}")
            return result

        return pointed

    def _wire(self, steps: Steps[T]) -> Steps[T]:
        answer: Any = None
        error: BaseException | None = None
        done = ""
        while True:
            try:
                request = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as stop:
                if done:
                    self.reach(f"{RETURNED}{done}")
                value: T = stop.value
                return value
            answer, error = None, None
            deed = request.scope.call if isinstance(request, Call) and request.scope is not None else ""
            try:
                if deed:
                    self.reach(f"before {deed}")
                answer = yield request
                if deed:
                    self.saw(request.scope, answer.value)
                    self.reach(f"after {deed}")
                    done = deed
            except BaseException as raised:
                error = raised


def load(target: str) -> Any:
    """The agent in `agent.py:name`. The file is run once per process. Raises `Misuse`."""
    path, _, name = target.rpartition(":")
    path = os.path.abspath(path)
    module = next((m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == path), None)
    if module is None:
        module_name = os.path.splitext(os.path.basename(path))[0]
        spec = importlib.util.spec_from_file_location(module_name, path)
        if spec is None or spec.loader is None or not os.path.isfile(path):
            raise Misuse(f"there is no Python file {path}", hint="crash.Target('agent.py:name', ...)")
        module = sys.modules[module_name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    agent = getattr(module, name, None)
    if not isinstance(agent, Agent | AsyncAgent):
        raise Misuse(f"{name!r} in {path} is no agent", hint=f"@indelible.agent(...) above def {name}")
    return agent


def run(points: str, kill_at: str, program: str, *arguments: str) -> None:
    """Run the program in this process, with its points. Returns only if it was not killed."""
    Points(points, frozenset(map(int, kill_at.split(",")))).hang_in()
    if program.endswith(".py"):
        sys.argv = [program, *arguments]
        runpy.run_path(program, run_name="__main__")
        return
    store, run_id, objective = arguments
    outcome = load(program).run(objective, store=store, run_id=run_id)
    if inspect.iscoroutine(outcome):
        asyncio.run(outcome)


def serve() -> None:
    """Fork for each request on standard input; answer with its exit status (below 0: the signal that ended it)."""
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        program: str = request["arguments"][2]
        if not program.endswith(".py"):
            load(program)
        pid = os.fork()
        if pid == 0:
            os._exit(_forked(request["folder"], request["arguments"]))
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _forked(folder: str, arguments: Sequence[str]) -> int:
    try:
        os.chdir(folder)
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1):
            os.dup2(nothing, standard)
        os.dup2(os.open("errors.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), 2)
        run(*arguments)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        run(*sys.argv[1:])
