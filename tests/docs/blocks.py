"""The code blocks of the documentation, and how to run them.

Owns: the marks behind a fence.

    ```python                a fragment: it must compile
    ```python runnable       it runs, in the page's own empty directory
    ```python file=agent.py  it is saved there under that name
    ```console runnable      its lines after "$ " run there, without a shell; the rest is what they print
    ```text output           what the runnable block before it prints

Must never: run a block that is not marked.
Invariant: a page's blocks run from top to bottom in one directory, so a page can build on itself.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ASSIGNMENT = re.compile(r"[A-Z_]+=")
COMMANDS = {"python": "", "indelible": " -m indelible"}
RUN_SECONDS = 60


class Block(NamedTuple):
    """One fenced block: the page and line it starts at, the words behind the fence, the text inside."""

    page: str
    line: int
    marks: tuple[str, ...]
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str:
        return next((mark.removeprefix("file=") for mark in self.marks if mark.startswith("file=")), "")


def blocks(page: str, markdown: str) -> list[Block]:
    """The fenced blocks of a page, from top to bottom."""
    found = []
    for match in FENCE.finditer(markdown):
        line = markdown.count("\n", 0, match.start()) + 1
        found.append(Block(page, line, tuple(match[1].split()), match[2]))
    return found


def steps(block: Block) -> list[tuple[str, str]]:
    """A console block as (command, what it should print)."""
    found: list[tuple[str, str]] = []
    for line in block.text.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:].strip(), ""))
        elif not found:
            raise ValueError(f"{block.where}: a console block starts with a command")
        else:
            found[-1] = found[-1][0], found[-1][1] + line
    return found


def differences(page: list[Block], directory: Path) -> Iterator[str]:
    """Run a page's marked blocks in `directory`; say where one fails or prints something else."""
    make_commands(directory / "bin")
    for at, block in enumerate(page):
        language = block.marks[0] if block.marks else ""
        if block.file:
            (directory / block.file).write_text(block.text, encoding="utf-8")
        elif "runnable" in block.marks and language == "python":
            done = run([sys.executable, "-c", block.text], directory)
            if done.returncode:
                yield f"{block.where}: exit code {done.returncode}\n{done.stdout}"
            after = page[at + 1] if at + 1 < len(page) else block
            if after.marks[1:] == ("output",) and done.stdout != after.text:
                yield f"{after.where}: the page says\n{after.text}but the code prints\n{done.stdout}"
        elif "runnable" in block.marks and language == "console":
            for command, expected in steps(block):
                done = run(shlex.split(command), directory)
                printed = done.stdout + (f"{signal.strsignal(-done.returncode)}\n" if done.returncode < 0 else "")
                if printed != expected:
                    yield f"{block.where}: $ {command}\nthe page says\n{expected}but it prints\n{printed}"
        elif "runnable" in block.marks:
            yield f"{block.where}: do not know how to run {language!r}"


def run(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a command, `NAME=value` before it allowed, with stdout and stderr together as on a terminal."""
    asked = dict(word.split("=", 1) for word in takewhile(ASSIGNMENT.match, command))
    here = str(directory / "bin")
    env = {
        **os.environ,
        **asked,
        "PATH": here + os.pathsep + os.environ.get("PATH", ""),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        command[len(asked) :],
        cwd=directory,
        env=env,
        text=True,
        timeout=RUN_SECONDS,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def make_commands(directory: Path) -> None:
    """Let `python` and `indelible` mean the interpreter and the project under test."""
    directory.mkdir()
    for name, start in COMMANDS.items():
        script = directory / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}"{start} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
