"""Waiting for a store on another machine that does not answer for a while.

Owns: how long to wait before each new try, and the repetition of what may be asked twice.
Must never: repeat an append; whether one has landed is for `Writer` to find out.
Invariant: what is raised in the end is what the store raised last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from time import perf_counter
from typing import TypeVar

from indelible.errors import IndelibleError, StoreUnavailable
from indelible.stores import refusals
from indelible.stores.base import Batch, Fact, Page, Query, Store, Upkeep, Write

FIRST_S = (0.05, 0.5, 2.0)
THEN_S = 5.0
LOCAL_S = 2.5
"""A file on this machine that cannot be used now will hardly be usable in a minute."""
REMOTE_S = 60.0
"""Enough for a server that is started anew, or for a replica to take its place."""

T = TypeVar("T")


def pauses(patience_s: float) -> Iterator[float]:
    """Seconds to wait before each new try, growing; none once `patience_s` have gone by, the tries counted as well."""
    began, waited = perf_counter(), 0.0
    for pause in chain(FIRST_S, repeat(THEN_S)):
        # The greater of both, for a test's pauses take no time.
        left = patience_s - max(waited, perf_counter() - began)
        if left <= 0:
            return
        yield min(pause, left)
        waited += pause


def patience_of(store: Store) -> float:
    """How many seconds a write may wait for this store to come back."""
    return store.patience_s if isinstance(store, Patient) else LOCAL_S


def at_once(store: Store) -> Store:
    """The same store for whoever would rather be told that the server is away than wait for it."""
    return store.store if isinstance(store, Patient) else store


def lags(store: Store) -> bool:
    """True if the store's clock may be behind, since it is told by what was written."""
    return bool(getattr(at_once(store), "lags", False))


def usd_per_write(store: Store) -> float:
    """What this store's provider charges for a write, in dollars: as it says itself, else nothing."""
    return float(getattr(store, "usd_per_write", 0.0))


class Patient:
    """A store whose server may be away for `patience_s` seconds before anybody is told.

    Every method but `append` and `delete` is tried again while it raises `StoreUnavailable`: each may be repeated,
    for a claim by the present owner renews, and a snapshot is put in its own place.
    """

    def __init__(self, store: Store, pause: Callable[[float], None], patience_s: float = REMOTE_S) -> None:
        self.store = store
        self.patience_s = patience_s
        self._pause = pause
        self.url, self.durable, self.shared = store.url, store.durable, store.shared
        self.usd_per_write = usd_per_write(store)

    def append(self, writes: Sequence[Write]) -> list[IndelibleError | None]:
        """See `Store.append`. Tried once."""
        return self.store.append(writes)

    def read(self, run_id: str, after_seq: int = 0) -> Iterator[Batch]:
        """See `Store.read`. After an interruption it goes on behind what has been read, unless that was pruned."""
        left, begun = pauses(self.patience_s), False
        while True:
            try:
                for batch in self.store.read(run_id, after_seq):
                    if begun and batch.after_seq > after_seq:
                        break
                    begun, after_seq = True, batch.last_seq
                    left = pauses(self.patience_s)
                    yield batch
                else:
                    return
            except StoreUnavailable:
                self._wait(left)
                continue
            raise refusals.trimmed_meanwhile(run_id, self.url)

    def list_runs(self, query: Query, cursor: str | None = None) -> Page:
        """See `Store.list_runs`."""
        return self._patiently(lambda: self.store.list_runs(query, cursor))

    def claim(self, run_id: str, owner: str, ttl_s: float) -> int:
        """See `Store.claim`. A release is tried once: the lease runs out by itself."""
        if ttl_s == 0:
            return self.store.claim(run_id, owner, ttl_s)
        return self._patiently(lambda: self.store.claim(run_id, owner, ttl_s))

    def put_snapshot(self, run_id: str, seq: int, data: bytes, begins: bool = False) -> None:
        """See `Store.put_snapshot`."""
        self._patiently(lambda: self.store.put_snapshot(run_id, seq, data, begins))

    def get_snapshot(self, run_id: str, at_most_seq: int) -> tuple[int, bytes] | None:
        """See `Store.get_snapshot`."""
        return self._patiently(lambda: self.store.get_snapshot(run_id, at_most_seq))

    def delete(self, run_id: str) -> None:
        """See `Store.delete`. Tried once: the second time the run would be unknown."""
        self.store.delete(run_id)

    def close(self) -> None:
        """See `Store.close`."""
        self.store.close()

    def now(self) -> float:
        """See `Upkeep.now`."""
        return self._upkeep().now()

    def facts(self) -> Iterator[Fact]:
        """See `Upkeep.facts`."""
        return self._upkeep().facts()

    def reclaim(self) -> int:
        """See `Upkeep.reclaim`."""
        return self._upkeep().reclaim()

    def _upkeep(self) -> Upkeep:
        assert isinstance(self.store, Upkeep)  # every store that is opened by a URL is one
        return self.store

    def _patiently(self, ask: Callable[[], T]) -> T:
        left = pauses(self.patience_s)
        while True:
            try:
                return ask()
            except StoreUnavailable:
                self._wait(left)

    def _wait(self, left: Iterator[float]) -> None:
        """Wait for the next try; in an `except` block, whose error is raised if there is none left."""
        pause = next(left, None)
        if pause is None:
            raise
        self._pause(pause)
