"""What a run costs a month where it is kept: from writes and bytes to dollars, each line with its formula.

Owns: the month, what a run leaves behind, and the formulas.
Must never: read a file or a price by itself, or leave out a smallest amount that a storage bills.
Invariant: a line's dollars are its quantity times its unit price, and a cost is the sum of its lines.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from indelible.bill.prices import BYTES_PER_GB, PER, Storage
from indelible.errors import Misuse

DAYS_PER_MONTH = 30
HOURS_PER_MONTH = 24 * DAYS_PER_MONTH
MOST = 1_000_000_000
"""The most runs a day, and days, that a cost is told for."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many things of which size, in bytes: pairs of a size and a count, each size once."""

    counts: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, sizes: Iterable[int]) -> Sizes:
        """From the size of each."""
        return cls.tally(Counter(sizes).items())

    @classmethod
    def tally(cls, counts: Iterable[tuple[int, int]]) -> Sizes:
        """From pairs of a size and how many are of it. Raises Misuse where one of them is negative."""
        total: Counter[int] = Counter()
        for size, count in counts:
            if size < 0 or count < 0:
                raise Misuse(f"{count} things of {size} bytes cannot be", hint="Sizes.of([len(batch) for batch in …])")
            total[size] += count
        return cls(tuple(sorted((size, count) for size, count in total.items() if count)))

    @classmethod
    def even(cls, total: int, count: int) -> Sizes:
        """`count` things of about the same size that hold `total` bytes. Raises Misuse for bytes in nothing."""
        if total < 0 or count < 0 or (total and not count):
            raise Misuse(f"{total} bytes in {count} objects cannot be", hint="objects=1")
        if not count:
            return cls()
        size, larger = divmod(total, count)
        return cls.tally([(size, count - larger), (size + 1, larger)])

    @property
    def number(self) -> int:
        return sum(count for _, count in self.counts)

    @property
    def total(self) -> int:
        return sum(size * count for size, count in self.counts)


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one run does to a storage: every write and read, the objects (files, items, rows) it leaves, and the ones
    it wrote and then replaced or deleted itself."""

    writes: Sizes
    kept: Sizes
    replaced: Sizes = field(default=Sizes())
    reads: Sizes = field(default=Sizes())

    @classmethod
    def of(cls, writes: Sizes, *, stored_bytes: int, objects: int = 1) -> Footprint:
        """Writes that leave `stored_bytes` in `objects` objects of about the same size, with nothing replaced as a
        whole: a journal in a file or a table."""
        return cls(writes, Sizes.even(stored_bytes, objects))

    @classmethod
    def appending(cls, writes: Iterable[int]) -> Footprint:
        """Each write is an object of its own, and all of them stay: a journal in object storage."""
        sizes = Sizes.of(writes)
        return cls(sizes, kept=sizes)

    @classmethod
    def overwriting(cls, writes: Iterable[int]) -> Footprint:
        """Each write replaces the object before it, and only the last one stays: a full dump under one name."""
        sizes = list(writes)
        return cls(Sizes.of(sizes), kept=Sizes.of(sizes[-1:]), replaced=Sizes.of(sizes[:-1]))


@dataclass(frozen=True, slots=True)
class Line:
    """One position of a bill: `quantity` of `unit` at `unit_price` dollars; `formula` says where it comes from."""

    name: str
    quantity: float
    unit: str
    unit_price: float
    formula: str

    @property
    def dollars(self) -> float:
        return self.quantity * self.unit_price


@dataclass(frozen=True, slots=True)
class Cost:
    """What a storage charges for a month."""

    storage: Storage
    lines: tuple[Line, ...]

    @property
    def dollars(self) -> float:
        return math.fsum(line.dollars for line in self.lines)


def monthly(storage: Storage, run: Footprint, *, runs_per_day: float, keep_days: float) -> Cost:
    """What `runs_per_day` runs like this one cost a month there, once as many are deleted as are added.

    A month has 30 days. `keep_days` is how long a run is kept after it ended; its own duration is not counted. Raises
    Misuse where one of them is negative, NaN, or more than anybody can mean.
    """
    for name, value in (("runs_per_day", runs_per_day), ("keep_days", keep_days)):
        if not 0 <= value <= MOST:  # NaN is in no range
            raise Misuse(f"{name} is {value:g}; expected a number from 0 to {MOST:,}", hint=f"{name}=30")
    times = runs_per_day * DAYS_PER_MONTH
    often = f"{number(runs_per_day)} runs a day × {DAYS_PER_MONTH} days"
    lines = [*_traffic(storage, "write", run.writes, times, often)]
    if run.reads.number:
        lines += _traffic(storage, "read", run.reads, times, often)
    return Cost(storage, (*lines, *_storing(storage, run, runs_per_day, keep_days), *_fixed(storage)))


def one_write(storage: Storage, size: int) -> float:
    """The dollars that one more write of `size` bytes costs there, without the space it takes."""
    return math.fsum(line.dollars for line in _traffic(storage, "write", Sizes.of([size]), 1, "1"))


def _traffic(storage: Storage, what: str, sizes: Sizes, times: float, often: str) -> Iterator[Line]:
    """What `times` × these writes or reads cost."""
    if price := storage.figures.get(f"{what}_request"):
        quantity = times * sizes.number / PER[price.unit]
        yield Line(f"{what} requests", quantity, price.unit, price.value, f"{often} × {_number(sizes, what)}")
    if price := storage.figures.get(f"{what}_unit"):
        units = sum(count * storage.units(what, size) for size, count in sizes.counts)
        of = f"{units:,} units ({_number(sizes, what)} by {shown(storage.amount(f'{what}_unit_bytes'))})"
        yield Line(f"{what} units", times * units / PER[price.unit], price.unit, price.value, f"{often} × {of}")
    if price := storage.figures.get(f"{what}_gb"):
        billed = sum(count * storage.metered(what, size) for size, count in sizes.counts)
        of = f"{_billed(sizes.total, billed)} in {_number(sizes, what)}{_rules(storage, what)}"
        name = {"write": "bytes written", "read": "bytes read"}[what]
        yield Line(name, times * billed / BYTES_PER_GB, price.unit, price.value, f"{often} × {of}")


def _storing(storage: Storage, run: Footprint, runs_per_day: float, keep_days: float) -> Iterator[Line]:
    """What the runs that are kept cost: bytes, times the days they are paid for, times the runs a day."""
    price = storage.figures.get("storage")
    if price is None:
        return
    # Where nothing can be replaced, what is kept is everything that was written.
    kept, replaced = (run.writes, Sizes()) if storage.append_only else (run.kept, run.replaced)
    days, least = max(keep_days, storage.min_age_days) if kept.number else 0.0, storage.min_age_days
    bytes_kept = _objects(storage, kept)
    held = runs_per_day * (bytes_kept * days + _objects(storage, replaced) * least)
    of = f"{_billed(kept.total, bytes_kept)} in {_number(kept, 'object')}{_rules(storage, 'object')}"
    paid = f" (kept {number(keep_days)}, paid for at least {number(least)})" if least > keep_days else ""
    formula = f"{number(runs_per_day)} runs a day × {of} × {number(days)} days{paid}"
    if replaced.number and least:
        formula += f" + {shown(_objects(storage, replaced))} in {replaced.number:,} replaced × {number(least)} days"
    if ratio := storage.figures.get("stored_ratio"):
        held *= ratio.value
        formula += f", × {ratio.value:g} stored"
    size = math.ceil(held - 1e-6)  # a sum of floats that is a whole number of bytes but for its last digits
    billed = storage.metered("stored", size)
    if billed != size:
        formula += f", billed as {shown(billed)}"
    quantity = (billed if storage.amount("stored_step_bytes") or billed != size else held) / BYTES_PER_GB
    if price.unit == "GB-hour":
        quantity, formula = quantity * HOURS_PER_MONTH, f"({formula}) × {HOURS_PER_MONTH} hours"
    yield Line("storage", quantity, price.unit, price.value, formula)


def _fixed(storage: Storage) -> Iterator[Line]:
    if price := storage.figures.get("instance"):
        yield Line("instance", HOURS_PER_MONTH, price.unit, price.value, f"1 instance × {HOURS_PER_MONTH} hours")


def _objects(storage: Storage, sizes: Sizes) -> int:
    return sum(count * storage.metered("object", size) for size, count in sizes.counts)


def _number(sizes: Sizes, what: str) -> str:
    return f"{sizes.number:,} {what}{'' if sizes.number == 1 else 's'}"


def _billed(size: int, billed: int) -> str:
    return shown(size) if size == billed else f"{shown(billed)} (of {shown(size)})"


def _rules(storage: Storage, what: str) -> str:
    """The smallest amounts that raise the bytes of a write, a read or an object."""
    rules = [("+", f"{what}_extra_bytes"), ("at least", f"min_{what}_bytes"), ("by", f"{what}_step_bytes")]
    said = [f"{word} {shown(storage.amount(name))}" for word, name in rules if storage.amount(name)]
    return f", each {', '.join(said)}" if said else ""


def number(value: float) -> str:
    """A number that somebody gave, in full: 1,234,567 and not 1.23e+06."""
    return f"{value:,.12g}"


def shown(size: int) -> str:
    """A number of bytes as a person reads it, in the powers of two that the bills use."""
    value, unit = float(size), "B"
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if value < 1024 or unit == "TB":
            break
        value /= 1024
    return f"{value:,.4g} {unit}"
