"""One run or many, encoded under every strategy, as one thing whose costs can be told.

Owns: what is pooled over runs, and what the user assumes.
Must never: round each run by itself: smallest amounts are a volume's, not a run's.
Invariant: the sample of n runs with r runs a day costs what r / n samples a day would.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from indelible.bill.costs import MOST, Cost, Footprint, Sizes, monthly
from indelible.bill.course import Course, Encoded
from indelible.bill.crashes import NOTHING, Exposure, Lost, lost
from indelible.bill.prices import Storage
from indelible.bill.strategies import raw_bytes
from indelible.errors import Misuse


@dataclass(frozen=True, slots=True)
class Assumed:
    """What nobody but the user can know. The defaults are assumptions, and are shown as such wherever they count.

    `minutes_per_crash` of a developer for each crash after which a person has to look, in dollars an hour.
    """

    runs_per_day: float = 100.0
    keep_days: float = 30.0
    hourly_rate: float = 60.0
    minutes_per_crash: float = 5.0
    crashes_per_month: float = 10.0

    def __post_init__(self) -> None:
        """Raises `Misuse` for a number that is negative, NaN, or more than anybody can mean."""
        for name, option in OPTIONS.items():
            value = getattr(self, name)
            if not 0 <= value <= MOST:  # NaN is in no range
                raise Misuse(f"{option} is {value:g}; expected a number from 0 to {MOST:,}", hint=f"{option} 30")


OPTIONS = {
    "runs_per_day": "--runs-per-day", "keep_days": "--keep", "hourly_rate": "--hourly-rate",
    "minutes_per_crash": "--minutes-per-crash", "crashes_per_month": "--crashes-per-month",
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """One run. `traced`: it is of a trace, not of a run."""

    course: Course
    encoded: tuple[Encoded, ...]
    traced: bool

    @cached_property
    def exposure(self) -> Exposure:
        return Exposure.of(self.course, traced=self.traced)

    @cached_property
    def raw_bytes(self) -> int:
        return raw_bytes(self.course)


@dataclass(frozen=True)
class Sample:
    """Runs, each as likely as the others. Raises `Misuse` if there are none, or none with a loop."""

    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        if not any(part.course.loops for part in self.parts):
            hint = 'indelible run AGENT.py:name "OBJECTIVE"   # then: indelible bill RUN'
            raise Misuse("there is no loop to bill: no cycle was committed", hint=hint)

    @property
    def strategies(self) -> list[str]:
        return [encoded.strategy for encoded in self.parts[0].encoded]

    @cached_property
    def loops(self) -> int:
        return sum(len(part.course.loops) for part in self.parts)

    @cached_property
    def raw_bytes(self) -> int:
        return sum(part.raw_bytes for part in self.parts)

    def of(self, strategy: str) -> list[Encoded]:
        """Each run under that strategy."""
        return [encoded for part in self.parts for encoded in part.encoded if encoded.strategy == strategy]

    def footprint(self, strategy: str, storage: Storage) -> Footprint:
        """All runs together, as that storage takes them: what is appended is one file there, or an object a write."""
        return pooled(each.in_one if storage.appends else each.footprint for each in self.of(strategy))

    def written(self, strategy: str) -> int:
        """The bytes of all writes."""
        return sum(each.footprint.writes.total for each in self.of(strategy))

    def cost(self, storage: Storage, run: Footprint, assumed: Assumed) -> Cost:
        """A month of a footprint of the whole sample."""
        runs_per_day = assumed.runs_per_day / len(self.parts)
        return monthly(storage, run, runs_per_day=runs_per_day, keep_days=assumed.keep_days)

    def month(self, storage: Storage, strategy: str, assumed: Assumed) -> Cost:
        """A month under that strategy; where nothing is kept, nothing is paid."""
        if strategy == NOTHING:
            return Cost(storage, ())
        return self.cost(storage, self.footprint(strategy, storage), assumed)

    def lost(self, strategy: str) -> Lost:
        """What a crash in any loop takes."""
        if strategy == NOTHING:
            return lost([(part.exposure, ()) for part in self.parts], NOTHING)
        saved = [each.saved for each in self.of(strategy)]
        return lost([(part.exposure, each) for part, each in zip(self.parts, saved, strict=True)], strategy)


def pooled(footprints: Iterable[Footprint]) -> Footprint:
    """Several footprints as one."""
    each = list(footprints)
    return Footprint(
        Sizes.tally(pair for one in each for pair in one.writes.counts),
        kept=Sizes.tally(pair for one in each for pair in one.kept.counts),
        replaced=Sizes.tally(pair for one in each for pair in one.replaced.counts),
        reads=Sizes.tally(pair for one in each for pair in one.reads.counts),
    )


def batches_only(sample: Sample, storage: Storage) -> Footprint:
    """Ours without its snapshots."""
    found = []
    for part in sample.parts:
        sizes = Sizes.of(part.course.batches)
        objects = 1 if sizes.number else 0
        one = Footprint.of(sizes, stored_bytes=sizes.total, objects=objects)
        found.append(one if storage.appends else Footprint(sizes, kept=sizes))
    return pooled(found)
