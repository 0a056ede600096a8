"""Child processes that a test talks to over pipes: started by fork, so that they cost little.

Owns: starting, hearing, killing and waiting for them.
Must never: let a child return into the test that started it.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from types import TracebackType


class Child:
    """A forked process that runs `work(child)`. There, `say` and `hear` talk to the test, and the reverse."""

    def __init__(self, work: Callable[[Child], object], uid: int | None = None) -> None:
        down, up = os.pipe(), os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        self._status: int | None = None
        reading, writing = (down, up) if self.pid == 0 else (up, down)
        os.close(reading[1])
        os.close(writing[0])
        self._in, self._out = os.fdopen(reading[0], "r"), os.fdopen(writing[1], "w")
        if self.pid == 0:
            self._run(work, uid)

    def _run(self, work: Callable[[Child], object], uid: int | None) -> None:
        try:
            if uid is not None:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
            work(self)
            self._out.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def say(self, line: object) -> None:
        self._out.write(f"{line}\n")
        self._out.flush()

    def hear(self) -> str:
        """The next line from the other side; "" when that has ended."""
        return self._in.readline().rstrip("\n")

    def kill(self) -> None:
        """SIGKILL, and wait until it is dead, but leave it as a zombie."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def ended(self) -> int:
        """Wait for the end; the exit code, or minus the signal."""
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            self._in.close()
            self._out.close()
        return self._status

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is None and kind is not None:
            os.kill(self.pid, signal.SIGKILL)
        code = self.ended()
        if kind is None:
            assert code in (0, -signal.SIGKILL), f"the child ended with {code}"
