"""A sweep that ends with the first problem, as a program: for a source tree with a planted fault.

Prints the problem, or the number of points; its exit code is 1 if there is a problem.
"""

from __future__ import annotations

import sys

from indelible.core import snapshots
from indelible.errors import IndelibleError
from indelible.testing.simulate import sweep
from tests.simulation import workload_async, workload_retried, workload_sync


def main() -> int:
    """Sweep until something is found."""
    snapshots.FIRST_AFTER_BYTES = 1_500
    points = 0
    for workload in (workload_async.OWN_LOOP, workload_retried.WORKLOAD, workload_sync.WORKLOAD):
        try:
            report = sweep(workload, double=False, stop_early=True)
        except IndelibleError as error:
            sys.stdout.write(f"{workload.name}: untouched: {error}\n")
            return 1
        if report.problems:
            sys.stdout.write(f"{workload.name}: after {report.points} points: " + "\n".join(report.problems) + "\n")
            return 1
        points += report.points
    sys.stdout.write(f"{points} points, no problem\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
