"""`indelible demo`: kill a real agent again and again, and look at what is left.

Owns: the command, the order of what happens, and how it is shown.
Must never: leave a process running, or call a line good that does not hold.
Invariant: exit code 0 means that every line of the table holds (with --naive: that it was shown).
"""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from indelible.cli.demo_checkpointed import Checkpointed
from indelible.cli.demo_durable import Durable
from indelible.cli.demo_evidence import Line, Result
from indelible.cli.demo_killing import Course, Runner, choose
from indelible.cli.demo_room import Room
from indelible.cli.options import FAULT, FINISHED
from indelible.cli.screen import dump, note, safe, say, table
from indelible.drive.clock import SystemClock
from indelible.errors import Misuse

OBJECTIVE = "How does Python handle exceptions?"
MAX_KILLS = 100


@dataclass(frozen=True)
class Settings:
    """What is demonstrated. `module` replaces the process that is killed, for tests."""

    objective: str = OBJECTIVE
    kills: int = 5
    seed: int = 1
    model: str = "local"
    naive: bool = False
    corpus: str | None = None
    module: str | None = None


def demonstrate(
    settings: Settings, folder: Path, tell: Callable[[str], None], tick: Callable[[str], None]
) -> Result:  # fmt: skip
    """The uninterrupted run, the killed one, and the table; everything is kept in `folder`.

    Raises `DemoFailed` if a process ends in an error.
    """
    from indelible.agents.corpus import Corpus

    corpus = Corpus.folder(settings.corpus) if settings.corpus else Corpus.default()
    if not corpus.search(settings.objective, 1):
        raise Misuse(f"nothing in {corpus.origin} has a word in common with the objective",
                     hint=f'indelible demo "{OBJECTIVE}"')  # fmt: skip
    subject = Checkpointed() if settings.naive else Durable()
    given = {"objective": settings.objective, "model": settings.model, "corpus": settings.corpus}
    tell("first, the same objective in one uninterrupted run ...")
    reference = Runner(subject, _room(folder, "uninterrupted"), given, tell, tick).run([], [])
    tell(f"  {_summary(reference)}")
    moments = choose(settings.seed, settings.kills, len(reference.calls))
    tell(f"now with {settings.kills} times SIGKILL; the moments come from --seed {settings.seed}")
    if settings.module is not None:
        subject.module = settings.module
    usual_s = [paid.took_s for paid in reference.calls]
    course = Runner(subject, _room(folder, "killed"), given, tell, tick).run(moments, usual_s)
    tell(f"the agent came to its end: {_summary(course)}")
    comparable = not settings.model.startswith("openai:")
    lines = subject.evidence(course, reference, settings.kills, corpus, comparable)
    return Result(lines, course, reference)


def _room(folder: Path, name: str) -> Room:
    room = Room(folder / name)
    room.path.mkdir(mode=0o700)
    return room


def _summary(course: Course) -> str:
    processes = f"{course.processes} process{'es' * (course.processes != 1)}"
    return f"{len(course.calls)} model calls, {processes}, {course.took_s:.1f} s"


def _check_model(model: str) -> None:
    """Say what is missing before anything is started."""
    from indelible.agents import local
    from indelible.agents.models import ModelUnavailable, open_model

    if model != "local":
        open_model(model)
        return
    if importlib.util.find_spec("xllamacpp") is None:
        raise ModelUnavailable("the local model is not installed", hint="pip install 'indelible[local]'")
    if not local.have_weights():
        raise ModelUnavailable("the weights of the local model are not there yet", hint=local.FETCH)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """A fresh folder. One of our own making goes away again unless something went wrong in it."""
    if keep is None:
        folder = Path(tempfile.mkdtemp(prefix="indelible-demo-"))
    else:
        folder = keep.expanduser().absolute()
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            taken = any(folder.iterdir())
        except OSError as problem:
            raise Misuse(f"{str(folder)!r} cannot be made: {problem.strerror}", hint="--keep ./kept") from None
        if taken:
            raise Misuse(f"{str(folder)!r} is there already, and not empty", hint=f"--keep {shlex.quote(f'{keep}-2')}")
    try:
        yield folder
    except Misuse:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    except Exception:
        note(f"what the run left is in {safe(folder)}")
        raise
    except BaseException:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise


