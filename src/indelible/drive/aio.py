"""The asyncio driver: the same requests, awaited.

Owns: how an `async def` cycle and an `async def` action meet the world.
Must never: block the event loop, or leave a write half awaited when its task is cancelled;
import asyncio before it is used, which costs a third of `import indelible`.
Invariant: a cancellation that arrives during a write is raised at the generator's yield
after the write has ended, so what was written is never in question.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, ref

from indelible.core.requests import Append, Call, Called, Drain, Enter, Flush, Now, Sleep, Steps, StoreCall
from indelible.drive.context import current, restore
from indelible.drive.port import Port

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


async def drive(port: Port, steps: Steps[T]) -> T:
    """Run a durable operation to its end and return its result."""
    if port.wire is not None:
        steps = port.wire(steps)
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            request = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as stop:
            result: T = stop.value
            return result
        answer, error = None, None
        try:
            kind = type(request)
            if kind is Append:
                answer = port.feed.append(request.event)  # type: ignore[union-attr]
                if request.durable:
                    await settled(port.feed.flush_soon())  # type: ignore[union-attr]
            elif kind is Now:
                answer = port.clock.now()
            elif kind is Call:
                answer = await _call(port, request)
            else:
                answer = await _respond(port, request)
        except GeneratorExit:
            steps.close()  # its event loop is gone: this coroutine is being disposed of, and nobody can wait any more
            raise
        except BaseException as raised:
            error = raised


async def _respond(port: Port, request: Any) -> Any:
    kind = type(request)
    if kind is Flush:
        return await settled(port.feed.flush_soon())  # type: ignore[union-attr]
    if kind is StoreCall:
        return await in_thread(getattr(port.store, request.method), *request.args)
    if kind is Drain:
        future = port.idle()
        return await settled(future) if future else None
    if kind is Sleep:
        return await port.clock.asleep(request.seconds)
    if kind is Enter:
        while isinstance(gate := port.try_gate(request.call, request.within), Future):
            try:
                await _arrival(gate)
            finally:
                port.waited(request.call, request.within)
        return gate
    return port.at_once(request)


async def in_thread(fn: Callable[..., T], *args: Any) -> T:
    """What `fn` returns, called in another thread and awaited to its end even if this task is cancelled."""
    import asyncio

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return fn(*args)  # the loop has ended, and this coroutine is being disposed of
    # Not a task: the end of `asyncio.run` cancels every task, and nobody would wait for the thread.
    return await settled(loop.run_in_executor(None, partial(copy_context().run, fn, *args)))


async def settled(pending: Future[T] | asyncio.Future[T]) -> T:
    """The result of `pending`, which is awaited to its end even if this task is cancelled."""
    import asyncio

    cancelled: asyncio.CancelledError | None = None
    while not pending.done():
        try:
            if isinstance(pending, Future):
                await _arrival(pending)
            else:
                await asyncio.wait((pending,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        pending.exception()
        raise cancelled
    return pending.result()


class _Waker:
    """Wakes tasks of one event loop from other threads; those that come together with one call."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)
        self._ready: deque[asyncio.Future[None]] = deque()
        self._rung = False

    def wake(self, waiter: asyncio.Future[None], _: object) -> None:
        """From any thread. A ring too many is harmless; one too few cannot be: `_serve` resets before it looks."""
        self._ready.append(waiter)
        loop = self._loop()
        if not self._rung and loop is not None and not loop.is_closed():
            self._rung = True
            loop.call_soon_threadsafe(self._serve)

    def _serve(self) -> None:
        self._rung = False
        while self._ready:
            waiter = self._ready.popleft()
            if not waiter.done():
                waiter.set_result(None)


_wakers: WeakKeyDictionary[asyncio.AbstractEventLoop, _Waker] = WeakKeyDictionary()


def _arrival(pending: Future[Any]) -> asyncio.Future[None]:
    """Completes in this event loop once `pending` is done."""
    import asyncio

    loop = asyncio.get_running_loop()
    waker = _wakers.get(loop)
    if waker is None:
        waker = _wakers[loop] = _Waker(loop)
    waiter = loop.create_future()
    pending.add_done_callback(partial(waker.wake, waiter))
    return waiter


async def _call(port: Port, request: Call) -> Called:
    token = current.set(request.scope)
    began = perf_counter()
    try:
        value = request.fn(*request.args, **request.kwargs)
        if inspect.isawaitable(value):
            value = await value
    finally:
        restore(token)
    return Called(value, perf_counter() - began, port.clock.now())
