"""Three public claims about what persistence costs, each worked out for a sample: when it is true, and what ours costs.

Owns: what each claim is taken to mean, and the solving of its conditions.
Must never: use a formula of its own: every figure comes from `costs` and `crashes`.
Invariant: a condition that is told is where the formula crosses the claim, found to twelve digits; as it is shown it is
rounded to the side on which it holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from indelible.bill.costs import MOST, Footprint, Sizes, number
from indelible.bill.crashes import NOTHING, Price, break_even
from indelible.bill.prices import Storage
from indelible.bill.report import from_on, priced, up_to, usd
from indelible.bill.sample import Assumed, Sample, batches_only, pooled
from indelible.bill.strategies import DECISIONS, EVERY_5, EVERY_10, JSON, OURS, PATCH
from indelible.errors import Misuse

LOGS_USD = 400.0
SNAPSHOT_SHARE = 0.7
LONGEST_DAYS = 3650.0
"""The longest that a run is thought to be kept: ten years."""


@dataclass(frozen=True, slots=True)
class Claim:
    """`conditions` are sentences: when it is true. `facts` are the same figures as data."""

    name: str
    quote: str
    meaning: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    conditions: list[str]
    facts: list[dict[str, Any]] = field(default_factory=list)


def crossing(formula: Callable[[float], float], target: float, most: float = MOST) -> float | None:
    """From where on in 0 to `most` a formula that never falls is at least `target`; None if it is not at `most`."""
    low, high = 0.0, most
    if formula(low) >= target:
        return 0.0
    if formula(high) < target:
        return None
    while high - low > 1e-12 * max(high, 1e-6):
        middle = (low + high) / 2
        low, high = (low, middle) if formula(middle) >= target else (middle, high)
    return high


def logs(sample: Sample, storages: Sequence[Storage], assumed: Assumed) -> Claim:
    """$400 a month for a prototype's state logs: the whole state is logged as JSON after each loop, and all is kept."""
    found = Claim(
        "logs",
        "$400 a month for a prototype's state logs",
        f"the whole state is written as JSON after every loop, and each is kept {number(assumed.keep_days)} days",
        ("storage", f"logs at {number(assumed.runs_per_day)} runs a day", "$400 from runs a day", "ours at that many",
         "ours is $400 from runs a day"),
        [], [],
    )  # fmt: skip
    for storage in storages:
        run = _every_dump(sample, JSON, storage)
        ours = sample.footprint(OURS, storage)

        def paid(runs: float, run: Footprint = run, storage: Storage = storage) -> float:
            return sample.cost(storage, run, replace(assumed, runs_per_day=runs)).dollars

        def paid_ours(runs: float, ours: Footprint = ours, storage: Storage = storage) -> float:
            return sample.cost(storage, ours, replace(assumed, runs_per_day=runs)).dollars

        now, needed, our_needed = paid(assumed.runs_per_day), crossing(paid, LOGS_USD), crossing(paid_ours, LOGS_USD)
        instead = None if needed is None else paid_ours(needed)
        found.rows.append((storage.name, usd(now), _runs(needed), "-" if instead is None else usd(instead),
                           _runs(our_needed)))  # fmt: skip
        found.facts.append({"storage": storage.name, "usd": now, "runs_per_day_for_400_usd": needed,
                            "ours_usd_at_that": instead, "ours_runs_per_day_for_400_usd": our_needed,
                            "ours_usd": paid_ours(assumed.runs_per_day)})  # fmt: skip
        found.conditions.append(_logs_said(storage, now, needed, instead, assumed))
    return found


def _logs_said(storage: Storage, now: float, needed: float | None, instead: float | None, assumed: Assumed) -> str:
    kept = number(assumed.keep_days)
    at = f"at {number(assumed.runs_per_day)} runs a day such logs cost {usd(now)} a month"
    if needed is None or instead is None:
        return f"{storage.name}: not true at any number of runs a day up to {MOST:,}; {at}"
    verdict = "true" if now >= LOGS_USD else "not true"
    return (
        f"{storage.name}: true from {from_on(needed)} runs a day on, if logs are kept {kept} days; "
        f"{at}: {verdict}. Where they come to $400, Indelible's journal of the same runs costs {usd(instead)}"
    )


