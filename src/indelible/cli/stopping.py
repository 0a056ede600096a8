"""Being asked to stop: by Ctrl-C or SIGTERM, once nicely, twice at once.

Owns: the signal handlers of a command that runs agents.
Must never: do anything in a handler but note the signal, wake waits, and write one line.
Invariant: after the first signal no further cycle begins; after the second the process is
gone, as by a crash, which the journal is made for: what it was doing is redone or in doubt.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from indelible.drive.stopping import StoppableClock

_ASKED = b"\nindelible: stopping after this cycle; once more to stop at once\n"
_NOW = b"\nindelible: stopped at once; the run can be resumed\n"
_SHOW_CURSOR = b"\x1b[?25h"


class Stopping:
    """While entered, SIGINT and SIGTERM ask for a stop. `signal` is the first one received, or 0.

    `wake` is called in the handler of the first; it must take no lock.
    """

    def __init__(self, wake: Callable[[], object] = int) -> None:
        self.wake = wake
        self.clock = StoppableClock()
        self.signal = 0
        self.on_terminal = False
        self._before: dict[int, Any] = {}

    def asked(self) -> bool:
        """True once a signal has come."""
        return self.signal != 0

    @property
    def exit_code(self) -> int:
        """130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self.signal

    def __enter__(self) -> Stopping:
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._before[number] = signal.signal(number, self._received)
            except ValueError:
                break  # not the main thread, which alone gets signals
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        self.clock.close()

    def _received(self, number: int, _frame: FrameType | None) -> None:
        if self.signal:
            _write(_SHOW_CURSOR + _NOW if self.on_terminal else _NOW)
            os._exit(128 + number)
        self.signal = number
        self.clock.stop()
        self.wake()
        if not self.on_terminal:
            _write(_ASKED)


def _write(text: bytes) -> None:
    # Not through sys.stderr: a handler may run in the middle of a write to it.
    try:
        os.write(2, text)
    except OSError:
        pass
