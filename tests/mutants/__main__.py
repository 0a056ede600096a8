"""`make mutants`: plant every fault, and show what caught it. A survivor makes the exit code 1.

Words on the command line choose the faults whose name or file contains one of them.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.mutants.planting import Mutant, Verdict, judge, sound
from tests.mutants.swept import SWEPT
from tests.mutants.tested import TESTED

AT_ONCE = 2
SHOWN = 80


def table(verdicts: list[tuple[Mutant, Verdict]]) -> Table:
    """One row for each fault."""
    shown = Table("fault", "file", "caught by", box=None, pad_edge=False)
    shown.add_column("saying")
    shown.add_column("s", justify="right")
    for mutant, verdict in verdicts:
        by = (mutant.by.rpartition("::")[2] or "the sweep") if verdict.caught else "[bold red]SURVIVED[/]"
        shown.add_row(mutant.name, mutant.file, by, escape(_short(verdict)), f"{verdict.took_s:.1f}")
    return shown


def _short(verdict: Verdict) -> str:
    """Of what caught a fault the beginning is enough; of a survivor all is shown."""
    return verdict.said[:SHOWN] + "…" if verdict.caught and len(verdict.said) > SHOWN else verdict.said


def main(words: list[str]) -> int:
    """Plant the chosen faults, two at a time."""
    chosen = [m for m in (*SWEPT, *TESTED) if not words or any(word in f"{m.name} {m.file}" for word in words)]
    began, console = time.monotonic(), Console(width=None if sys.stdout.isatty() else 240, highlight=False)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        tests = sorted({mutant.by for mutant in chosen if mutant.by})
        wholesome = [pool.submit(sound, what) for what in ([], tests) if what or any(not m.by for m in chosen)]
        verdicts = list(zip(chosen, pool.map(judge, chosen), strict=True))
        unsound = [ended for future in wholesome if (ended := future.result()).returncode]
    console.print(table(verdicts))
    survivors = [mutant.name for mutant, verdict in verdicts if not verdict.caught]
    for ended in unsound:
        console.print("without a fault:", ended.stdout[-2000:], ended.stderr[-2000:], markup=False)
    console.print(
        f"\n{len(chosen)} faults in {len({mutant.file for mutant in chosen})} files, "
        f"{len(chosen) - len(survivors)} caught, {len(survivors)} survived; {time.monotonic() - began:.0f} s"
    )
    return 1 if survivors or unsound or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
