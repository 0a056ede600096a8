"""Every operation of three agents goes wrong in every way, and then their recovery dies at every point.

The workloads are in files of their own; what must be true is in `indelible.testing.checkers`.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from indelible.core import snapshots
from indelible.testing.faults import Fault
from indelible.testing.simulate import Report, Workload, sweep
from tests.figures import tell
from tests.simulation import workload_async, workload_budgeted, workload_retried, workload_sync

WORKLOADS = {w.name: w for w in (workload_sync.WORKLOAD, workload_async.WORKLOAD, workload_async.OWN_LOOP,
                                  workload_retried.WORKLOAD, workload_budgeted.WORKLOAD)}  # fmt: skip
SMALL_SNAPSHOTS = 1_500
EVERYTHING = os.environ.get("INDELIBLE_SWEEP") == "everything"


def swept(name: str) -> Report:
    """One sweep, in a process of its own; snapshots come early, so that recoveries begin from some."""
    snapshots.FIRST_AFTER_BYTES = SMALL_SNAPSHOTS
    return sweep(WORKLOADS[name], exact=EVERYTHING)


@pytest.fixture(scope="module")
def reports() -> Iterator[dict[str, Report]]:
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        yield dict(zip(WORKLOADS, pool.map(swept, WORKLOADS), strict=True))


@pytest.mark.parametrize("name", WORKLOADS)
def test_sweep(name: str, reports: dict[str, Report]) -> None:
    """B01 B02 B03 B05 B06 B07 B09 B57 B58 B59 B95 B97 B117 B119: no crash loses a result, repeats a deed or
    pays again, whatever the clock says. `INDELIBLE_SWEEP=everything` recovers every world, even those that
    differ in times and keys only."""
    report = reports[name]
    tell(f"{report}")
    assert not report.problems, str(report)
    assert report.lost == report.repeats == 0
    assert set(report.by_fault) == set(Fault)
    assert report.double_points > 20 * report.points


def test_the_sweep_meets_every_kind_of_wait(reports: dict[str, Report]) -> None:
    """What is never met is not tested: questions, approvals, doubts, divergence and spent budgets all occurred."""
    met = {kind for report in reports.values() for kind in report.waits}
    assert met >= {"ask", "approve", "doubt", "diverged", "budget"}


def test_a_sweep_is_repeatable() -> None:
    """The same workload, the same points, the same worlds: a problem that is found can be found again."""
    workload: Workload = workload_async.OWN_LOOP
    one, two = (sweep(workload, double=False) for _ in range(2))
    assert (one.points, one.worlds, one.processes, one.deeds) == (two.points, two.worlds, two.processes, two.deeds)
