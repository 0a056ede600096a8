"""Where an action call stands: the scope that the running cycle or action has set.

Owns: the context variable through which an action finds its run.
Must never: hold anything across runs.
Invariant: code outside any cycle, and a probe, sees no scope.
"""

from __future__ import annotations

from contextvars import ContextVar

from indelible.core.cycle import Scope

current: ContextVar[Scope | None] = ContextVar("indelible_scope", default=None)
