"""`indelible prove`: a proof on the user's own agent, as a table or as JSON.

Owns: what is typed, what is shown meanwhile, and the exit code.
Must never: judge; `indelible.testing.prove` does that.
Invariant: the report is all that goes to standard output.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any

from indelible.cli import loading
from indelible.cli.options import FINISHED, FOUND
from indelible.cli.run import Setup, check_objective, no_objective, split
from indelible.cli.screen import dump, many, note, safe, say, table
from indelible.testing.prove import Progress, Proof, crash_everywhere

BETWEEN_LINES_S = 5.0

_RESEARCHER = '''"""The shipped researcher with the options that were typed."""

from indelible.agents.researcher import configure

researcher = configure({corpus!r}, {deliver!r}, {model!r}, {to!r})
'''


def prove(words: list[str], setup: Setup, *, full: bool, seed: int, as_json: bool, answer: str, world: bool) -> int:
    """Prove the agent that `words` name, and say what was found."""
    reference, objective = split(words, "prove")
    if objective is None:
        raise no_objective(reference, "prove")
    check_objective(objective, reference, "prove")
    with tempfile.TemporaryDirectory(prefix="indelible-prove-") as folder, _progress() as progress:
        agent = _named(reference) if reference else _shipped(setup, Path(folder))
        proof = crash_everywhere(agent, objective, quick=not full, seed=seed, world=world, answer=answer,
                                 progress=progress, folder=folder)  # fmt: skip
    if as_json:
        dump(proof.to_json())
    else:
        _show(proof)
        if not proof.holds:
            options = ["--full"] * full + ["--no-world"] * (not world) + ["--seed", str(seed), "--answer", answer]
            for name, value in asdict(setup).items():
                options += [f"--{name}", value] if value is not None else []
            given = [*options, "--", *filter(None, [reference]), objective]
            say(f"again: indelible prove {safe(shlex.join(given))}")
    return FINISHED if proof.holds else FOUND


def _named(reference: str) -> str:
    """The reference with the name of its agent, which is told if it is the only one."""
    found = loading.load_all(reference)
    loading.load(reference)
    file = reference if ":" not in os.path.basename(reference) else reference.rpartition(":")[0]
    return f"{file}:{next(iter(found))}"


def _shipped(setup: Setup, folder: Path) -> str:
    file = folder / "researcher.py"
    corpus = os.path.abspath(setup.corpus) if setup.corpus else None
    setup.agent()  # what is wrong with the options is said once, and here
    file.write_text(_RESEARCHER.format(corpus=corpus, deliver=setup.deliver, model=setup.model, to=setup.to),
                    encoding="utf-8")  # fmt: skip
    return f"{file}:researcher"


def _show(proof: Proof) -> None:
    table(("proof", proof.mode), [*proof.rows()])
    for finding in proof.findings:
        say(f"found: {safe(finding.sentence)}")
        say(f"  {finding.cases} cases; the first: {safe(finding.where)}")
    for text in proof.notes:
        say(f"note: {safe(text)}")


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on a terminal, a line now and then elsewhere; on standard error."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
        with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
            tasks: dict[str, Any] = {}

            def draw(part: str, done: int, of: int) -> None:
                if part not in tasks:
                    tasks[part] = bars.add_task(part, total=of or None)
                bars.update(tasks[part], completed=done, total=of or None)

            yield draw
        return
    told: dict[str, float] = {}

    def line(part: str, done: int, of: int) -> None:
        if part not in told or done == of or monotonic() - told[part] > BETWEEN_LINES_S:
            told[part] = monotonic()
            note(f"{part}: {done:,} of {of:,}" if of else f"{part}: {many(done, 'cycle')} so far")

    yield line
