"""What one crash costs under each way to persist a run, and what that comes to in a month.

Owns: what is lost between the last save and a crash, who has to look at it, and the break-even.
Must never: count money that is not known as zero; call a strategy safe that may do a deed again.
Invariant: a crash costs the money that is paid again and a developer's minutes; time is told beside it, not priced.

The crash comes in any loop, each as likely, while a call is under way: which one by how long they took, or, where that
was not recorded, any of those that were paid for. That call is paid for and lost under every strategy. A dump loses all
that came before it as well, back to the last save; a journal nothing else. A person has to look after each crash that
no journal tells about. A journal asks one only about a deed that was under way: at most in the loops that did one.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from indelible.bill.course import Course, Loop
from indelible.bill.strategies import COMPRESSED, OURS, PLAIN, events_of
from indelible.core import events as ev
from indelible.core.codec import unpack
from indelible.core.record import DEEDS

EXACT, AT_MOST, UNKNOWN = "exact", "at most", "unknown"
NOTHING = "nothing is kept"
"""A run that starts from the beginning after a crash."""
JOURNALS = (PLAIN, COMPRESSED, OURS)
UNSAFE = "it is saved after a loop, so a crash in between may do that loop's deeds again"


def is_safe(strategy: str) -> bool:
    """Whether no crash makes it do a deed again unasked: the intent of each deed is durable before it is done, and its
    result before anything goes on. What is saved when a loop is over can say neither."""
    return strategy in JOURNALS


@dataclass(frozen=True, slots=True)
class Lost:
    """What one crash takes, on average over all loops.

    `usd` is what is known of the money paid again: None if no loop's money is known, and at least that much if some are
    `unpriced`. `seconds` is None if some loop's time is not known. `asked` is the share of crashes after which a person
    has to look. `again` is how many loops are done again, the one that was under way included: none with a journal, but
    for the call.
    """

    usd: float | None
    seconds: float | None
    asked: float
    again: float
    loops: int
    unpriced: int = 0

    @property
    def at_least(self) -> bool:
        return self.unpriced > 0


@dataclass(frozen=True, slots=True)
class _Loop:
    """One loop: all of it, its call under way at the crash, and all of it up to then; None is not known."""

    usd: float | None
    usd_call: float
    usd_so_far: float
    took_s: float | None
    took_s_call: float
    deed: bool


@dataclass(frozen=True, slots=True)
class Exposure:
    """A course as crashes see it. Made once for a course: its events are read for it."""

    loops: tuple[_Loop, ...]

    @classmethod
    def of(cls, course: Course, *, traced: bool) -> Exposure:
        """`traced`: it is of a trace, which knows its decisions but not which of them were deeds."""
        return cls(tuple(_seen(loop, traced) for loop in course.loops))


def lost(parts: Iterable[tuple[Exposure, Sequence[int]]], strategy: str) -> Lost:
    """What a crash in any loop of these runs takes; with each comes after which loops it was saved."""
    usd: list[float] = []
    seconds: list[float] = []
    loops: list[_Loop] = []
    again = 0
    for exposure, saved in parts:
        before_usd, before_s = [0.0], [0.0]  # of all loops before
        for loop in exposure.loops:
            before_usd.append(before_usd[-1] + (loop.usd or 0.0))
            before_s.append(before_s[-1] + (loop.took_s or 0.0))
        for number, loop in enumerate(exposure.loops, 1):
            at = bisect_left(saved, number)
            last = saved[at - 1] if at else 0
            if is_safe(strategy):
                usd.append(loop.usd_call)
                seconds.append(loop.took_s_call / 2)
            else:
                again += number - last
                usd.append(before_usd[number - 1] - before_usd[last] + loop.usd_so_far)
                seconds.append(before_s[number - 1] - before_s[last] + (loop.took_s or 0.0) / 2)
        loops += exposure.loops
    count, unpriced = len(loops), sum(loop.usd is None for loop in loops)
    untimed = sum(loop.took_s is None for loop in loops)
    spent, share = math.fsum(usd), sum(loop.deed for loop in loops) / count if count else 0.0
    return Lost(
        None if not count or (unpriced and not spent) else spent / count,
        None if not count or untimed else math.fsum(seconds) / count,
        share if is_safe(strategy) else 1.0,
        again / count if count else 0.0,
        count,
        unpriced,
    )


@dataclass(frozen=True, slots=True)
class Price:
    """What a crash costs: `again_usd` paid again (None: not known), and the developer's minutes."""

    lost: Lost
    developer_usd: float

    @property
    def usd(self) -> float:
        """What is known of it."""
        return (self.lost.usd or 0.0) + self.developer_usd

    @property
    def known(self) -> bool:
        return not self.lost.unpriced


