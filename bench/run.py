"""The benchmark: `make bench`, or `python bench/run.py [--quick] [--json] [--dir DIR]`.

Owns: the order of the measurements and the one table they end in.
Must never: let a figure pass that was measured in another run.
Invariant: everything is measured in one run, side by side; the exit code is 1 if a limit was missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import fleet
import footprint
import long_run
import machine
import resume
import stores
import table


def main() -> int:
    """Measure, print, and say by the exit code whether every limit holds."""
    parser = argparse.ArgumentParser(description="Measure Indelible beside the floor, on this machine.")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything; for a look, not for a claim")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--dir", default=".", help="where to put the databases: the disk that is measured")
    options = parser.parse_args()
    part = 10 if options.quick else 1
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=options.dir) as name:
        folder = Path(name).resolve()
        facts = machine.facts(folder)
        rows = measure(folder, part)
        facts["fsync"] += f"; {machine.fsync_ms(folder):.3f} at the end"
    if options.json:
        print(json.dumps({"machine": facts, "rows": [row._asdict() for row in rows]}, indent=1))
    else:
        print(table.render(rows, facts))
    return 1 if any(row.ok is False for row in rows) else 0


def measure(folder: Path, part: int) -> list[table.Row]:
    """All rows; `part` is by what to divide the number of cycles."""
    _say("one run beside the floor")
    found = long_run.measure(folder, 5_000 // part)
    rows = found.rows()
    _say("deeds")
    rows += long_run.measure_deed(folder, 500 // part)
    _say("resume")
    rows += resume.measure(folder, found.cycles, 9 if part == 1 else 3)
    _say("50 runs")
    rows += fleet.measure(folder, 100 // part)
    _say("every store")
    rows += stores.measure(folder, part)
    _say("import and installation")
    return rows + footprint.measure(folder, 11 if part == 1 else 3)


def _say(what: str) -> None:
    print(f"measuring: {what} ...", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
