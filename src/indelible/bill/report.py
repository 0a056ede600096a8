"""Everything a bill says of a sample: bytes, months, crashes, fields, and the formulas behind them.

Owns: what is worked out, its form as JSON, and each formula with its numbers.
Must never: format for a terminal, or read anything.
Invariant: what is not known is null in the JSON, and `notices` say why.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from indelible.bill.costs import Cost, number
from indelible.bill.crashes import AT_MOST, UNKNOWN, Lost, Month, Price, months, price
from indelible.bill.fields import HotField, hot
from indelible.bill.prices import Storage
from indelible.bill.sample import Assumed, Sample


@dataclass(frozen=True, slots=True)
class Written:
    """What all runs of the sample come to under one strategy. `share` is of the raw bytes."""

    strategy: str
    writes: int
    written_bytes: int
    kept_bytes: int
    share: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Kind:
    """The runs of one agent, or the traces of one kind: `written` are the bytes under each strategy."""

    runs: int
    loops: int
    raw_bytes: int
    written: dict[str, int]


@dataclass(frozen=True, slots=True)
class Report:
    """The bill. `costs` and `crashes` are by the name of the storage; `crashes` in the order of the strategies.
    `kinds` are by the name of the agent, or of the kind of trace. `snapshots` are those in the bytes of ours."""

    assumed: Assumed
    storages: tuple[Storage, ...]
    runs: int
    loops: int
    raw_bytes: int
    written: tuple[Written, ...]
    costs: dict[str, dict[str, Cost]]
    lost: dict[str, Lost]
    crashes: dict[str, list[Month]]
    fields: tuple[HotField, ...]
    notices: tuple[str, ...]
    kinds: dict[str, Kind]
    snapshots: tuple[int, ...]

    def best(self, storage: str) -> Month | None:
        """The cheapest that is safe and durable there, if any is."""
        return next((month for month in self.crashes[storage] if month.best), None)

    def cheapest(self, storage: str) -> Month:
        """The cheapest of all, safe or not."""
        return min(self.crashes[storage], key=lambda month: month.total_usd)


def report(sample: Sample, storages: Sequence[Storage], assumed: Assumed) -> Report:
    """The bill of a sample on these storages."""
    written = tuple(_written(sample, strategy) for strategy in sample.strategies)
    sizes = {row.strategy: row.written_bytes for row in written}
    lost = {strategy: sample.lost(strategy) for strategy in sample.strategies}
    crash = {name: priced(of, assumed) for name, of in lost.items()}
    costs = {s.name: {name: sample.month(s, name, assumed) for name in sample.strategies} for s in storages}
    crashes = {
        s.name: months({name: cost.dollars for name, cost in costs[s.name].items()}, crash, durable=s.durable,
                       crashes_per_month=assumed.crashes_per_month, written=sizes)
        for s in storages
    }  # fmt: skip
    fields = tuple(hot(part.course for part in sample.parts))
    snapshots = tuple(size for part in sample.parts for size in part.course.snapshots)
    return Report(assumed, tuple(storages), len(sample.parts), sample.loops, sample.raw_bytes, written, costs, lost,
                  crashes, fields, tuple(_notices(sample)), _kinds(sample), snapshots)  # fmt: skip


def _kinds(sample: Sample) -> dict[str, Kind]:
    found = {}
    for name in sorted({part.course.kind for part in sample.parts}):
        parts = [part for part in sample.parts if part.course.kind == name]
        written = dict.fromkeys(sample.strategies, 0)
        for encoded in (encoded for part in parts for encoded in part.encoded):
            written[encoded.strategy] += encoded.footprint.writes.total
        loops, raw = sum(len(part.course.loops) for part in parts), sum(part.raw_bytes for part in parts)
        found[name] = Kind(len(parts), loops, raw, written)
    return found


def priced(of: Lost, assumed: Assumed) -> Price:
    """What that loss costs."""
    return price(of, minutes_per_crash=assumed.minutes_per_crash, hourly_rate=assumed.hourly_rate)


def _written(sample: Sample, strategy: str) -> Written:
    each = sample.of(strategy)
    total = sum(one.footprint.writes.total for one in each)
    return Written(
        strategy,
        sum(one.footprint.writes.number for one in each),
        total,
        sum(one.footprint.kept.total for one in each),
        total / sample.raw_bytes if sample.raw_bytes else 0.0,
        sum(one.cpu_s for one in each),
    )


def _notices(sample: Sample) -> Iterator[str]:
    for part in sample.parts:
        yield from part.course.notices
    loops = [loop for part in sample.parts for loop in part.course.loops]
    if unpriced := sum(loop.usd is None for loop in loops):
        yield (
            f"the money of {unpriced} of {len(loops)} loops is not known; what a crash costs is told without it, "
            "and so is at least that much"
        )
    if untimed := sum(loop.took_s is None for loop in loops):
        yield f"how long {untimed} of {len(loops)} loops took was not recorded; the time a crash takes is not known"
    if not any(loop.deed for part in sample.parts for loop in part.exposure.loops):
        yield 'no loop here did a deed: for runs that never do one, "safe: no" adds nothing to the costs that are told'


def as_json(found: Report) -> dict[str, Any]:
    """The bill as data for JSON."""
    return {
        "assumed": asdict(found.assumed),
        "runs": found.runs,
        "loops": found.loops,
        "raw_bytes": found.raw_bytes,
        "strategies": [asdict(row) for row in found.written],
        "snapshots_of_ours": {"number": len(found.snapshots), "bytes": sum(found.snapshots)},
        "kinds": {name: asdict(kind) for name, kind in found.kinds.items()},
        "storages": [_storage(found, storage) for storage in found.storages],
        "crash": {name: _crash(of, priced(of, found.assumed)) for name, of in found.lost.items()},
        "hot_fields": [{**asdict(field), "text": str(field)} for field in found.fields],
        "notices": list(found.notices),
    }


def _storage(found: Report, storage: Storage) -> dict[str, Any]:
    costs = found.costs[storage.name]
    rows = [
        {
            "strategy": month.strategy,
            "storage_usd": month.storage_usd,
            "lines": [{**asdict(line), "usd": line.dollars} for line in costs[month.strategy].lines],
            "crash_usd": month.crash.usd,
            "crash_usd_is_at_least": not month.crash.known,
            "total_usd": month.total_usd,
            "break_even_crashes_per_month": month.break_even,
            "break_even_is": month.even_known,
            "safe": month.safe,
            "best": month.best,
        }
        for month in found.crashes[storage.name]
    ]
    return {"name": storage.name, "title": storage.title, "durable": storage.durable, "strategies": rows}


def _crash(lost: Lost, paid: Price) -> dict[str, Any]:
    return {
        "paid_again_usd": lost.usd,
        "paid_again_usd_is_at_least": lost.at_least,
        "seconds": lost.seconds,
        "loops_again": lost.again,
        "share_that_asks_a_person": lost.asked,
        "developer_usd": paid.developer_usd,
    }


def explained(found: Report) -> Iterator[str]:
    """Each formula with its numbers, a line each."""
    for storage in found.storages:
        yield f"{storage.name}: {storage.title}"
        for strategy, cost in found.costs[storage.name].items():
            yield f"  {strategy}: {usd(cost.dollars)} a month"
            for line in cost.lines:
                yield (
                    f"    {line.name}: {line.formula} = {line.quantity:,.6g} {_UNITS.get(line.unit, line.unit)} × "
                    f"{_price(line.unit_price)} = "
                    f"{usd(line.dollars)}"
                )
    yield "a crash"
    for strategy, of in found.lost.items():
        yield f"  {strategy}: {_explained_crash(of, found.assumed)}"
    n = found.assumed.crashes_per_month
    for storage in found.storages:
        yield f"a month with {number(n)} crashes, on {storage.name}"
        rows = found.crashes[storage.name]
        least = next(month for month in rows if month.break_even == 0 and _is_least(month, rows))
        for month in rows:
            sum_ = f"{usd(month.storage_usd)} + {number(n)} × {usd(month.crash.usd)} = {usd(month.total_usd)}"
            yield f"  {month.strategy}: {sum_}; {_explained_even(month, least)}"


def _is_least(month: Month, rows: list[Month]) -> bool:
    return month.storage_usd == min(row.storage_usd for row in rows)


def _explained_crash(of: Lost, assumed: Assumed) -> str:
    paid = priced(of, assumed)
    least = "at least " if of.at_least else ""
    total = None if of.usd is None else f"{least}{usd(of.usd * of.loops)} / {of.loops:,} = {least}{usd(of.usd)}"
    asked = f"{of.asked:.4g} of crashes × {number(assumed.minutes_per_crash)} min × {usd(assumed.hourly_rate)} / 60"
    time = "not known" if of.seconds is None else seconds(of.seconds)
    return (
        f"paid again after a crash in each of {of.loops:,} loops, the mean: {total or 'not known'}; developer: {asked} "
        f"= {usd(paid.developer_usd)}; together {'' if paid.known else 'at least '}{usd(paid.usd)}; time: {time}"
    )


def _explained_even(month: Month, least: Month) -> str:
    extra, saved = month.storage_usd - least.storage_usd, least.crash.usd - month.crash.usd
    if month is least:
        return "its storage costs least"
    if month.even_known == UNKNOWN:
        return f"it costs {usd(extra)} more than {least.strategy}; what it saves at a crash is not known"
    if month.break_even is None:
        return f"it costs {usd(extra)} more than {least.strategy} and saves nothing at a crash: no break-even"
    if month.break_even == 0:
        return f"it costs no more than {least.strategy} from the start"
    even = f"{month.break_even:,.4g}" if month.break_even < 9999 else f"{month.break_even:,.0f}"
    at = f"{even} crashes a month" + (" at most" if month.even_known == AT_MOST else "")
    return f"break-even with {least.strategy}: {usd(extra)} / {usd(saved)} = {at}"


_UNITS = {"1k requests": "thousand requests", "10k requests": "ten thousand requests",
          "1M requests": "million requests", "1M units": "million units"}  # fmt: skip


def _price(value: float) -> str:
    """A price in full, so that the line can be worked out again."""
    full, text = f"{value:.12g}", usd(value)
    return text if text.startswith("$") and f"{float(text[1:].replace(',', '')):.12g}" == full else f"${full}"


def from_on(value: float) -> str:
    """From where on something holds, in three digits or in whole numbers, rounded up, so that it holds there."""
    return _rounded(Decimal(value) * (1 - _NOISE), ROUND_CEILING)


def up_to(value: float) -> str:
    """Up to where something holds, as `from_on`, rounded down."""
    return _rounded(Decimal(value) * (1 + _NOISE), ROUND_FLOOR)


_NOISE = Decimal("1e-12")
_FINEST = -3


def _rounded(exact: Decimal, rounding: str) -> str:
    places = min(0, max(_FINEST, exact.adjusted() - 2)) if exact else 0
    text = f"{exact.quantize(Decimal(1).scaleb(places), rounding):,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def seconds(value: float) -> str:
    """A time as a person reads it."""
    if 0 < value < 0.01:
        return "under 0.01 s"
    return f"{value:,.3g} s" if value < 999 else f"{value:,.0f} s"


def usd(value: float) -> str:
    """Dollars as a person reads them: two places from a dollar on, four from a cent on, below that two digits."""
    if value < 0:
        return f"-{usd(-value)}"
    if value == 0:
        return "$0"
    if value >= 0.00995:
        return f"${value:,.2f}" if value >= 1 else f"${value:.4f}"
    return f"${value:.{1 - math.floor(math.log10(value))}f}" if value >= 1e-9 else "less than $0.000000001"
