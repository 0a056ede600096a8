"""Keeping hold of runs: who this process is, and the renewal of its leases.

Owns: the owner's identity, and the thread that renews.
Must never: decide by this machine's clock that a lease still holds; the store does.
Invariant: a run whose lease was lost is marked so before its next action is called.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass

from indelible.core.cycle import Live
from indelible.errors import IndelibleError, StoreUnavailable
from indelible.stores.base import Store

TTL_S = 30.0


@dataclass(eq=False)
class Hold:
    """One run held by this process."""

    live: Live
    owner: str


class Renewer:
    """Renews the leases of all runs held through one store, every third of a lease."""

    def __init__(self, store: Store, ttl_s: float = TTL_S) -> None:
        self._store = store
        self._ttl_s = ttl_s
        self._holds: list[Hold] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._mutex = threading.Lock()

    def add(self, hold: Hold) -> None:
        """Renew this run from now on."""
        with self._mutex:
            self._holds.append(hold)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="indelible-leases", daemon=True)
                self._thread.start()

    def remove(self, hold: Hold) -> None:
        """Renew it no longer."""
        with self._mutex:
            if hold in self._holds:
                self._holds.remove(hold)

    def renew(self) -> None:
        """Renew every lease once; a run that was taken over is marked as lost."""
        with self._mutex:
            holds = list(self._holds)
        for hold in holds:
            live = hold.live
            try:
                epoch = self._store.claim(live.record.run_id, hold.owner, self._ttl_s)
            except StoreUnavailable:
                continue  # the store will say at the next append whether the run is still ours
            except IndelibleError as error:  # taken over, deleted, or its end is missing: it is not for us to go on
                self._lose(hold, error)
            else:
                if epoch != live.epoch:
                    # Its successor has let go meanwhile. The run is not for us either: our view of it is old.
                    self._lose(hold, None)
                    with suppress(IndelibleError):  # else it runs out by itself; the other runs must be renewed
                        self._store.claim(live.record.run_id, hold.owner, 0)

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def abandon(self, why: str) -> None:
        """Mark every run as lost: this process is a fork of the one that holds them."""
        for hold in self._holds:
            hold.live.lost = why
        self._holds, self._thread = [], None
        self._mutex = threading.Lock()

    def _lose(self, hold: Hold, error: IndelibleError | None) -> None:
        run_id = hold.live.record.run_id
        why = error.what if error else "another process has taken it over"
        hold.live.lost = f"run {run_id} is no longer held by this process: {why}"
        self.remove(hold)

    def _serve(self) -> None:
        while not self._stop.wait(self._ttl_s / 3):
            self.renew()
