"""Many traces under every strategy, in one table.

Owns: the sums by kind of agent, and how they are printed.
Must never: add up what was not encoded.
Invariant: a kind's bytes are the sum over its traces of all bytes that a strategy wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from indelible.bill import compression
from indelible.bill.strategies import OURS, STRATEGIES, encode, raw_bytes
from indelible.bill.traces import read
from indelible.errors import Misuse

RAW = "raw"


@dataclass(slots=True)
class Kind:
    """The traces of one kind of agent: `written` by strategy, and under "raw" what the agent added to its state, once.
    `snapshots` are the bytes of them that are in `written` of ours."""

    name: str
    traces: int = 0
    loops: int = 0
    snapshots: int = 0
    written: dict[str, int] = field(default_factory=lambda: dict.fromkeys((RAW, *STRATEGIES), 0))
    cpu_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STRATEGIES, 0.0))
    notices: list[str] = field(default_factory=list)


Progress = Callable[[Path, int, int], None]
"""Called with a trace, and how many of its loops are done."""


def measure(paths: Iterable[Path], progress: Progress | None = None, *, per: str = "loop") -> list[Kind]:
    """Every trace under every strategy, summed by kind, in the order of the names. A folder stands for the traces in
    it. Raises what `traces.read` raises, and `Misuse` if there is no trace."""
    kinds: dict[str, Kind] = {}
    for path in files(paths):
        course = read(path, per=per)
        kind = kinds.setdefault(course.kind, Kind(course.kind))
        kind.traces += 1
        kind.loops += len(course.loops)
        kind.snapshots += sum(course.snapshots)
        kind.notices += course.notices
        kind.written[RAW] += raw_bytes(course)
        for encoded in encode(course, _told(progress, path)):
            kind.written[encoded.strategy] += encoded.footprint.writes.total
            kind.cpu_s[encoded.strategy] += encoded.cpu_s
    return [kinds[name] for name in sorted(kinds)]


def files(paths: Iterable[Path]) -> list[Path]:
    """The traces that `paths` name, a folder's by name. Raises `Misuse` if there are none."""
    found = [each for path in paths for each in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]
    if not found:
        raise Misuse("there is no trace to read", hint="indelible bill --trace FILE.jsonl")
    return found


def _told(progress: Progress | None, path: Path) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, of: progress(path, done, of)


def render(kinds: list[Kind]) -> str:
    """The bytes under each strategy, a column a kind, and the processor time of all of them."""
    wide = [max(14, len(kind.name) + 2) for kind in kinds]

    def line(name: str, cells: Iterable[str], cpu: str = "") -> str:
        return f"{name:<26}" + "".join(f"{cell:>{w}}" for cell, w in zip(cells, wide, strict=True)) + f"{cpu:>9}"

    lines = [
        line("", [kind.name for kind in kinds], "CPU s"),
        line("traces", [f"{kind.traces:,}" for kind in kinds]),
        line("loops", [f"{kind.loops:,}" for kind in kinds]),
        line(RAW, [f"{kind.written[RAW]:,}" for kind in kinds]),
    ]
    for name in STRATEGIES:
        cpu_s = sum(kind.cpu_s[name] for kind in kinds)
        lines.append(line(name, [f"{kind.written[name]:,}" for kind in kinds], f"{cpu_s:.3f}"))
    lines.append(line("  of that, snapshots", [f"{kind.snapshots:,}" for kind in kinds]))
    lines.append(
        line("  as a share of raw", [f"{kind.written[OURS] / (kind.written[RAW] or 1):.3f}" for kind in kinds])
    )
    return "\n".join(each.rstrip() for each in lines)


def report(paths: Iterable[Path], progress: Progress | None = None, *, per: str = "loop") -> str:
    """Both tables as text: the traces under every strategy, what could not be read of them, and the compression of the
    journal of the largest. Raises as `measure` does."""
    paths = files(paths)
    kinds = measure(paths, progress, per=per)
    parts = [render(kinds), *(notice for kind in kinds for notice in kind.notices)]
    largest = max(paths, key=lambda path: path.stat().st_size)
    for actions, told in ((True, "as of a run"), (False, "with each content once")):
        rows = compression.table(read(largest, per=per, actions=actions))
        parts += [f"\nthe journal of {largest.name}, {told}:", compression.render(rows)]
    return "\n".join(parts)
