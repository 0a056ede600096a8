"""What the conformance checks share: a clock, a fresh store, and ways to ask it.

Owns: the helpers, and `StoreFixture`, which an author of a store completes.
Must never: sleep, or use anything of a store but the `Store` methods.
Invariant: it needs no test library.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from indelible.stores.base import Batch, Label, Query, RunEntry, Store, Write
from indelible.stores.owner import Owner, enter, leave

E = TypeVar("E", bound=BaseException)

LABEL = Label("research", "active", None, b"")


class SteppedClock:
    """A clock that stands still until it is moved. Epoch seconds."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """The time now."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Move on, or back."""
        self.now += seconds


def refused(kind: type[E], act: Callable[[], object]) -> E:
    """The error of type `kind` that `act` raises; it is a failure if it raises none."""
    try:
        act()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, and nothing was raised")


def write(run_id: str, after: int, data: bytes = b"x", *, epoch: int = 1, label: Label | None = None) -> Write:
    """A write of a single event after `after`."""
    return Write(run_id, epoch, Batch(after, after + 1, data), label)


def entries(store: Store, query: Query | None = None) -> list[RunEntry]:
    """All pages of a listing, one after the other."""
    found: list[RunEntry] = []
    cursor: str | None = None
    while True:
        page = store.list_runs(query or Query(), cursor)
        found += page.runs
        cursor = page.cursor
        if cursor is None:
            return found


def in_threads(*works: Callable[[], object]) -> None:
    """Run all at once, and raise what any of them raised."""
    errors: list[BaseException] = []
    start = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        try:
            start.wait(30)
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class StoreFixture:
    """What the checks need of the author: how to open a fresh store."""

    def open_store(self, tmp_path: Path, clock: Callable[[], float]) -> Store:
        """A store with its data below `tmp_path`, whose clock is `clock` (epoch seconds)."""
        raise NotImplementedError

    @contextmanager
    def claimed(self, tmp_path: Path, *run_ids: str, clock: SteppedClock | None = None) -> Iterator[Store]:
        """A store in which this test holds `run_ids`, each at epoch 1, for 30 s."""
        enter("test")
        try:
            with closing(self.open_store(tmp_path, clock or SteppedClock())) as store:
                for run_id in run_ids:
                    assert store.claim(run_id, Owner.here("test"), 30.0) == 1
                yield store
        finally:
            leave("test")
