"""The asyncio driver: the same requests, awaited.

Owns: how an `async def` cycle and an `async def` action meet the world.
Must never: block the event loop, or leave a write half awaited when its task is cancelled.
Invariant: a cancellation that arrives during a write is raised at the generator's yield
after the write has ended, so what was written is never in question.
"""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import Future
from time import perf_counter
from typing import Any, TypeVar

from indelible.core.requests import Append, Call, Called, Drain, Enter, Flush, Sleep, Steps, StoreCall
from indelible.drive.context import current
from indelible.drive.port import Port

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
                answer = port.at_once(request)
                if request.durable:
                    await settled(port.feed.flush_soon())  # type: ignore[union-attr]
            elif kind is Call:
                answer = await _call(request)
            else:
                answer = await _respond(port, request)
        except BaseException as raised:
            error = raised


async def _respond(port: Port, request: Any) -> Any:
    kind = type(request)
    if kind is Flush:
        return await settled(port.feed.flush_soon())  # type: ignore[union-attr]
    if kind is StoreCall:
        loop = asyncio.get_running_loop()
        method = getattr(port.store, request.method)
        return await settled(loop.run_in_executor(None, method, *request.args))
    if kind is Drain:
        future = port.idle()
        return await settled(future) if future else None
    if kind is Sleep:
        return await port.clock.asleep(request.seconds)
    if kind is Enter:
        while isinstance(gate := port.try_gate(request.call), Future):
            await asyncio.shield(asyncio.wrap_future(gate))
        return gate
    return port.at_once(request)


async def settled(pending: Future[T] | asyncio.Future[T]) -> T:
    """The result of `pending`, which is awaited to its end even if this task is cancelled."""
    if isinstance(pending, Future):
        if pending.done():
            return pending.result()
        pending = asyncio.wrap_future(pending)
    cancelled: asyncio.CancelledError | None = None
    while not pending.done():
        try:
            await asyncio.shield(pending)
        except asyncio.CancelledError as error:
            if pending.cancelled():
                raise
            cancelled = error
        except BaseException:
            break
    if cancelled is not None:
        pending.exception()
        raise cancelled
    return pending.result()


async def _call(request: Call) -> Called:
    token = current.set(request.scope)
    began = perf_counter()
    try:
        value = request.fn(*request.args, **request.kwargs)
        if inspect.isawaitable(value):
            value = await value
    finally:
        current.reset(token)
    return Called(value, perf_counter() - began)