def snapshots(sample: Sample, storages: Sequence[Storage], assumed: Assumed) -> Claim:
    """70 % of the S3 bill was snapshots: dumps of the whole state beside a log of what each loop changed."""
    found = Claim(
        "snapshots",
        "70 % of the S3 bill was snapshots",
        "the whole state is dumped as JSON, beside a log (JSON Patch) with an object for each loop",
        ("storage", "dumps", "each is", "they cost", "the log", "share", "70 % if kept", "all but them at most"),
        [], [],
    )  # fmt: skip
    for storage in storages:
        beside = sample.footprint(PATCH, storage)
        for strategy in (JSON, EVERY_5, EVERY_10, DECISIONS):
            cases = [("kept", _every_dump(sample, strategy, storage))]
            if not storage.append_only:
                cases.append(("overwritten", sample.footprint(strategy, storage)))
            for kept, run in cases:
                _snapshots_row(found, sample, storage, assumed, (strategy, kept, run, beside))
        _snapshots_ours(found, sample, storage, assumed)
    return found


def _snapshots_row(found: Claim, sample: Sample, storage: Storage, assumed: Assumed,
                   case: tuple[str, str, Footprint, Footprint]) -> None:  # fmt: skip
    strategy, kept, run, beside = case

    def parts(days: float) -> tuple[float, float]:
        given = replace(assumed, keep_days=days)
        return sample.cost(storage, run, given).dollars, sample.cost(storage, beside, given).dollars

    def share(days: float) -> float:
        dumped, logged = parts(days)
        return dumped / (dumped + logged) if dumped + logged else 0.0

    (dumped, logged), now = parts(assumed.keep_days), share(assumed.keep_days)
    rest = dumped * (1 - SNAPSHOT_SHARE) / SNAPSHOT_SHARE
    when, days = _while_shared(share) if _even(storage) else ("not told", (None, None))
    percent = f"{math.floor(now * 1000) / 10:g}%"  # not up to 70, if it is less
    found.rows.append((storage.name, strategy, kept, usd(dumped), usd(logged), percent, when, usd(rest)))
    found.facts.append({"storage": storage.name, "snapshots": strategy, "each": kept, "usd": dumped, "log_usd": logged,
                        "share": now, "70_percent_from_keep_days": days[0],
                        "70_percent_up_to_keep_days": days[1], "rest_of_bill_at_most_usd": rest})  # fmt: skip
    if strategy == JSON:
        verdict = "true" if now >= SNAPSHOT_SHARE else "not true"
        found.conditions.append(
            f"{storage.name}, {strategy} after each loop, each {kept}: dumps cost {usd(dumped)} a month and the log "
            f"{usd(logged)}, so dumps are {percent} of the two: {verdict} when runs are kept "
            f"{number(assumed.keep_days)} days. {_WHEN.get(when, f'It is true if runs are kept {when}')}. In a bill "
            f"with more in it, it is true while all but the dumps, the log included, costs at most {usd(rest)} a month"
        )


_WHEN = {
    "always": "It is true however long runs are kept",
    "never": "It is not true for any time that runs are kept, up to ten years",
    "not told": "For how long runs would have to be kept is not told, as space is billed there for all runs together",
}


def _even(storage: Storage) -> bool:
    """Whether each byte more costs more: what is billed in whole volumes jumps, and the share goes up and down."""
    return not storage.amount("min_stored_bytes") and not storage.amount("stored_step_bytes")


def _while_shared(share: Callable[[float], float]) -> tuple[str, tuple[float | None, float | None]]:
    """For which days of keeping the share is that of the claim: it rises with them, or it falls."""
    least, most = share(0) >= SNAPSHOT_SHARE, share(LONGEST_DAYS) >= SNAPSHOT_SHARE
    if least and most:
        return "always", (0.0, None)
    if not least and not most:
        return "never", (None, None)
    if most:
        days = crossing(share, SNAPSHOT_SHARE, LONGEST_DAYS)
        return f"{_days(days, from_on)} or more", (days, None)
    days = crossing(lambda d: 1 - share(d), 1 - SNAPSHOT_SHARE, LONGEST_DAYS)
    return f"{_days(days, up_to)} or less", (0.0, days)


def _days(value: float | None, shown: Callable[[float], str]) -> str:
    return f"{shown(value or 0.0)} days"


def _snapshots_ours(found: Claim, sample: Sample, storage: Storage, assumed: Assumed) -> None:
    whole = sample.month(storage, OURS, assumed).dollars
    batches = sample.cost(storage, batches_only(sample, storage), assumed).dollars
    own = max(0.0, whole - batches)
    share = own / whole if whole else 0.0
    found.rows.append((storage.name, OURS, "newest two", usd(own), usd(batches), f"{share:.0%}", "-", "-"))
    found.facts.append({"storage": storage.name, "snapshots": OURS, "each": "newest two", "usd": own,
                        "log_usd": batches, "share": share})  # fmt: skip
    found.conditions.append(
        f"{storage.name}: Indelible's journal costs {usd(whole)} a month, of which its snapshots are {share:.0%}"
    )