class _Stopped(BaseException):
    """SIGINT or SIGTERM came; the argument says which."""


def _stop(number: int, _frame: object) -> None:
    raise _Stopped(number)


def _tick(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def show(settings: Settings, keep: Path | None, as_json: bool) -> int:
    """Run the demonstration and show it; returns the exit code."""
    _check_model(settings.model)
    kind = "a JSON checkpoint after every loop" if settings.naive else "the journal"
    with _folder(keep) as folder:
        note(f"objective: {safe(settings.objective)}")
        note(f"model: {safe(settings.model)}; state kept by {kind}")
        result = demonstrate(settings, folder, lambda text: note(safe(text)), _tick)
        if as_json:
            dump(_described(settings, result, folder))
        else:
            _say(settings, result)
        if keep is not None:
            note(f"everything is kept in {safe(folder)}")
        elif result.ok or settings.naive:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            note(f"what the run left is in {safe(folder)}")
    return FINISHED if result.ok or settings.naive else FAULT


def _say(settings: Settings, result: Result) -> None:
    bad = "BROKEN" if settings.naive else "FAILED"
    marks: dict[bool | None, str] = {True: "ok", False: bad, None: ""}
    say()
    table(("evidence", "found", "expected", ""), [(*_cells(line), marks[line.ok]) for line in result.lines])
    say()
    broken = sum(line.ok is False for line in result.lines)
    if not broken:
        say("every line holds")
    elif settings.naive:
        say(f"{broken} lines do not hold; without --naive the same agent is run by Indelible")
    else:
        say(f"{broken} lines do not hold; seed {settings.seed}")


def _cells(line: Line) -> tuple[str, str, str]:
    # Spaces at the beginning of a cell are kept: they say that the line belongs to the one above.
    return line.what, line.found, line.expected


def _described(settings: Settings, result: Result, folder: Path) -> dict[str, Any]:
    return {
        "ok": result.ok,
        **{name: value for name, value in asdict(settings).items() if name not in ("corpus", "module")},
        "folder": str(folder),
        "kills": [
            {"process": kill.process, "where": kill.where, "at": kill.standing.at, "waiting": kill.standing.waiting}
            for kill in result.course.kills
        ],
        "resumed_s": result.course.up_s[1:],
        "took_s": {"uninterrupted": result.reference.took_s, "killed": result.course.took_s},
        "lines": [asdict(line) for line in result.lines],
    }  # fmt: skip


app = typer.Typer(
    name="indelible demo", add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


@app.command()
def demo(
    objective: Annotated[str, typer.Argument(metavar="[OBJECTIVE]", help="What is researched.")] = OBJECTIVE,
    kills: Annotated[int, typer.Option(min=1, max=MAX_KILLS, help="How often the agent is killed.")] = 5,
    seed: Annotated[int | None, typer.Option(help="Gives the moments; else a random one, which is shown.")] = None,
    model: Annotated[str, typer.Option(metavar="MODEL", help="local, openai:NAME or scripted.")] = "local",
    naive: Annotated[bool, typer.Option("--naive", help="With a JSON checkpoint after every loop instead.")] = False,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep everything in this new folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run the shipped researcher, kill it with SIGKILL again and again, and show the evidence that nothing was lost.

    First it runs uninterrupted, for comparison. The last kill falls between the delivery of the report and its record:
    there the process performs the delivery and then waits to be killed, for by chance that moment is hardly ever hit.
    Exits with 1 if a line of the table does not hold. With --naive the table shows what breaks, and the exit code is 0.
    """
    if not objective.strip():
        raise Misuse("the objective is empty", hint=f'indelible demo "{OBJECTIVE}"')
    chosen = seed if seed is not None else int.from_bytes(SystemClock().entropy(2), "big")
    raise typer.Exit(show(Settings(objective, kills, chosen, model, naive), keep, as_json))


def main(words: Sequence[str]) -> int:
    """The command with these words; returns its exit code. Errors of ours are passed on."""
    before = {number: signal.signal(number, _stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        code = app(args=list(words), prog_name="indelible demo", standalone_mode=False)
    except _Stopped as stopped:
        _tick("")
        note("demo: stopped; nothing is left running")
        return 128 + int(stopped.args[0])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if isinstance(code, int) else FINISHED
