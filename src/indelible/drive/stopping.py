"""Waiting that can be ended: a clock for processes that are asked to stop by a signal.

Owns: the way from a signal handler to a wait that is under way.
Must never: take a lock in `stop`, which runs inside signal handlers.
Invariant: once `stop` was called, every wait ends at once, also one that begins later.
"""

from __future__ import annotations

import asyncio
import select
import socket
import time

from indelible.drive.clock import SystemClock

_LONGEST_S = 3600.0


class StoppableClock(SystemClock):
    """The machine's clock, whose waits end early once `stop` was called."""

    def __init__(self) -> None:
        self._ear, self._mouth = socket.socketpair()
        self._ear.setblocking(False)
        self._mouth.setblocking(False)

    def stop(self) -> None:
        """End every wait. Safe in a signal handler and from any thread."""
        try:
            self._mouth.send(b"\0")
        except OSError:
            pass  # it is full, so it was said before; or closed, so nobody waits

    def sleep(self, seconds: float) -> None:
        """Block this thread until the time has passed or `stop` is called."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            # A signal interrupts select, runs its handler and goes on waiting; the byte it sends ends the wait.
            if select.select([self._ear], [], [], min(left, _LONGEST_S))[0]:
                return

    async def asleep(self, seconds: float) -> None:
        """Suspend this task until the time has passed or `stop` is called."""
        loop = asyncio.get_running_loop()
        stopped: asyncio.Future[None] = loop.create_future()

        def heard() -> None:
            if not stopped.done():
                stopped.set_result(None)

        loop.add_reader(self._ear, heard)
        try:
            await asyncio.wait([stopped], timeout=seconds)
        finally:
            loop.remove_reader(self._ear)

    def close(self) -> None:
        """Give the sockets back; nothing may wait any more."""
        self._ear.close()
        self._mouth.close()
