"""What the child processes of the benchmark run in.

Owns: their environment.
Must never: change this process's own.
Invariant: a child finds compiled modules, as after an installation, whatever is set outside.
"""

from __future__ import annotations

import os
from pathlib import Path


def environment(folder: Path) -> dict[str, str]:
    """This process's environment, with compiled modules kept in `folder`."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
