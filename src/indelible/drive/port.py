"""What a driver works with: one run's feed, its store, a clock, and who is busy.

Owns: the answers that need no waiting, the gates of keyed actions, the count of actions
being performed.
Must never: wait; that is what the two drivers differ in.
Invariant: a gate has at most one holder, no two holders wait for each other, and `idle()` completes only
when nobody is busy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

from indelible.core.events import Event
from indelible.core.requests import Alone, Entropy, Now, Steps
from indelible.drive.clock import Clock
from indelible.errors import Misuse


class Feed(Protocol):
    """A run's way to its store."""

    def append(self, event: Event) -> int:
        """Take an event into memory; its seq."""
        ...

    def flush(self) -> None:
        """Return when everything appended so far is durable."""
        ...

    def flush_soon(self) -> Future[None]:
        """Completes, from any thread, when everything appended so far is durable."""
        ...


class Port:
    """One run's connection to the world."""

    wire: Callable[[Steps[Any]], Steps[Any]] | None = None
    """If set, every operation is driven through it: it sees each request and each answer, and may
    raise in place of either. A simulated world hangs in here; it costs one look per operation."""

    def __init__(self, store: Any, clock: Clock, feed: Feed | None = None) -> None:
        self.store = store
        self.clock = clock
        self.feed = feed
        self._mutex = threading.Lock()
        self._gates: dict[str, Future[None]] = {}
        self._wanted: dict[str, list[str]] = {}
        """The gates that are waited for from inside an action, by that action."""
        self._busy: dict[_Busy, int] = {}
        """The actions being performed, each with the thread it was begun in."""
        self._idle: list[Future[None]] = []

    def at_once(self, request: Any) -> Any:
        """The answer to a request that needs no waiting."""
        kind = type(request)
        if kind is Now:
            return self.clock.now()
        if kind is Entropy:
            return self.clock.entropy(request.size)
        if kind is Alone:
            with self._mutex:
                return request.step()
        raise TypeError(f"the protocol asked for {kind.__name__}, which no driver answers")

    def try_gate(self, call: str, within: tuple[str, ...] = ()) -> Callable[[], None] | Future[None]:
        """Hold the gate of a keyed action and get its release, or the future to wait for, and then call `waited`.

        `within` are the actions that will not go on before. Raises `Misuse` if this one waits for one of them.
        """
        with self._mutex:
            held = self._gates.get(call)
            if held is not None:
                self._must_end(call, within)
                for outer in within:
                    self._wanted.setdefault(outer, []).append(call)
                return held
            self._gates[call] = Future()
            return partial(self._release, call)

    def waited(self, call: str, within: tuple[str, ...]) -> None:
        """Note that a wait for that gate is over, whatever came of it."""
        with self._mutex:
            for outer in within:
                wanted = self._wanted[outer]
                wanted.remove(call)
                if not wanted:
                    del self._wanted[outer]

    def _must_end(self, call: str, within: tuple[str, ...]) -> None:
        """Follow who waits for whom: the holder of the gate, and what is called from inside of it."""
        seen, ahead = {call}, [call]
        while ahead:
            holder = ahead.pop()
            for wanted in self._wanted.get(holder, ()):
                if wanted in within:
                    raise Misuse(
                        f"two keyed actions wait for each other: {wanted} for {call}, and {call} for {wanted}",
                        hint="call keyed actions inside one another in the same order everywhere, or one after another",
                    )
                if wanted not in seen:
                    seen.add(wanted)
                    ahead.append(wanted)

    def _release(self, call: str) -> None:
        with self._mutex:
            gate = self._gates.pop(call)
        gate.set_result(None)

    def busy(self) -> _Busy:
        """`with port.busy():` counts an action as being performed."""
        return _Busy(self)

    def forget_own(self) -> None:
        """Note that this thread performs nothing, whatever Ctrl-C has kept it from noting."""
        own = threading.get_ident()
        for one in [one for one, thread in list(self._busy.items()) if thread == own]:
            self._busy.pop(one, None)

    def idle(self) -> Future[None] | None:
        """None if no action is being performed, else what completes when the last one ends."""
        if not self._busy:
            return None
        future: Future[None] = Future()
        with self._mutex:
            self._idle.append(future)
        # After it can be seen: whoever ended before that has not looked for it, and it is done by now.
        self._tell_idle()
        return future

    def _tell_idle(self) -> None:
        with self._mutex:
            waiting, self._idle = ([], self._idle) if self._busy else (self._idle, [])
        for future in waiting:
            future.set_result(None)


class _Busy:
    """One action being performed. It takes no lock: nobody else writes its entry, wherever it ends."""

    __slots__ = ("_port",)

    def __init__(self, port: Port) -> None:
        self._port = port

    def __enter__(self) -> None:
        self._port._busy[self] = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self._port._busy.pop(self, None)
        if self._port._idle:
            self._port._tell_idle()
