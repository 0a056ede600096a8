"""The machine a measurement was made on.

Owns: the facts without which the figures mean nothing.
Must never: change a setting.
Invariant: a fact that cannot be found out is "unknown", not an error.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from statistics import median
from time import perf_counter

import apsw
import zstandard

SYNCS = 200


def facts(folder: Path) -> dict[str, str]:
    """CPU, Python, SQLite, file system, and what one fsync costs in `folder`."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return {
        "cpu": f"{os.cpu_count()} x {_cpu()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}, {platform.system()}",
        "sqlite": f"{apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()}), zstandard {zstandard.__version__}",
        "file system": _file_system(folder),
        "fsync": f"{fsync_ms(folder):.3f} ms (median of {SYNCS}, 4 KB written each time)",
        "load": f"{load:.1f} at the start",
    }


def fsync_ms(folder: Path) -> float:
    """The median cost of writing 4 KB and syncing it, in milliseconds."""
    descriptor = os.open(folder / "fsync", os.O_RDWR | os.O_CREAT, 0o600)
    sync = getattr(os, "fdatasync", os.fsync)
    times: list[float] = []
    try:
        os.ftruncate(descriptor, 0)
        for _ in range(SYNCS):
            # As in a WAL that has been through a checkpoint: blocks that exist are overwritten.
            began = perf_counter()
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, os.urandom(4096))
            sync(descriptor)
            times.append(perf_counter() - began)
    finally:
        os.close(descriptor)
        os.unlink(folder / "fsync")
    return median(times) * 1e3


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _file_system(folder: Path) -> str:
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    best, kind = "", "unknown"
    for mount in mounts:
        _device, at, found, *_ = mount.split()
        at = at.encode().decode("unicode_escape")
        if folder.resolve().is_relative_to(at) and len(at) >= len(best):
            best, kind = at, found
    return kind
