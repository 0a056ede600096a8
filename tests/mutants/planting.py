"""Planting a fault in a copy of the source, and what catches it there.

Owns: the copy, the command that runs against it, and the verdict.
Must never: change the source itself.
Invariant: a fault counts as caught only if what is there for it says what was expected of it; not if the copy
fails in some other way, hangs, or could not be made.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import indelible

PACKAGE = Path(indelible.__file__).resolve().parent
ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 300.0


class Mutant(NamedTuple):
    """`old` stands once in `file`, and is replaced by `new`; something that says `caught` must come of it.

    `by` is the test that is there for such a fault, as pytest names it; "" is the simulated sweep.
    """

    name: str
    file: str
    old: str
    new: str
    caught: str
    by: str = ""


class Verdict(NamedTuple):
    """`said` is the first line of what caught it, or why it counts as a survivor."""

    caught: bool
    said: str
    took_s: float


def misplaced(mutant: Mutant) -> str:
    """Why the fault cannot be planted any more; "" if it can."""
    count = (PACKAGE / mutant.file).read_text(encoding="utf-8").count(mutant.old)
    return "" if count == 1 else f"{mutant.old!r} stands {count} times in {mutant.file}"


def plant(mutant: Mutant, folder: Path) -> None:
    """Make a copy of the package in `folder` that has the fault."""
    shutil.copytree(PACKAGE, folder / "indelible", ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "indelible" / mutant.file
    file.write_text(file.read_text(encoding="utf-8").replace(mutant.old, mutant.new), encoding="utf-8")


def run(folder: Path, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Run tests, or the sweep if there are none, with the package that is in `folder`."""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))),
        "COLUMNS": "400",  # pytest cuts off what it says at the end of the line
        "PYTEST_ADDOPTS": "",
    }
    command = [sys.executable, "-m", "tests.simulation.sweep_once"]
    if nodes := [str(ROOT / test) for test in tests]:
        command = [sys.executable, "-m", "pytest", "-x", "--tb=short", f"--basetemp={folder / 'tmp'}", *nodes]
    return subprocess.run(
        command, env=env, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )  # fmt: skip


def sound(tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """The end of the same command for a copy without a fault."""
    with tempfile.TemporaryDirectory() as name:
        plant(Mutant("no fault", "__init__.py", "\0", "", ""), Path(name))
        return run(Path(name), tests)


def judge(mutant: Mutant) -> Verdict:
    """Plant the fault, run what is there for it, and say whether it was caught."""
    began = time.monotonic()

    def verdict(caught: bool, said: str) -> Verdict:
        return Verdict(caught, said, time.monotonic() - began)

    if why := misplaced(mutant):
        return verdict(False, why)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plant(mutant, folder)
        try:
            ended = run(folder, (mutant.by,) if mutant.by else ())
        except subprocess.TimeoutExpired:
            return verdict(False, f"no end within {PATIENCE_S:g} s")
    if ended.returncode == 0:
        return verdict(False, "nobody noticed")
    said = _said(ended.stdout)
    if ended.returncode != 1 or mutant.caught not in ended.stdout or not said:
        lines = (ended.stdout + ended.stderr).strip().splitlines() or ["nothing"]
        return verdict(False, f"expected {mutant.caught!r}, but it said: {said or lines[-1]}")
    return verdict(True, said)


def _said(output: str) -> str:
    """The line that tells what is wrong: of pytest the summary of the failed test, of the sweep its problem."""
    lines = output.strip().splitlines()
    failed = [line.partition(" - ")[2] or line for line in lines if line.startswith("FAILED ")]
    return (failed or lines or [""])[0]
