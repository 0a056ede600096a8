"""`indelible bill`: what a run wrote, what it would have written and cost in other ways, and what a crash costs.

Owns: what can be billed, and the order in which a bill is told.
Must never: change a run; tell a figure that is not known as zero.
Invariant: the JSON holds every figure of the tables.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from indelible.bill import claims, compression, plots, runs, tables, traces
from indelible.bill.costs import shown
from indelible.bill.course import Course
from indelible.bill.physical import Physical, physical
from indelible.bill.prices import Prices, Storage, load
from indelible.bill.report import Report, as_json, explained, report
from indelible.bill.sample import Assumed, Part, Sample
from indelible.bill.strategies import encode
from indelible.cli import bill_tables as show
from indelible.cli.reading import about, reading, recover
from indelible.cli.screen import dump, note, safe, say
from indelible.errors import FormatTooNew, JournalDamaged, Misuse, UnknownRun
from indelible.runtime.meter import Meter, total
from indelible.runtime.runstore import RunStore

S3 = ("s3-standard", "s3-standard-ia", "s3-express")
_MANY_LOOPS = 200
_REDRAW_S = 0.2


@dataclass(frozen=True, slots=True)
class What:
    """What is to be billed: one of these."""

    run: str | None = None
    every: bool = False
    trace: Path | None = None
    traces: Path | None = None

    @property
    def given(self) -> int:
        """How many of them were asked for."""
        return sum([self.run is not None, self.every, self.trace is not None, self.traces is not None])

    def check_none(self, option: str) -> None:
        """Raises `Misuse` if there is something that `option` has no use for."""
        if self.given:
            raise Misuse(f"{option} makes its own runs, and takes no run and no trace", hint=f"indelible bill {option}")

    def check(self) -> None:
        """Raises `Misuse` if it is none of them, or several."""
        if self.given != 1:
            hint = "indelible bill RUN   # or: --all, --trace FILE.jsonl, --traces DIR"
            raise Misuse("say what is to be billed: one run, --all, --trace or --traces", hint=hint)


@dataclass(frozen=True, slots=True)
class How:
    """What is to be told of it."""

    storages: tuple[str, ...] = ()
    prices: Path | None = None
    explain: bool = False
    compression: bool = False
    claim: str | None = None
    plot: Path | None = None
    as_json: bool = False

    def check(self) -> None:
        """Raises `Misuse` for a claim that there is not, and for what a claim does not tell."""
        if self.claim is None:
            return
        if self.claim not in claims.CLAIMS:
            raise Misuse(f"there is no claim {self.claim!r}", hint=f"--claim {' | '.join(claims.CLAIMS)}")
        others = {"--explain": self.explain, "--compression": self.compression, "--plot": self.plot is not None}
        for option in (option for option, given in others.items() if given):
            raise Misuse(f"a claim is told without {option}", hint=f"leave out {option}, or --claim {self.claim}")


@dataclass(frozen=True, slots=True)
class Gathered:
    """The courses, and for runs what was measured of them. `disk` is None where the store keeps no file."""

    courses: list[Course]
    traced: bool
    notices: tuple[str, ...] = ()
    """Of runs that are left out."""
    meter: Meter | None = None
    disk: Physical | None = None


def bill(what: What, how: How, assumed: Assumed, store: str) -> int:
    """Tell the bill."""
    what.check()
    how.check()
    prices = load(how.prices)
    storages = _storages(prices, how)
    found = _gather(what, store)
    if found.meter is not None and how.claim is None and not any(course.loops for course in found.courses):
        return _metered(found, how)
    sample = _encoded(found)
    if how.claim is not None:
        claim = claims.claim(how.claim, sample, storages, assumed)
        if how.as_json:
            dump({"assumed": asdict(assumed), **asdict(claim), "notices": _left_out(found)})
        else:
            show.claim(claim, sample, assumed)
            show.notices(_left_out(found))
        return 0
    told = report(sample, storages, assumed)
    rows = _compression(found.courses) if how.compression else []
    drawn = plots.draw(told, how.plot) if how.plot is not None else []
    if how.as_json:
        dump(_json(found, told, rows, drawn))
    else:
        _say(found, sample, told, rows, how)
        for path in drawn:
            say(f"drawn: {safe(path)}")
    return 0


def _left_out(found: Gathered) -> list[str]:
    return [*found.notices, *(notice for course in found.courses for notice in course.notices)]


def _storages(prices: Prices, how: How) -> list[Storage]:
    names = [name for given in how.storages for name in given.split(",") if name]
    if how.storages and not names:
        raise Misuse("--storage names no storage", hint=f"--storage {next(iter(prices)).name}")
    if not names and how.claim == "snapshots":
        names = list(S3)
    return [prices[name] for name in dict.fromkeys(names)] if names else list(prices)


def _gather(what: What, store: str) -> Gathered:
    if what.trace is not None:
        return Gathered([traces.read(what.trace)], traced=True)
    if what.traces is not None:
        if not what.traces.is_dir():
            raise Misuse(f"{what.traces} is no folder of traces", hint=f"--trace {what.traces}   # if it is one trace")
        if not any(what.traces.glob("*.jsonl")):
            raise Misuse(f"there is no trace (*.jsonl) in {what.traces}", hint="--traces DIR_WITH_JSONL_FILES")
        return Gathered([traces.read(path) for path in tables.files([what.traces])], traced=True)
    with reading(store, what.run) as opened:
        if what.run is not None:
            recover(opened, what.run, "bill", store)
            with about(what.run):
                course, meter, disk = _run(opened, what.run)
            return Gathered([course], False, meter=meter, disk=disk)
        return _all(opened)


def _run(opened: RunStore, run_id: str) -> tuple[Course, Meter, Physical]:
    meter = opened.meter(run_id)
    # The store keeps the newest two snapshots; what was written is all of them.
    course = replace(runs.read(opened, run_id), snapshots=tuple(size for _, size in meter.snapshots))
    return course, meter, physical(opened, run_id)


def _all(opened: RunStore) -> Gathered:
    """Every run that can be read; the others are named."""
    ids = sorted(entry.run_id for entry in opened.entries() if entry.head)
    if not ids:
        raise Misuse(f"there is no run in {opened.url}", hint='indelible run AGENT.py:name "OBJECTIVE"')
    found, notices = [], []
    for run_id in ids:
        try:
            found.append(_run(opened, run_id))
        except (JournalDamaged, FormatTooNew, UnknownRun) as error:  # one is deleted while others are read
            notices.append(f"{error.what}; the run is left out")
    if not found:
        raise Misuse(
            f"none of the {len(ids)} runs in {opened.url} can be read; {notices[0]}", hint="indelible verify --all"
        )
    courses, meters, disks = zip(*found, strict=True)
    return Gathered([*courses], False, tuple(notices), total(meters), _together(disks))


def _together(disks: Sequence[Physical]) -> Physical:
    return Physical(
        sum(disk.writes for disk in disks), sum(disk.snapshots for disk in disks),
        sum(disk.log_bytes for disk in disks), sum(disk.file_bytes for disk in disks),
        sum(disk.syncs for disk in disks), sum(disk.seconds for disk in disks),
    )  # fmt: skip


def _encoded(found: Gathered) -> Sample:
    sample = Sample(tuple(Part(course, (), found.traced) for course in found.courses))  # refuses what has no loop
    parts = []
    with _Progress(len(sample.parts)) as progress:
        for part in sample.parts:
            encoded = tuple(encode(part.course, progress.of(part.course)))
            parts.append(replace(part, encoded=encoded))
    return Sample(tuple(parts))


class _Progress:
    """One line on standard error while the dumps are made: on a terminal it is redrawn, elsewhere it is said once."""

    def __init__(self, courses: int) -> None:
        self._courses = courses
        self._number = 0
        self._drawn = 0.0
        self._live = sys.stderr.isatty()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live and self._drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def of(self, course: Course) -> Callable[[int, int], None]:
        self._number += 1
        which = f"{self._number} of {self._courses}, " if self._courses > 1 else ""
        if not self._live and len(course.loops) >= _MANY_LOOPS:
            note(f"encoding {safe(course.name)}: {which}{len(course.loops)} loops")

        def told(done: int, loops: int) -> None:
            if self._live and monotonic() - self._drawn > _REDRAW_S:
                self._drawn = monotonic()
                line = f"encoding {safe(course.name, 40)}: {which}loop {done} of {loops}"
                print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

        return told


def _compression(courses: Sequence[Course]) -> list[compression.Row]:
    """The ways to compress, summed over the courses; a way that one of them has no row for is left out."""
    each = [{row.name: row for row in compression.table(course)} for course in courses]
    return [
        compression.Row(
            name, sum(rows[name].stored_bytes for rows in each), sum(rows[name].writes for rows in each),
            sum(rows[name].cpu_s for rows in each), max(rows[name].memory_bytes for rows in each),
        )
        for name in each[0] if all(name in rows for rows in each)
    ]  # fmt: skip


def _say(found: Gathered, sample: Sample, told: Report, rows: list[compression.Row], how: How) -> None:
    if found.meter is not None:
        show.meter(found.meter, found.disk)
    else:
        names = found.courses[0].name if len(found.courses) == 1 else "traces"
        say(safe(f"{names}: {show.counted(told)}; {shown(told.raw_bytes)} were added to the state, counted once"))
    show.written(told)
    if len(sample.parts) > 1:
        show.kinds(told)
    show.costs(told)
    show.crashes(told, named=bool(how.storages))
    show.fields(told)
    if rows:
        show.heading("the journal, compressed in other ways")
        for line in compression.render(rows).split("\n"):
            say(line.rstrip())
    if how.explain:
        show.heading("how each figure came about")
        for line in _lines(told):
            say(line)
    show.notices(_noticed(found, told))


def _noticed(found: Gathered, told: Report) -> list[str]:
    return [*found.notices, *(found.meter.notices if found.meter else ()), *told.notices]


def _lines(told: Report) -> Iterator[str]:
    for line in explained(told):
        yield safe(line)


def _metered(found: Gathered, how: How) -> int:
    """Of what has not committed a cycle: what it wrote and paid for, and that there is nothing to compare."""
    assert found.meter is not None
    notices = [*found.notices, *found.meter.notices,
               "no cycle was committed, so there is no loop on which other strategies could be compared"]  # fmt: skip
    if how.as_json:
        dump({**_measured(found), "notices": notices})
    else:
        show.meter(found.meter, found.disk)
        show.notices(notices)
    return 0


def _measured(found: Gathered) -> dict[str, Any]:
    meter = None
    if found.meter is not None:
        meter = {
            **asdict(found.meter), "writes": found.meter.writes, "stored_bytes": found.meter.stored_bytes,
            "snapshot_bytes": found.meter.snapshot_bytes, "calls": asdict(found.meter.calls),
        }  # fmt: skip
    disk = None if found.disk is None else {**asdict(found.disk), "bytes": found.disk.bytes}
    return {"meter": meter, "physical": disk}


def _json(found: Gathered, told: Report, rows: list[compression.Row], drawn: list[Path]) -> dict[str, Any]:
    return {
        **_measured(found), **as_json(told), "notices": _noticed(found, told),
        "explained": list(explained(told)),
        "compression": [{**asdict(row), "cpu_us_per_write": row.cpu_us} for row in rows],
        "plots": [str(path) for path in drawn],
    }  # fmt: skip
