"""When writing is worth it, simulated: the economic rule against fixed intervals and against the Young/Daly optimum.

Owns: the run that is simulated, what a plan of flushes is expected to cost, and the plans it is held against.
Must never: draw a crash. What is expected is computed for exponentially distributed failures, so no luck is in it.
Invariant: every plan is judged on the same steps by the same formula, and the rule judged is the one that runs use.

The formula. Between two flushes lie steps of durations d1, d2, …, and a last stretch for the flush itself. A crash
loses the value V of what was done since the last flush, to be paid again and made again; what is being done when it
comes is lost under every plan and is not counted. With failures at the rate 1/M, a stretch that ends after T seconds
is started e^(T/M) times on average before it ends without one, and of each start the part e^(-t/M) − e^(-t'/M) fails
between t and t' with V(t) lost. The expected cost of a stretch is therefore its price of a flush, plus
e^(T/M) · Σ V(t) · (e^(-t/M) − e^(-t'/M)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from indelible.bill.costs import one_write
from indelible.bill.prices import Prices
from indelible.core.costs import SECONDS_PER_HOUR, Economic, Economy, Where
from indelible.errors import Misuse

MTBF_HOURS = {"1 hour": 1.0, "1 day": 24.0, "1 week": 168.0, "1 month": 720.0}
STEPS = 20_000
BATCH_BYTES = 2_000
FLUSH_S = {"local-disk": 0.0003, "ebs-gp3": 0.002, "efs": 0.01, "s3-express": 0.008, "s3-standard": 0.03}
"""What a flush takes, in seconds: assumptions of the order of what is published; yours is measured as it runs."""
NEVER_BEYOND = 600.0
"""A run this many times longer than the mean time between failures never ends without a flush."""


class Step(NamedTuple):
    """One repeatable action: how long it took (seconds) and what it cost (dollars)."""

    took_s: float
    usd: float


class Kind(NamedTuple):
    """Actions of a kind: mean seconds, and mean dollars."""

    name: str
    mean_s: float
    mean_usd: float


KINDS = (Kind("model calls", 10.0, 0.01), Kind("small calls", 1.0, 0.0001), Kind("free work", 5.0, 0.0))


@dataclass(frozen=True, slots=True)
class Found:
    """One setting, and what each plan is expected to cost in dollars over the whole run; None is without end."""

    storage: str
    mtbf: str
    kind: str
    interval_s: float
    """Young's and Daly's: sqrt(2 C M / r)."""
    young_daly: float
    """Flushes at that interval: at every so many steps as are nearest to it, the better of the two roundings."""
    best_fixed: float
    best_every: int
    economic: float
    every_loop: float
    every_5: float
    never: float | None

    @property
    def to_best(self) -> float:
        """What the economic rule costs, as a multiple of the best of all the others."""
        others = [self.young_daly, self.best_fixed, self.every_loop, self.every_5]
        return self.economic / min(others + ([] if self.never is None else [self.never]))


def steps(kind: Kind, count: int = STEPS) -> list[Step]:
    """A run of that kind, uneven: durations by a lognormal distribution, prices by an exponential one.

    Drawn at the midpoints of equal shares and put into a fixed order without pattern, so that no seed is needed.
    """
    found = []
    for n in range(count):
        share = (n * 0.6180339887498949) % 1.0  # the golden ratio and the square root of 2 keep apart from each other
        other = (n * 0.4142135623730951) % 1.0
        took = kind.mean_s * math.exp(_normal(min(max(share, 1e-6), 1 - 1e-6)) - 0.5)
        found.append(Step(took, -kind.mean_usd * math.log1p(-other)))
    return found


def _normal(share: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(share)


def expected(run: Sequence[Step], ends: Sequence[int], economy: Economy, flush_s: float) -> float:
    """The dollars that flushes after the steps of these numbers (counted from 1) are expected to cost, with what
    crashes lose; by the formula above."""
    total, began = 0.0, 0
    for end in ends:
        t = value = lost = 0.0
        for step in run[began:end]:
            lost += value * _fails_within(t, step.took_s, economy.mtbf_s)
            t += step.took_s
            value += step.usd + step.took_s * economy.usd_per_hour / SECONDS_PER_HOUR
        lost += value * _fails_within(t, flush_s, economy.mtbf_s)
        total += economy.price(flush_s) + math.exp((t + flush_s) / economy.mtbf_s) * lost
        began = end
    return total


def _fails_within(t: float, more: float, mtbf_s: float) -> float:
    return -math.exp(-t / mtbf_s) * math.expm1(-more / mtbf_s)


def every(count: int, n: int) -> list[int]:
    """A flush after every n of `count` steps, and at the end."""
    return [*range(n, count, n), count]


def economic(run: Sequence[Step], economy: Economy, flush_s: float) -> list[int]:
    """The flushes that the rule of `durability="economic"` makes, and one at the end."""
    rule, now, durable = Economic(economy), 0.0, 0
    ends = []
    for number, step in enumerate(run, 1):
        now += step.took_s
        if rule.due(now, step.took_s, step.usd, Where(number - 1, durable, flush_s)) or number == len(run):
            ends.append(number)
            durable = number
            now += flush_s
    return ends


def simulate(
    prices: Prices, *, usd_per_hour: float = 1.0, count: int = STEPS, progress: Callable[[str], None] = lambda _: None
) -> Iterator[Found]:
    """Every storage of FLUSH_S, every mean time between failures, every kind of action. `usd_per_hour` is what the
    agent's time is worth; it must be above zero, or free work would have no value, and losing it no price. Raises
    `Misuse`."""
    if not 0 < usd_per_hour < math.inf:
        raise Misuse(f"an hour cannot be worth {usd_per_hour!r} dollars here", hint="--usd-per-hour 1")
    for kind in KINDS:
        run = steps(kind, count)
        for storage, flush_s in FLUSH_S.items():
            charge = one_write(prices[storage], BATCH_BYTES)
            for mtbf, hours in MTBF_HOURS.items():
                progress(f"{kind.name}, {storage}, a crash every {mtbf}")
                economy = Economy(hours * SECONDS_PER_HOUR, usd_per_hour, charge)
                yield _judged(run, storage, mtbf, kind.name, economy, flush_s)


def _judged(run: Sequence[Step], storage: str, mtbf: str, kind: str, economy: Economy, flush_s: float) -> Found:
    count, length = len(run), sum(step.took_s for step in run)
    rate = sum(step.usd + step.took_s * economy.usd_per_hour / SECONDS_PER_HOUR for step in run) / length
    interval = math.sqrt(2 * economy.price(flush_s) * economy.mtbf_s / rate)
    at = interval * count / length
    by_n = {n: expected(run, every(count, n), economy, flush_s) for n in _candidates(at, count)}
    best = min(by_n, key=lambda n: by_n[n])
    nearest = {min(count, max(1, math.floor(at))), min(count, max(1, math.ceil(at)))}
    return Found(
        storage, mtbf, kind, interval,
        young_daly=min(by_n[n] for n in nearest),
        best_fixed=by_n[best], best_every=best,
        economic=expected(run, economic(run, economy, flush_s), economy, flush_s),
        every_loop=by_n[1], every_5=by_n[5],
        never=expected(run, [count], economy, flush_s) if length < NEVER_BEYOND * economy.mtbf_s else None,
    )  # fmt: skip


def _candidates(at: float, count: int) -> list[int]:
    """Step counts around the optimum, closely enough that the best of them is the best there is, to a part in a
    thousand: the cost is flat around its minimum."""
    around = {round(at * 1.12**n) for n in range(-8, 9)} | {math.floor(at), math.ceil(at), 1, 2, 3, 5}
    return sorted({min(count, max(1, n)) for n in around})
