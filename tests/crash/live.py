"""A process that runs while a test goes on: it is heard through a pipe, and waits to be told.

Owns: starting, hearing and ending it; nothing waits for a time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

HELD = Path(__file__).with_name("held_agent.py")


class Live:
    """A script in a process of its own."""

    def __init__(self, folder: Path, script: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(script), *arguments],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self) -> str:
        """The next line it says; "" when it has nothing more to say."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self) -> None:
        """Let it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL; it is dead when this returns, and still a zombie."""
        self.process.kill()
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def stop(self) -> None:
        """SIGSTOP; it stands still when this returns."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> tuple[int, str]:
        """Its exit status and what it complained of."""
        _, complaint = self.process.communicate()
        return self.process.returncode, complaint

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
