"""The agent under proof: where its code stands, and how a process that starts gets it anew.

Owns: the way from an agent, or `agent.py:name`, to a file and a name in it.
Must never: import what a store names; only what the user named is loaded.
Invariant: `load()` runs the file again, so that nothing in its globals outlives a simulated process.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from indelible.errors import Misuse
from indelible.runtime.agents import Agent, AsyncAgent

HINT = 'crash_everywhere("agent.py:research", "Find three suppliers")'


class Subject(NamedTuple):
    """The agent called `name` in the file at `path`, with what it is asked to do."""

    path: str
    name: str
    objective: str

    @property
    def reference(self) -> str:
        """How the command line names it."""
        return f"{self.path}:{self.name}"

    def load(self) -> Any:
        """Run the file and return its agent. Raises `Misuse` if there is none, and what the file raises."""
        module_name = Path(self.path).stem
        spec = importlib.util.spec_from_file_location(module_name, self.path)
        if spec is None or spec.loader is None or not os.path.isfile(self.path):
            raise Misuse(f"there is no Python file {self.path}", hint=HINT)
        folder = os.path.dirname(self.path)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        before = sys.modules.get(module_name)
        module = sys.modules[module_name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            if before is None:
                del sys.modules[module_name]
            else:
                sys.modules[module_name] = before
            raise
        agent = getattr(module, self.name, None)
        if not isinstance(agent, Agent | AsyncAgent):
            raise Misuse(f"{self.name!r} in {self.path} is no agent", hint=f"@indelible.agent(...) above {self.name}")
        return agent


def subject_of(agent: Any, objective: str) -> Subject:
    """The subject for `agent`: `agent.py:name`, or an agent that stands in a module. Raises `Misuse`."""
    if isinstance(agent, str | os.PathLike):
        path, colon, name = os.fspath(agent).rpartition(":")
        if not colon or not name.isidentifier():
            raise Misuse(f"{os.fspath(agent)!r} names no agent", hint=HINT)
        return Subject(os.path.abspath(path), name, objective)
    if not isinstance(agent, Agent | AsyncAgent):
        raise Misuse(f"a {type(agent).__name__} is no agent", hint=HINT)
    body = agent.spec.body
    module = sys.modules.get(getattr(body, "__module__", ""))
    path = getattr(module, "__file__", None)
    names = [name for name, value in vars(module).items() if value is agent] if module is not None else []
    if path is None or not names:
        raise Misuse(
            f"agent {agent.name} stands in no file under a name of its own, so a new process could not load it",
            hint="define it at the top of a module, not inside a function",
        )
    return Subject(os.path.abspath(path), names[0], objective)
