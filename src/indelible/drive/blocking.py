"""The blocking driver: every request is answered in the calling thread.

Owns: how a `def` cycle and a `def` action meet the world.
Must never: start an event loop, or block one on what only that loop can bring about.
Invariant: an exception while a request is answered is raised at the generator's yield.
"""

from __future__ import annotations

import inspect
from concurrent.futures import Future
from time import perf_counter
from typing import Any, TypeVar

from indelible.core.requests import Append, Call, Called, Drain, Enter, Flush, Sleep, Steps, StoreCall
from indelible.drive.context import current
from indelible.drive.port import Port
from indelible.errors import Misuse

T = TypeVar("T")


def drive(port: Port, steps: Steps[T]) -> T:
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
            answer = respond(port, request)
        except BaseException as raised:
            error = raised


def respond(port: Port, request: Any) -> Any:
    """Answer one request, waiting if it takes that."""
    kind = type(request)
    if kind is Append:
        seq = port.feed.append(request.event)  # type: ignore[union-attr]
        if request.durable:
            port.feed.flush()  # type: ignore[union-attr]
        return seq
    if kind is Call:
        return _call(port, request)
    if kind is Flush:
        return port.feed.flush()  # type: ignore[union-attr]
    if kind is StoreCall:
        return getattr(port.store, request.method)(*request.args)
    if kind is Drain:
        return _drain(port)
    if kind is Sleep:
        return port.clock.sleep(request.seconds)
    if kind is Enter:
        while isinstance(gate := port.try_gate(request.call, request.within), Future):
            try:
                if not request.must and _in_event_loop():
                    return None
                _wait(gate, "the same keyed action is being performed by the running event loop")
            finally:
                port.waited(request.call, request.within)
        return gate
    return port.at_once(request)


def _drain(port: Port) -> None:
    if port.idle() is None:
        return
    if not _in_event_loop():
        port.forget_own()  # a thread that is here performs nothing
    future = port.idle()
    if future is not None:
        _wait(future, "this cycle still performs actions in tasks of the running event loop")


def _wait(future: Future[None], why: str) -> None:
    if _in_event_loop():
        raise Misuse(f"{why}, so waiting here would never end", hint="use 'async with' and await the tasks")
    future.result()


def _in_event_loop() -> bool:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _call(port: Port, request: Call) -> Called:
    token = current.set(request.scope)
    began = perf_counter()
    try:
        value = request.fn(*request.args, **request.kwargs)
    finally:
        current.reset(token)
    took = perf_counter() - began
    if inspect.iscoroutine(value):
        value.close()
        raise Misuse(
            f"{getattr(request.fn, '__name__', request.fn)} is an 'async def', but it was called from a 'def'",
            hint="make the cycle function (or the action) that uses it 'async def' as well",
        )
    return Called(value, took, port.clock.now())
