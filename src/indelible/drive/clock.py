"""The clock and the randomness of this process; the one place that reads them.

Owns: wall time, monotonic time, waiting, random bytes.
Must never: be read from elsewhere; tests and simulations put their own clock here.
Invariant: order never depends on what a clock says.
"""

from __future__ import annotations

import os
import threading
import time
from random import Random
from typing import Protocol

__all__ = ["Clock", "Random", "SystemClock", "seeded"]


class Clock(Protocol):
    """Time and randomness as the drivers need them."""

    def now(self) -> float:
        """Epoch seconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        ...

    async def asleep(self, seconds: float) -> None:
        """Suspend this task."""
        ...

    def entropy(self, size: int) -> bytes:
        """Random bytes."""
        ...


class SystemClock:
    """The machine's clock and entropy."""

    def now(self) -> float:
        """Epoch seconds."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Block this thread; a signal handler that raises still ends it at once."""
        threading.Event().wait(seconds)

    async def asleep(self, seconds: float) -> None:
        """Suspend this task."""
        import asyncio  # costs more than all of Indelible, and most programs do without it

        await asyncio.sleep(seconds)

    def entropy(self, size: int) -> bytes:
        """Random bytes from the operating system."""
        return os.urandom(size)


def seeded(seed: bytes) -> Random:
    """A generator whose numbers depend on `seed` alone; not for secrets."""
    return Random(seed)
