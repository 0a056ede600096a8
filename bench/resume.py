"""Resuming a long run in a fresh process: the time until it can enter its next cycle.

Owns: the processes that resume, on copies of the run's store.
Must never: count the start of Python or the imports; they are the same for every program.
Invariant: each process works on its own copy, so that no resume makes the next one longer or shorter.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

import long_run
from processes import environment
from table import Row, at_most, scale

LIMIT_MS = 150


def measure(folder: Path, cycles: int, times: int) -> list[Row]:
    """Resume the run as it is, with the file in no cache, and at the worst moment: just before a snapshot."""
    here = _resumes(folder, times)
    cold = _resumes(folder, max(3, times // 2), cold=True)
    longer = long_run.go_on_until_due(folder)
    worst = _resumes(folder, times)
    return [
        at_most(f"resume of {cycles:,} cycles", here, LIMIT_MS, "ms"),
        scale("  the same, file not in the page cache", cold, "ms"),
        at_most(f"  worst moment: {longer:,} cycles, snapshot due", worst, LIMIT_MS, "ms"),
    ]


def _resumes(folder: Path, times: int, *, cold: bool = False) -> float:
    took: list[float] = []
    for _ in range(times + 1):
        copy = folder / "resume.db"
        for part in ("", "-wal", "-shm"):
            source = folder / f"long.db{part}"
            if source.exists():
                shutil.copyfile(source, f"{copy}{part}")
                _settle(Path(f"{copy}{part}"), cold)
        child = subprocess.run([sys.executable, __file__, str(copy)], stdout=subprocess.PIPE, text=True, check=True,
                               env=environment(folder))  # fmt: skip
        took.append(float(child.stdout))
        for part in ("", "-wal", "-shm"):
            Path(f"{copy}{part}").unlink(missing_ok=True)
    return median(took[1:])  # the first one compiled what an installer compiles


def _settle(path: Path, cold: bool) -> None:
    """The copy on the disk, and with `cold` no longer in memory."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        if cold and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _resume(path: str) -> float:
    # The store is imported when it is opened; that is an import all the same.
    import indelible as ind
    import indelible.stores.sqlite
    from workload import worker

    began = perf_counter()
    with ind.open(path) as store, store.run(long_run.RUN, worker) as run:
        assert run.is_active
        return perf_counter() - began


if __name__ == "__main__":
    print(_resume(sys.argv[1]) * 1e3)
