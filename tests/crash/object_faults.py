"""Object storage whose requests fail or end the process at a chosen place, for the tests.

Owns: `Failing`, a bucket around another one.
Must never: change what a request does before or after its fault.
Invariant: requests are counted from 1, reads and listings included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from indelible.errors import StoreUnavailable
from indelible.stores.objects_bucket import Bucket, Found, Item

Fault = Literal["none", "crash", "lost", "unheard", "echo"]
"""crash: the process ends before the request, and none is made after it. lost: it never arrives. unheard: it is done,
and the answer is lost. echo: it is done, and the library, trying again, met what it had put itself."""


class Crash(BaseException):
    """The process ends here."""


class Failing:
    """A `Bucket` around `inner`, in which request `at` fails as `fault` says."""

    grain_s = 0.0

    def __init__(self, inner: Bucket, fault: Fault = "none", at: int = 0) -> None:
        self.inner = inner
        self.where = inner.where
        self.fault = fault
        self.at = at
        self.count = 0
        self.made: dict[str, int] = {}

    @property
    def touched(self) -> bool:
        """Whether the fault has come."""
        return 0 < self.at <= self.count

    def create(self, path: str, data: bytes) -> bool:
        self._before("create")
        created = self.inner.create(path, data)
        self._after()
        return created and not (self.fault == "echo" and self.count == self.at)

    def put(self, path: str, data: bytes) -> None:
        self._before("put")
        self.inner.put(path, data)
        self._after()

    def get(self, path: str) -> Found | None:
        self._before("get")
        return self.inner.get(path)

    def modified(self, path: str) -> float | None:
        self._before("head")
        return self.inner.modified(path)

    def list(self, prefix: str, after: str = "") -> Iterator[Sequence[Item]]:
        self._before("list")
        return self.inner.list(prefix, after)

    def remove(self, paths: Sequence[str]) -> None:
        if not paths:
            return
        self._before("remove")
        self.inner.remove(paths)
        self._after()

    def keep(self, path: str) -> None:
        self.inner.keep(path)

    def time(self) -> float | None:
        return self.inner.time()

    def _before(self, kind: str) -> None:
        self.count += 1
        self.made[kind] = self.made.get(kind, 0) + 1
        if self.fault == "crash" and self.touched:
            raise Crash
        if self.fault == "lost" and self.count == self.at:
            raise StoreUnavailable("the request did not arrive")

    def _after(self) -> None:
        if self.fault == "unheard" and self.count == self.at:
            raise StoreUnavailable("the answer did not arrive")
