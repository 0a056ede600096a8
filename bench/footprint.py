"""What Indelible costs before it does anything: the import, and the installed distributions.

Owns: the fresh processes that import, and the closure of the requirements.
Must never: count an extra.
Invariant: the import is timed as a whole process less one that does nothing.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from statistics import median
from time import perf_counter

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from processes import environment
from table import Row, at_most

IMPORT_LIMIT_MS = 100
DISTRIBUTIONS = 15
_PROJECT = Path(__file__).parent.parent / "pyproject.toml"


def measure(folder: Path, times: int) -> list[Row]:
    """The import in a fresh process, and how many distributions a core install takes, itself included."""
    bare, whole = [], []
    environ = environment(folder)
    for _ in range(times + 1):
        bare.append(_wall("pass", environ))
        whole.append(_wall("import indelible", environ))
    del bare[0], whole[0]  # they compiled what an installer compiles
    count = len(core_install())
    return [
        at_most("import indelible", (median(whole) - median(bare)) * 1e3, IMPORT_LIMIT_MS, "ms"),
        at_most("core install", count, DISTRIBUTIONS, "distributions"),
    ]


def core_install() -> set[str]:
    """Every distribution that `pip install indelible` takes here."""
    found = {"indelible"}
    project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]
    queue: list[str] = list(project["dependencies"])
    while queue:
        requirement = Requirement(queue.pop())
        name = canonicalize_name(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        try:
            queue += requires(name) or []
        except PackageNotFoundError:
            continue
    return found


def _wall(code: str, environ: dict[str, str]) -> float:
    began = perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=environ)
    return perf_counter() - began
