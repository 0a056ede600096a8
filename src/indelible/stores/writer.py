"""Group commit: everything that waits for the store goes into one transaction.

Owns: the queue in front of a store, and what becomes of a write whose fate is unknown.
Must never: look into a batch; report a write as durable before the store has said so.
Invariant: writes of one run reach the store in the order they were given.

A blocking caller that finds the store idle commits in its own thread. Others wait for it
and find their write done, or commit all that has gathered meanwhile. Ctrl-C may end whoever
leads, at any moment: it is then for those who wait to find that out, and nothing that they rely on is left to it.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain

from indelible.errors import IndelibleError, StaleWriter, StoreUnavailable
from indelible.stores.base import Store, Write
from indelible.stores.patience import at_once, patience_of, pauses

MAX_GROUP = 512
UNHEARD_S = 0.5
"""How long to wait for a bell before looking whether whoever was to ring it has been interrupted."""


class _Waiting:
    __slots__ = ("bell", "done", "error", "landed", "make", "write")

    def __init__(
        self,
        make: Callable[[], Write],
        landed: Callable[[Exception | None], object] | None = None,
    ) -> None:
        self.write: Write | None = None
        self.make = make
        self.landed = landed
        self.bell: threading.Lock | None = None  # held; letting go of it is the ring
        self.done = False
        self.error: Exception | None = None


class Writer:
    """The one writer of a store in this process."""

    def __init__(self, store: Store, pause: Callable[[float], None]) -> None:
        self._store = at_once(store)  # waiting is for `_resolve`, once for all of a group
        self._patience_s = patience_of(store)
        self._pause = pause
        self._queue: deque[_Waiting] = deque()
        self._submitted: deque[_Waiting] = deque()
        """Those whose `landed` has not been called."""
        self._committing = threading.Lock()
        self._telling = threading.Lock()
        self._bell: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._mutex = threading.Lock()

    def write(self, make: Callable[[], Write]) -> None:
        """Return when what `make` returns is durable. Raises what `make` raises, `StaleWriter` or `StoreUnavailable`.

        `make` is called in the thread that commits, so that of many threads one works while the others sleep.
        """
        waiting = _Waiting(make)
        self._queue.append(waiting)
        while not waiting.done:
            if not self._committing.locked():
                self._lead(waiting)
            elif waiting.bell is None:
                waiting.bell = threading.Lock()
                waiting.bell.acquire()  # and look again: whoever leads now may not have seen it
            else:
                waiting.bell.acquire(timeout=UNHEARD_S)
        if waiting.error is not None:
            raise waiting.error

    def submit(self, make: Callable[[], Write], landed: Callable[[Exception | None], object]) -> None:
        """Have what `make` returns written in the background.

        `make` is called from some thread when its turn has come, then `landed` with the error, or None: never in the
        main thread, where Ctrl-C could come in the middle of it, for an event loop waits for it.
        """
        waiting = _Waiting(make, landed)
        self._queue.append(waiting)
        self._submitted.append(waiting)  # after it: one that is in no queue would keep back all behind it
        if self._thread is None:
            self._start()
        self._bell.put(True)

    def close(self) -> None:
        """Write what waits, and end the background thread."""
        with self._mutex:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._bell.put(False)
            if thread is not threading.current_thread():
                thread.join()

    def _start(self) -> None:
        with self._mutex:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="indelible-writer", daemon=True)
                self._thread.start()

    def _serve(self) -> None:
        while self._bell.get():
            while self._queue:
                self._lead(None)
            self._tell()

    def _tell(self) -> None:
        """Say what became of those that are done, whoever committed them. Never in the main thread."""
        with self._telling:
            while self._submitted and self._submitted[0].done:
                waiting = self._submitted.popleft()
                if waiting.landed is not None:
                    waiting.landed(waiting.error)

    def _lead(self, mine: _Waiting | None) -> None:
        """Commit what waits, unless `mine` was done meanwhile; wake those who waited, and let the next one lead.

        Each is woken by a bell of its own: if all waited for the lock, the next group could not
        be committed before every one of this group had held it in turn.
        """
        group: list[_Waiting] = []
        try:
            # By `with`, and not by `acquire`: Ctrl-C cannot come between the lock and its release.
            with self._committing:
                try:
                    if mine is None or not mine.done:
                        self._commit(group)
                finally:
                    while self._queue and self._queue[0].done:
                        self._queue.popleft()
        finally:
            for waiting in group:
                _ring(waiting)
            if self._queue:
                with suppress(IndexError):
                    # One who came too late for this group found the lock taken; now it is free.
                    _ring(self._queue[0])
        if self._submitted and threading.current_thread() is not threading.main_thread():
            self._tell()

    def _commit(self, group: list[_Waiting]) -> None:
        """Commit what waits in one transaction, and say how each write fared.

        A write stays in the queue until that is known. If Ctrl-C ends this half-way, others may wait for it: the next
        one to lead finds out what landed.
        """
        group += [self._queue[at] for at in range(min(len(self._queue), MAX_GROUP))]
        answers: Iterator[IndelibleError | None] = iter(())
        left: Iterator[float] | None = None  # of the patience, for all of them together
        failed: Exception | None = None
        try:
            writes = [write for waiting in group if (write := self._made(waiting)) is not None]
            if writes:
                answers = iter(self._store.append(writes))
        except Exception as error:
            failed = error
        for waiting in group:
            if waiting.write is not None:
                answer = failed or next(answers)
                if answer is not None and (failed is not None or isinstance(answer, StaleWriter)):
                    left = left or pauses(self._patience_s)
                    answer = self._resolve(waiting.write, answer, left)
                waiting.error = answer
            waiting.done = True

    def _made(self, waiting: _Waiting) -> Write | None:
        if waiting.write is None:
            try:
                waiting.write = waiting.make()
            except Exception as error:
                waiting.error = error
        return waiting.write

    def _resolve(self, write: Write, error: Exception, left: Iterator[float]) -> Exception | None:
        """A write that failed may have landed all the same: read it back, and only then try again."""
        for pause in chain((0.0,), left):
            if pause:
                self._pause(pause)
            try:
                if self._is_there(write):
                    return None
                if not isinstance(error, StoreUnavailable):
                    return error
                if not pause:
                    continue
                answer = self._store.append([write])[0]
                if answer is None:
                    return None
                error = answer
            except StoreUnavailable as again:
                error = again
            except IndelibleError as other:
                return other
        return error

    def _is_there(self, write: Write) -> bool:
        for batch in self._store.read(write.run_id, write.batch.after_seq):
            return batch == write.batch
        return False


def _ring(waiting: _Waiting) -> None:
    if waiting.bell is not None:
        with suppress(RuntimeError):  # it has been rung, and not yet been heard
            waiting.bell.release()
