"""Where an action call stands: the scope that the running cycle or action has set.

Owns: the context variable through which an action finds its run.
Must never: hold anything across runs.
Invariant: code outside any cycle, and a probe, sees no scope.
"""

from __future__ import annotations

from contextvars import ContextVar, Token

from indelible.core.cycle import Scope

current: ContextVar[Scope | None] = ContextVar("indelible_scope", default=None)


def restore(token: Token[Scope | None]) -> None:
    """Undo the setting that gave `token`."""
    try:
        current.reset(token)
    except ValueError:
        pass  # a generator or coroutine is being closed in another context than it ran in, where nothing was set
