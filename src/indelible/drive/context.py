"""Where an action call stands: the scope that the running cycle or action has set.

Owns: the context variable through which an action finds its run, and how to tell that it was lost on the way.
Must never: keep a run from being disposed of.
Invariant: code outside any cycle, and a probe, sees no scope.

A pool's thread, or one that was just started, has a context of its own in which nothing was ever set. That is told
apart from a probe's, in which "no scope" was set on purpose and is copied by `asyncio.to_thread`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextvars import ContextVar, Token
from weakref import WeakValueDictionary

from indelible.core.cycle import Live, Scope

current: ContextVar[Scope | None] = ContextVar("indelible_scope", default=None)

_NOWHERE = object()
_opened: WeakValueDictionary[int, Live] = WeakValueDictionary()
_threads = threading.local()


def restore(token: Token[Scope | None]) -> None:
    """Undo the setting that gave `token`."""
    try:
        current.reset(token)
    except ValueError:
        pass  # a generator or coroutine is being closed in another context than it ran in, where nothing was set


def host(live: Live) -> None:
    """Note that this thread has opened that run."""
    _opened[id(live)] = live
    if not hasattr(_threads, "hosted"):
        _threads.hosted = WeakValueDictionary()
    _threads.hosted[id(live)] = live


def is_astray() -> bool:
    """True in a thread that was given no context though a run is open in this process.

    The main thread and one that holds a run itself are nobody's helpers: what they call outside a cycle, they mean so.
    """
    if current.get(_NOWHERE) is not _NOWHERE or threading.current_thread() is threading.main_thread():
        return False
    return _any_open(_opened) and not _any_open(getattr(_threads, "hosted", {}))


def _any_open(lives: Mapping[int, Live]) -> bool:
    return any(not live.lost for live in list(lives.values()))
