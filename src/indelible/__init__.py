"""Indelible: agents that survive any crash, pay for no answer twice, and never silently repeat a deed.

Owns: the public names. Must never: import an optional library. Invariant: at most 15 names.
"""

from indelible import errors
from indelible.core.collections import Log, Map, Queue
from indelible.core.state import State
from indelible.errors import DidNotHappen
from indelible.runtime.actions import action, did_not_happen, happened, unknown
from indelible.runtime.agents import agent
from indelible.runtime.runs import Run
from indelible.runtime.runstore import open_runs as open
from indelible.runtime.usage import usage
from indelible.version import __version__

__all__ = [
    "DidNotHappen", "Log", "Map", "Queue", "Run", "State", "__version__", "action", "agent", "did_not_happen", "errors",
    "happened", "open", "unknown", "usage",
]  # fmt: skip
