"""What Indelible costs before it does anything: the import, and the installed distributions.

Owns: the fresh processes that import, and the closure of the requirements.
Must never: count an extra.
Invariant: the import is timed as a whole process less one that does nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from statistics import median
from time import perf_counter

from table import Row, at_most

IMPORT_LIMIT_MS = 100
DISTRIBUTIONS = 15
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_PROJECT = Path(__file__).parent.parent / "pyproject.toml"


def measure(times: int) -> list[Row]:
    """The import in a fresh process, and how many distributions a core install takes, itself included."""
    bare, whole = [], []
    for _ in range(times):
        bare.append(_wall("pass"))
        whole.append(_wall("import indelible"))
    names = core_install()
    return [
        at_most("import indelible", (median(whole) - median(bare)) * 1e3, IMPORT_LIMIT_MS, "ms"),
        at_most("core install", len(names), DISTRIBUTIONS, "distributions", f"  ({', '.join(sorted(names))})"),
    ]


def core_install() -> set[str]:
    """Every distribution that `pip install indelible` takes here."""
    found = {"indelible"}
    queue = [_named(line) for line in tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]]
    while queue:
        name = queue.pop()
        if name in found:
            continue
        found.add(name)
        try:
            lines = requires(name) or []
        except PackageNotFoundError:
            continue
        # A marker that names no extra is taken to hold: rather one too many than one too few.
        queue += [_named(line) for line in lines if "extra ==" not in line]
    return found


def _named(requirement: str) -> str:
    match = _NAME.match(requirement)
    assert match is not None
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def _wall(code: str) -> float:
    began = perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return perf_counter() - began
