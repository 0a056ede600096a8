"""One run's way to its store: events in, batches out, one in flight at a time.

Owns: the order in which a run's batches are written, and who waits for which.
Must never: let two batches of a run be under way at once, or drop one that failed; write for a
run that is lost, be it to another process, to the parent of a fork, or to an interruption.
Invariant: when `flush` returns, everything appended before it was called is durable.

An interruption (Ctrl-C) may come between any two steps, so that nobody knows what this process has
in memory. What the store has acknowledged is known: the run is given up here and opened anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from time import perf_counter

from indelible.core.cycle import Live
from indelible.core.events import Event
from indelible.core.journal import Sealed
from indelible.core.record import Record, fold
from indelible.errors import LeaseLost, StaleWriter
from indelible.stores.base import Label, Write
from indelible.stores.writer import Writer


class Feed:
    """Takes a run's events into its journal and its record, and brings them to the store."""

    def __init__(
        self,
        writer: Writer,
        live: Live,
        label: Callable[[Record], Label],
        observe: Callable[[Event], None] | None = None,
    ) -> None:
        self._writer = writer
        self._live = live
        self._journal = live.journal
        self._record = live.record
        self._label = label
        self._observe = observe
        self.complaint: Exception | None = None
        """What `observe` raised; it is not called again."""
        self._mutex = threading.Lock()
        self._flying = False
        self._began = 0.0
        self._waiting: list[tuple[int, Future[None]]] = []

    def append(self, event: Event) -> int:
        """Take an event into memory, let it have its effect on the record, and return its seq."""
        try:
            with self._mutex:
                seq = self._journal.append(event)
                fold(self._record, seq, event)
        except BaseException:
            self._give_up()
            raise
        if self._observe is not None:
            try:
                self._observe(event)
            except Exception as error:
                # Raised here, it would pass for a failure of the task, or keep a finished run from its last event.
                self._observe, self.complaint = None, error
        return seq

    def flush(self) -> None:
        """Return when everything appended so far is durable; commits in this thread if the run is idle.

        Raises `LeaseLost` if the run was taken over, `StoreUnavailable` if it cannot be written
        just now; what waits is kept and goes with the next flush.
        """
        try:
            self._flush()
        except Exception:
            raise
        except BaseException:
            self._give_up()
            raise

    def _flush(self) -> None:
        future: Future[None] | None = None
        with self._mutex:
            if self._live.lost:
                raise self._lost()
            upto = self._journal.seq
            if self._journal.durable_seq >= upto:
                return
            if self._flying:
                future = Future()
                self._waiting.append((upto, future))
            else:
                self._flying, self._began = True, perf_counter()
        if future is not None:
            future.result()
            return
        error = self._landed(self._write())
        if error is not None:
            raise error
        if self._journal.durable_seq < upto:
            self._flush()  # an earlier batch that had failed went first

    def flush_soon(self) -> Future[None]:
        """As `flush`, in the background."""
        future: Future[None] = Future()
        try:
            with self._mutex:
                upto = self._journal.seq
                if self._live.lost:
                    future.set_exception(self._lost())
                    return future
                if self._journal.durable_seq >= upto:
                    future.set_result(None)
                    return future
                self._waiting.append((upto, future))
                if self._flying:
                    return future
                self._flying, self._began = True, perf_counter()
            self._writer.submit(self._sealed, self._landed)
        except BaseException:
            self._give_up()
            raise
        return future

    def _give_up(self) -> None:
        """This process was interrupted in the middle of it: write nothing more, and let nobody wait."""
        live = self._live
        live.lost = live.lost or f"run {self._record.run_id} was interrupted in the middle of a write"
        with self._mutex:
            waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            future.set_exception(self._lost())

    def _lost(self) -> LeaseLost:
        run_id = self._record.run_id
        return LeaseLost(self._live.lost, hint=f"indelible show {run_id}", run=run_id)

    def _sealed(self) -> Write:
        """The next batch, made by whoever commits it."""
        with self._mutex:
            if self._live.lost:
                raise self._lost()  # given up while this waited for its turn
            sealed: Sealed = self._journal.seal()
            return Write(self._record.run_id, self._live.epoch, sealed.batch, self._label(self._record))

    def _write(self) -> Exception | None:
        try:
            self._writer.write(self._sealed)
        except Exception as error:
            return error
        return None

    def _landed(self, error: Exception | None) -> Exception | None:
        with self._mutex:
            if error is None:
                self._journal.landed()
                ready = [future for upto, future in self._waiting if upto <= self._journal.durable_seq]
                self._waiting = [waiting for waiting in self._waiting if waiting[0] > self._journal.durable_seq]
            else:
                ready, self._waiting = [future for _, future in self._waiting], []
            # Those who came meanwhile are next.
            self._flying = following = bool(self._waiting)
            now = perf_counter()
            self._live.waited += now - self._began
            if error is None:
                self._live.commit_cost_s += 0.1 * (now - self._began - self._live.commit_cost_s)
            self._began = now
        error = self._explain(error)
        for future in ready:
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
        if following:
            self._writer.submit(self._sealed, self._landed)
        return error

    def _explain(self, error: Exception | None) -> Exception | None:
        if not isinstance(error, StaleWriter):
            return error
        self._live.lost = self._live.lost or error.what
        return self._lost()