def price(of: Lost, *, minutes_per_crash: float, hourly_rate: float) -> Price:
    """The developer looks for `minutes_per_crash` after each crash that asks for a person."""
    return Price(of, of.asked * minutes_per_crash / 60 * hourly_rate)


@dataclass(frozen=True, slots=True)
class Month:
    """One strategy on one storage. `break_even` is from how many crashes a month on it is cheaper than the one whose
    storage costs least: None if never. `even_known` is `exact`; `at most` where money that is not known would lower it;
    `unknown` where it hangs on that alone. `best` marks the cheapest that is safe and durable, all told."""

    strategy: str
    storage_usd: float
    crash: Price
    total_usd: float
    break_even: float | None
    safe: bool
    even_known: str = EXACT
    best: bool = False


def months(
    storage_usd: dict[str, float], crash: dict[str, Price], *, crashes_per_month: float, durable: bool,
    written: dict[str, int] | None = None,
) -> list[Month]:  # fmt: skip
    """Every strategy beside the others, on a storage that is `durable` or not. Of equally cheap ones the one that has
    `written` fewer bytes is the best."""
    least = min(storage_usd, key=lambda name: (storage_usd[name], (written or {}).get(name, 0)))
    found = []
    for name, usd in storage_usd.items():
        total = usd + crashes_per_month * crash[name].usd
        even = 0.0 if name == least else break_even(usd - storage_usd[least], crash[least].usd - crash[name].usd)
        known = _known(even, crash[name].lost, crash[least].lost)
        found.append(Month(name, usd, crash[name], total, even, is_safe(name), known))
    fit = [month for month in found if month.safe and durable]
    if not fit:
        return found
    best = min(fit, key=lambda month: (round(month.total_usd, 9), (written or {}).get(month.strategy, 0)))
    return [replace(month, best=month is best) for month in found]


def _known(even: float | None, of: Lost, least: Lost) -> str:
    """How far a break-even can be known: what loses fewer loops saves some of the money that is not known."""
    if not of.unpriced or even == 0 or of.again >= least.again:
        return EXACT
    return UNKNOWN if even is None else AT_MOST


def break_even(extra_usd: float, saved_usd: float) -> float | None:
    """From how many crashes a month on `extra_usd` a month is worth it, if each crash then costs `saved_usd` less."""
    if extra_usd <= 0 and saved_usd >= 0:
        return 0.0
    return None if saved_usd <= 0 else extra_usd / saved_usd


@dataclass(frozen=True, slots=True)
class _Call:
    usd: float
    took_s: float
    deed: bool


def _seen(loop: Loop, traced: bool) -> _Loop:
    calls = _calls(loop)
    known = loop.usd is not None and math.isclose(math.fsum(c.usd for c in calls), loop.usd, abs_tol=1e-9)
    deed = loop.decision if traced else any(call.deed for call in calls) or _intended(loop)
    if not calls or not known:  # what cannot be told call by call is taken for one call
        usd, took = loop.usd or 0.0, loop.took_s or 0.0
        return _Loop(loop.usd, usd, usd, loop.took_s, took, deed)
    weights = [call.took_s for call in calls]
    if not any(weights):
        weights = [float(call.usd > 0) for call in calls]
    if not any(weights):
        weights = [1.0] * len(calls)
    whole = math.fsum(weights)
    so_far, spent = [], 0.0
    for call in calls:
        spent += call.usd
        so_far.append(spent)

    def mean(values: Iterable[float]) -> float:
        return math.fsum(w * value for w, value in zip(weights, values, strict=True)) / whole

    return _Loop(loop.usd, mean(c.usd for c in calls), mean(so_far), loop.took_s, mean(c.took_s for c in calls), deed)


def _calls(loop: Loop) -> list[_Call]:
    """The calls of a loop in the order they ended, each with its own time: without that of calls made inside it."""
    ended = [
        event for event in events_of(loop)
        if isinstance(event, ev.ActionFailed) or (isinstance(event, ev.ActionCompleted) and event.source == "call")
    ]  # fmt: skip
    inside: dict[str, float] = {}
    for event in ended:
        if within := getattr(event, "within", ""):
            inside[within] = inside.get(within, 0.0) + event.took
    return [
        _Call(_usd(event.usage), max(0.0, event.took - inside.get(event.call, 0.0)), event.effect in DEEDS)
        for event in ended
    ]


def _usd(usage: bytes) -> float:
    found: Any = unpack(usage) if usage else None
    return float(found.get("usd") or 0.0) if isinstance(found, dict) else 0.0


def _intended(loop: Loop) -> bool:
    return any(isinstance(event, ev.ActionIntended) for event in events_of(loop))
