"""Where one run of the demonstration keeps its things, and the log of the model calls it made.

Owns: the names of the files, and the call log: one line when a call begins and one when it ends.
Must never: read the journal. The call log is the evidence against which the journal is checked.
Invariant: a line of the call log is one write at the file's end, so a SIGKILL leaves whole lines behind.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

RUN_ID = "demo"


@dataclass(frozen=True)
class Room:
    """The folder of one run."""

    path: Path

    @property
    def store(self) -> str:
        """The database with the journal."""
        return str(self.path / "agent.db")

    @property
    def maildir(self) -> Path:
        """Where the report is delivered to."""
        return self.path / "out"

    @property
    def calls(self) -> Path:
        """The call log."""
        return self.path / "calls.log"

    @property
    def checkpoint(self) -> Path:
        """The naive agent's state."""
        return self.path / "state.json"

    @property
    def errors(self) -> Path:
        """What the processes wrote on standard error."""
        return self.path / "processes.log"

    def mails(self) -> list[Path]:
        """Every mail that was delivered, whatever it says."""
        return sorted(path for folder in ("new", "cur") for path in (self.maildir / folder).glob("*"))


@dataclass(frozen=True)
class Paid:
    """One model call that a process made. `ended` is False if the process was gone before the answer came."""

    process: int
    call: str
    ended: bool
    took_s: float


class CallLog:
    """What a process writes down about its model calls."""

    def __init__(self, room: Room, process: int) -> None:
        self._file = os.open(room.calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._process = process

    def began(self, call: str) -> None:
        """Before the model is asked."""
        self._write([self._process, call, "began", 0.0])

    def ended(self, call: str, took_s: float) -> None:
        """When the answer is there."""
        self._write([self._process, call, "ended", took_s])

    def _write(self, line: list[object]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


def read_calls(room: Room) -> list[Paid]:
    """The model calls that were made, in order."""
    made: list[Paid] = []
    if not room.calls.exists():
        return made
    for line in room.calls.read_text().splitlines():
        process, call, what, took_s = json.loads(line)
        if what == "began":
            made.append(Paid(process, call, False, 0.0))
        else:
            at = max(n for n, paid in enumerate(made) if (paid.process, paid.call) == (process, call))
            made[at] = Paid(process, call, True, took_s)
    return made