def developer(sample: Sample, storages: Sequence[Storage], assumed: Assumed) -> Claim:
    """Five minutes of a developer per crash pays for it: what the journal costs, against what a crash costs less."""
    rate, minutes, n = assumed.hourly_rate, assumed.minutes_per_crash, assumed.crashes_per_month
    found = Claim(
        "developer",
        "five minutes of a developer per crash pays for it",
        f"after a crash a developer looks for {number(minutes)} minutes at {usd(rate)} an hour, with the journal only "
        f"if a deed may have been under way; {number(n)} crashes a month. The money of answers that are paid again is "
        "left out, as the claim leaves it out",
        ("storage", "instead of", "ours costs", "more by", "minutes saved a crash", "pays from crashes a month",
         "or from minutes a crash", "up to runs a day"),
        [], [],
    )  # fmt: skip
    ours_lost = sample.lost(OURS)
    for storage in storages:
        if not storage.durable:
            found.conditions.append(f"{storage.name}: left out, for what it acknowledged can be lost in a crash")
            continue
        ours = sample.month(storage, OURS, assumed).dollars
        for other in (NOTHING, JSON):
            extra = ours - sample.month(storage, other, assumed).dollars
            spared = sample.lost(other).asked - ours_lost.asked  # of the minutes
            crashes = break_even(extra, spared * minutes / 60 * rate)
            from_minutes = break_even(extra, n * spared * rate / 60)

            def paid(runs: float, storage: Storage = storage) -> float:
                return sample.month(storage, OURS, replace(assumed, runs_per_day=runs)).dollars

            saved = n * spared * minutes / 60 * rate
            runs = crossing(paid, saved) if other == NOTHING else None
            money = _spared_usd(priced(sample.lost(other), assumed), priced(ours_lost, assumed))
            found.rows.append((storage.name, other, usd(ours), usd(extra), number(round(spared * minutes, 2)),
                               _from(crashes), _from(from_minutes),
                               _up_to(runs) if other == NOTHING else "-"))  # fmt: skip
            found.facts.append({"storage": storage.name, "instead_of": other, "ours_usd": ours, "extra_usd": extra,
                                "minutes_saved_per_crash": spared * minutes, "crashes_per_month": crashes,
                                "minutes_per_crash": from_minutes, "up_to_runs_per_day": runs,
                                "saved_per_crash_usd_with_money_paid_again": money})  # fmt: skip
            found.conditions.append(_developer_said(storage, other, extra, saved, crashes, assumed))
    return found


def _developer_said(storage: Storage, other: str, extra: float, saved: float, crashes: float | None,
                    assumed: Assumed) -> str:  # fmt: skip
    n, against = assumed.crashes_per_month, f"{storage.name}, instead of {_INSTEAD[other]}"
    if extra <= 0:
        less = f"{usd(-extra)} less" if extra < 0 else "no more"
        return f"{against}: true without any crash: the journal costs {less}"
    if crashes is None:
        return f"{against}: never true: a developer's time after a crash costs no less with the journal"
    verdict = "true" if saved >= extra else "not true"
    return (
        f"{against}: true from {from_on(crashes)} crashes a month on, at {number(assumed.runs_per_day)} runs a day; "
        f"at {number(n)} crashes a month {usd(saved)} of a developer is saved for {usd(extra)} of storage: {verdict}"
    )


_INSTEAD = {NOTHING: "keeping nothing and starting again", JSON: "full JSON after each loop"}


def _spared_usd(other: Price, ours: Price) -> float | None:
    """What a crash costs less, the money that is paid again included; None where some of that is not known."""
    return other.usd - ours.usd if other.known and ours.known else None


def _every_dump(sample: Sample, strategy: str, storage: Storage) -> Footprint:
    """Each dump under its own name, or at the end of one file."""
    found = []
    for each in sample.of(strategy):
        sizes: Sizes = each.footprint.writes
        found.append(Footprint.of(sizes, stored_bytes=sizes.total) if storage.appends else Footprint(sizes, kept=sizes))
    return pooled(found)


def _runs(value: float | None) -> str:
    return "never" if value is None else from_on(value)


def _from(value: float | None) -> str:
    return "never" if value is None else from_on(value)


def _up_to(value: float | None) -> str:
    """The runs a day up to which it pays: `value` is from where on the journal costs as much as it saves."""
    return f"any, to {MOST:,}" if value is None else "never" if value == 0 else up_to(value)


CLAIMS = {"logs": logs, "snapshots": snapshots, "developer": developer}


def claim(name: str, sample: Sample, storages: Sequence[Storage], assumed: Assumed) -> Claim:
    """The claim of that name. Raises `Misuse`, with the known ones, if there is none."""
    if name not in CLAIMS:
        raise Misuse(f"there is no claim {name!r}", hint=f"--claim {' | '.join(CLAIMS)}")
    return CLAIMS[name](sample, storages, assumed)
