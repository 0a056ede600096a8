"""The time on an object store's own clock, which no request tells outright.

Owns: how it is asked (write an object, and see when the server says it was written), and reckoned between askings.
Must never: read this machine's clock of day.
Invariant: what `ask` and `now` answer is never ahead of the server, so no lease is taken for lapsed too early.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from indelible.errors import StoreUnavailable
from indelible.stores.objects_bucket import Bucket
from indelible.stores.objects_entry import CLOCK

_BOOT = getattr(time, "CLOCK_BOOTTIME", None)


def steady() -> float:
    """Seconds that only ever go on, counting also while the machine is suspended, where the system can tell."""
    return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)


class ServerClock:
    """The server's clock. `given` takes its place in tests; a `readonly` store goes by what it has seen written."""

    def __init__(
        self, bucket: Bucket, since: Callable[[], float], given: Callable[[], float] | None, readonly: bool
    ) -> None:
        self.given = given
        self._bucket = bucket
        self._since = since
        self._readonly = readonly
        self._ahead: float | None = None
        """Server's time less our steady time, at most."""

    def ask(self) -> float:
        """The time now; two requests."""
        if self.given is not None:
            return self.given()
        if self._readonly:
            return self.now()
        self._bucket.put(CLOCK, b"")
        found = self._bucket.modified(CLOCK)
        if found is None:
            raise StoreUnavailable(
                f"{self._bucket.where} does not show an object that was just written",
                hint="use a server whose listings are strongly consistent",
            )
        self._ahead = found - self._since()
        return found

    def now(self) -> float:
        """The time now, reckoned from when it was last asked; two requests the first time."""
        if self.given is not None:
            return self.given()
        if self._readonly:
            told = self._bucket.time()
            return told if told is not None else 0.0 if self._ahead is None else self._ahead + self._since()
        if self._ahead is None:
            return self.ask()
        return self._ahead + self._since()

    def saw(self, modified: float) -> None:
        """Note that something was written then: the time now is not before it."""
        ahead = modified - self._since()
        if self._readonly and (self._ahead is None or ahead > self._ahead):
            self._ahead = ahead
