"""The project's files, as the tidy checks see them.

Owns: which files are ours, and how a path becomes a module name.
Must never: ask git (a source archive has none), or look into a venv or a build.
Invariant: every file a person maintains is listed once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TEXT_SUFFIXES = {".py", ".md", ".toml", ".sql", ".txt", ".yml", ".json", ".html", ".css", ".js"}
TEXT_NAMES = {"Makefile", "run", "LICENSE", ".gitignore"}
NOT_OURS = {"__pycache__", "build", "dist", "out", "node_modules"}
KEPT_DOT_DIRS = {".ci"}


class Source(NamedTuple):
    """One Python file: where it is, what it is called when imported, and its text."""

    path: str
    module: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return _parse(self.text, self.path)


@cache
def _parse(text: str, path: str) -> ast.Module:
    return ast.parse(text, path)


def is_ours(directory: Path) -> bool:
    name = directory.name
    return name not in NOT_OURS and not name.endswith(".egg-info") and (name[0] != "." or name in KEPT_DOT_DIRS)


def text_files(root: Path = ROOT) -> Iterator[Path]:
    """Every text file below `root` that a person maintains, in a stable order."""
    for path in sorted(root.iterdir()):
        if path.is_dir():
            if is_ours(path):
                yield from text_files(path)
        elif path.suffix in TEXT_SUFFIXES or path.name in TEXT_NAMES:
            yield path


def module_name(path: str) -> str:
    """`src/indelible/core/__init__.py` is `indelible.core`; `tests/unit/test_x.py` is `tests.unit.test_x`."""
    parts = path.removeprefix("src/").removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources(*tops: str) -> list[Source]:
    """The Python files below these top-level folders (all of them, if none is named)."""
    found = []
    for path in text_files():
        name = path.relative_to(ROOT).as_posix()
        if path.suffix == ".py" and (not tops or name.split("/")[0] in tops):
            found.append(Source(name, module_name(name), path.read_text(encoding="utf-8")))
    return found
