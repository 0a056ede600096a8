"""Finding an agent: in a file the user names, or the one that is shipped.

Owns: how `agent.py:research` becomes an agent.
Must never: import anything that a store names; only what the user typed is loaded.
Invariant: a file's directory is importable while it runs, as if it had been started by itself.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from indelible.cli.faults import UserCode
from indelible.cli.screen import safe
from indelible.errors import IndelibleError, Misuse
from indelible.runtime.agents import Agent, AsyncAgent
from indelible.runtime.importing import importing

SHIPPED = "researcher"
DECLARE = "@indelible.agent(state=...)   # above the cycle function, def name(run): ..."
_REF = re.compile(r"(?s)(?P<file>.+\.pyw?)(?::(?P<name>[^:/\\]*))?\Z")

AnyAgent = Agent[Any] | AsyncAgent[Any]


def is_reference(word: str) -> bool:
    """True for a text that names an agent file rather than an objective."""
    match = _REF.fullmatch(word)
    return match is not None and (" " not in word or match["name"] is not None or Path(match["file"]).is_file())


def load(reference: str) -> AnyAgent:
    """The one agent that `reference` names. Raises `Misuse`, or `UserCode` if the file does not import."""
    found = load_all(reference)
    if len(found) == 1:
        return next(iter(found.values()))
    file = _split(reference)[0]
    raise Misuse(
        f"{safe(file)} holds {len(found)} agents: {', '.join(found)}",
        hint=f"name one of them: {safe(file)}:{next(iter(found))}",
    )


def load_all(reference: str) -> dict[str, AnyAgent]:
    """The agents that `reference` (`agent.py`, or `agent.py:name` for just one) names, by their variable."""
    file, name = _split(reference)
    module = _module(file, name)
    agents = {key: value for key, value in vars(module).items() if isinstance(value, Agent | AsyncAgent)}
    if name is None:
        if not agents:
            empty = not Path(file).expanduser().read_bytes().strip()
            raise Misuse(f"{safe(file)} {'is empty' if empty else 'defines no agent'}", hint=DECLARE)
        return agents
    if name in agents:
        return {name: agents[name]}
    listed = ", ".join(agents) or "none"
    if hasattr(module, name):
        kind = type(getattr(module, name)).__name__
        what = f"{safe(name)} in {safe(file)} is no agent but a {kind}"
    else:
        what = f"{safe(file)} has no {safe(name) or 'name after the colon'}"
    close = difflib.get_close_matches(name, agents, n=1) or list(agents)[:1]
    hint = f"{safe(file)}:{close[0]}" if close else DECLARE
    raise Misuse(f"{what}; agents there: {listed}", hint=hint)


def shipped(corpus: str | None, deliver: str | None, model: str | None, to: str | None) -> AnyAgent:
    """The researcher that comes with Indelible, set up. Raises what its options deserve."""
    from indelible.agents.researcher import configure

    agent: AnyAgent = configure(corpus, deliver, model, to)
    return agent


def _split(reference: str) -> tuple[str, str | None]:
    match = _REF.fullmatch(reference)
    if match is None:
        raise Misuse(f"{safe(reference)!r} names no agent file", hint='indelible run agent.py:research "OBJECTIVE"')
    return match["file"], match["name"]


def _module(file: str, name: str | None) -> ModuleType:
    path = Path(file).expanduser()
    if not path.is_file():
        folder = path.parent
        near = sorted(other.name for other in folder.glob("*.py"))[:50] if folder.is_dir() else []
        close = difflib.get_close_matches(path.name, near, n=1) or (near if len(near) == 1 else [])
        named = f":{name}" if name else ""
        hint = safe(f"{folder / close[0]}{named}") if close else f"ls {safe(folder)}"
        raise Misuse(f"there is no file {safe(file)}", hint=hint)
    path = path.resolve()
    loaded = sys.modules.get(path.stem)
    if loaded is not None:
        if getattr(loaded, "__file__", None) == str(path):
            return loaded
        raise Misuse(
            f"{safe(file)} would be imported as {path.stem!r}, which is the name of another module",
            hint=f"mv {safe(file)} {safe(path.with_name(path.stem + '_agent.py').name)}",
        )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise Misuse(f"{safe(file)} cannot be loaded as Python", hint="give it a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    sys.modules[path.stem] = module
    try:
        with importing(safe(file)):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[path.stem]
        if isinstance(error, IndelibleError):
            raise
        raise UserCode(f"{safe(file)} could not be imported") from error
    return module
