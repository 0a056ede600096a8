"""The parent's end of one process of the demonstration.

Owns: starting it, reading its reports, and ending it.
Must never: leave a process behind, whatever ends the parent's part.
Invariant: after `with`, the process is dead and has been waited for.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from time import monotonic
from typing import Any

from indelible.cli.demo_room import Room
from indelible.errors import IndelibleError

GONE: dict[str, Any] = {"what": "gone"}
SILENCE_S = 300.0
"""No model call of the demonstration takes that long; a process that says nothing for longer hangs."""


class DemoFailed(IndelibleError):
    """A process of the demonstration ended in an error of its own, or hung."""

    code = "demo-failed"


class Process:
    """A running process, as a context manager."""

    def __init__(self, command: Sequence[str], room: Room, number: int) -> None:
        self.number = number
        self._room = room
        self._rest = b""
        with open(os.open(room.errors, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as errors:
            # In a session of its own, so that Ctrl-C reaches the parent alone, which then ends it.
            self._child = subprocess.Popen(
                [*command, str(room.path), "--process", str(number)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
            )  # fmt: skip
        assert self._child.stdout is not None
        self._out = self._child.stdout.fileno()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.__exit__(None, None, None)

    def kill(self) -> bool:
        """SIGKILL. False if the process had ended by itself."""
        self._child.kill()
        return self._child.wait() == -9

    def report(self, within_s: float | None = None) -> dict[str, Any] | None:
        """The next report; None if none comes `within_s` seconds; `GONE` once the process has ended.

        Raises `DemoFailed` if the process hangs.
        """
        until = monotonic() + (SILENCE_S if within_s is None else within_s)
        while b"\n" not in self._rest:
            if not select.select([self._out], [], [], max(0.0, until - monotonic()))[0]:
                if within_s is None:
                    raise DemoFailed(f"a process of the demonstration said nothing for {SILENCE_S:.0f} s",
                                     hint=f"cat {self._room.errors}")  # fmt: skip
                return None
            read = os.read(self._out, 65536)
            if not read:
                return GONE
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def must_have_finished(self, last: dict[str, Any]) -> None:
        """Raise `DemoFailed` unless the process, whose last report this is, came to the agent's end."""
        code = self._child.wait()
        if code == 0 and last.get("status") == "finished":
            return
        said = self._room.errors.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        why = last.get("why") or (said[-1] if code else f"the run is {last.get('status')}")
        raise DemoFailed(f"a process of the demonstration ended with code {code}: {why}",
                         hint=f"cat {self._room.errors}")  # fmt: skip


def command(module: str, **given: str | None) -> list[str]:
    """The command for a process; `Process` adds the folder."""
    words = [sys.executable, "-m", module]
    return words + [word for name, value in given.items() if value is not None for word in (f"--{name}", value)]
