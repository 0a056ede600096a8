"""Whether an agent's file is just being imported by a command, which then runs the agent itself.

Owns: the mark that is set while such a file is imported.
Must never: hold back a file that Python runs by itself.
Invariant: no run is started by an import.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from indelible.errors import Misuse

_importing: ContextVar[str] = ContextVar("indelible_importing", default="")


@contextmanager
def importing(file: str) -> Iterator[None]:
    """While `file` is imported, runs are refused."""
    token = _importing.set(file)
    try:
        yield
    finally:
        _importing.reset(token)


def must_not_be_imported(line: str) -> None:
    """Refuse a run at the module level of the file that is imported; `line` is what stands there."""
    file = _importing.get()
    if file:
        raise Misuse(
            f"{file} starts a run whenever it is imported, and this command has to import it",
            hint=f'put it under a line of its own: if __name__ == "__main__": {line}',
        )
