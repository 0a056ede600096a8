"""The sweep notices faults: each of a table of one-line faults is planted in a copy of the source and swept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import indelible
from tests.simulation.mutants import MUTANTS, Mutant

PACKAGE = Path(indelible.__file__).parent
ROOT = Path(__file__).parents[2]
SOUND = Mutant("no fault", "core/perform.py", "", "", "no problem")


def planted(mutant: Mutant, folder: Path) -> subprocess.CompletedProcess[str]:
    """The end of a sweep of a copy of the source that has the fault."""
    shutil.copytree(PACKAGE, folder / "indelible", ignore=shutil.ignore_patterns("__pycache__", "cli", "agents"))
    file = folder / "indelible" / mutant.file
    text = file.read_text(encoding="utf-8")
    if mutant.old:
        assert text.count(mutant.old) == 1, f"{mutant.old!r} stands {text.count(mutant.old)} times in {mutant.file}"
        file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "tests.simulation.sweep_once"]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def sweeps(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Future[subprocess.CompletedProcess[str]]]]:
    with ThreadPoolExecutor(2) as pool:
        folders = {mutant: tmp_path_factory.mktemp("planted") for mutant in (SOUND, *MUTANTS)}
        yield {mutant.name: pool.submit(planted, mutant, folder) for mutant, folder in folders.items()}


def test_a_copy_without_a_fault_is_sound(sweeps: dict[str, Future[subprocess.CompletedProcess[str]]]) -> None:
    ended = sweeps[SOUND.name].result()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert SOUND.caught in ended.stdout


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: str(mutant.name))
def test_a_planted_fault_is_caught(mutant: Mutant, sweeps: dict[str, Future[subprocess.CompletedProcess[str]]]) -> None:
    """Caught by the checker that is there for it, and not by chance."""
    ended = sweeps[mutant.name].result()
    assert ended.returncode == 1, f"{mutant.name} was not caught: {ended.stdout}{ended.stderr[-2000:]}"
    assert mutant.caught in ended.stdout, f"{mutant.name} was caught otherwise: {ended.stdout[:2000]}"
