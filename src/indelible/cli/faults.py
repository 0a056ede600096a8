"""How errors look on the command line, and which exit code each has.

Owns: the two lines of an error of ours, and the tail of a traceback through the user's code.
Must never: print a payload or a secret on its own account, or hide the user's own error.
Invariant: an error of ours prints without a traceback, unless --debug asks for it.
"""

from __future__ import annotations

import shlex
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from indelible.cli.options import FAULT, MISUSE
from indelible.cli.screen import moment, note, safe
from indelible.errors import IndelibleError, Misuse, RunBusy, RunMismatch, UnknownRun

_PACKAGE = str(Path(__file__).resolve().parents[1])
_FRAMES = 6


class UserCode(Exception):
    """Something of the user's raised; the cause is what, and the text says where."""


def report(error: BaseException, store: str, *, debug: bool) -> int:
    """Print an error on standard error and return the exit code that goes with it."""
    if debug:
        note("\n".join(safe(line) for line in "".join(traceback.format_exception(error)).rstrip().split("\n")))
    if isinstance(error, IndelibleError):
        for line in lines(error, store):
            note(line)
        return MISUSE if isinstance(error, Misuse | UnknownRun | RunMismatch) else FAULT
    cause = error.__cause__ if isinstance(error, UserCode) and error.__cause__ is not None else error
    if not debug:
        for line in tail(cause):
            note(line)
    if isinstance(error, UserCode):
        note(f"error: {safe(error)}: {safe(_named(cause), 500)}")
    else:
        note(f"error: {safe(_named(cause), 500)}")
    return FAULT


def lines(error: IndelibleError, store: str) -> Iterator[str]:
    """What happened, and what to do about it."""
    what = error.what
    if isinstance(error, RunBusy):
        what += _since(error, store)
    yield f"error: {safe(what)} [{error.code}]"
    if error.hint:
        yield f"  try: {safe(_with_store(error, store))}"


def tail(error: BaseException) -> Iterator[str]:
    """The frames of the user's own code, the last ones, without ours above and between them."""
    summary = traceback.TracebackException.from_exception(error)
    frames = [frame for frame in summary.stack if not _ours(frame.filename)]
    if frames:
        yield "Traceback (most recent call last):"
    for frame in frames[-_FRAMES:]:
        yield f'  File "{safe(frame.filename)}", line {frame.lineno}, in {safe(frame.name)}'
        if frame.line:
            yield f"    {safe(frame.line)}"
    if isinstance(error, SyntaxError) and error.filename:
        yield f'  File "{safe(error.filename)}", line {error.lineno}'
        if error.text:
            yield f"    {safe(error.text.strip())}"


def _ours(filename: str) -> bool:
    return filename.startswith((_PACKAGE, "<frozen importlib"))


def _named(error: BaseException) -> str:
    try:
        message = str(error)
    except Exception as broken:
        message = f"(its text cannot be read: {type(broken).__name__})"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _with_store(error: IndelibleError, store: str) -> str:
    """The hint as a command that finds the store and the run it is about."""
    hint = error.hint
    run = error.ids.get("run") or error.ids.get("run_id")
    if run is not None and hint.startswith("indelible "):
        hint = hint.replace(" RUN", f" {shlex.quote(str(run))}", 1)
    if not hint.startswith("indelible ") or "--store" in hint or hint.startswith("indelible copy "):
        return hint
    from indelible.cli.options import command

    given = command("x", "y", store=store).removeprefix("indelible x").removesuffix(" y")
    verb = hint.split(" ")[1]
    return hint.replace(f"indelible {verb}", f"indelible {verb}{given}") if verb.isalpha() else hint


def _since(error: RunBusy, store: str) -> str:
    """Since when a busy run is held, if its journal tells."""
    from indelible.cli.reading import reading
    from indelible.core import events as ev

    run = error.ids.get("run_id") or error.ids.get("run")
    claimed = 0.0
    try:
        with reading(store) as runs:
            for _, event in runs.events(str(run)):
                if isinstance(event, ev.RunClaimed):
                    claimed = event.at
    except IndelibleError:
        return ""
    return f"; it took the run up at {moment(claimed)}" if claimed else ""


def broken_pipe() -> int:
    """Whoever read our output has gone: end quietly, as other programs do."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141
