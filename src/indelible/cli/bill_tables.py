"""The tables of a bill.

Owns: columns, headings, and how a figure that is not known is shown.
Must never: work anything out that is not in the report, or show what a run holds.
Invariant: money that is not known is shown as "unknown" or "at least", never as zero.
"""

from __future__ import annotations

from collections.abc import Sequence

from indelible.bill.claims import Claim
from indelible.bill.costs import shown
from indelible.bill.crashes import AT_MOST, UNKNOWN, UNSAFE, Month
from indelible.bill.physical import Physical
from indelible.bill.report import Report, usd
from indelible.bill.sample import Assumed, Sample
from indelible.cli.screen import many, safe, say, table
from indelible.runtime.meter import ActionUse, Meter

MOST_NOTICES = 20
_WIDE = 6
_TOLD_OF = ("local-disk", "s3-standard")


def heading(text: str) -> None:
    """A line above a table; what was before it stands apart."""
    say()
    say(safe(text))


def counted(told: Report) -> str:
    """How many runs and loops."""
    return f"{many(told.runs, 'run')}, {many(told.loops, 'loop')}"


def meter(found: Meter, disk: Physical | None) -> None:
    """What the runs wrote and what their calls cost, measured."""
    calls = found.calls
    whose = f"run {found.run_id} of agent {found.agent}" if found.run_id else many(found.runs, "run")
    say(f"{safe(whose)}: {many(found.cycles, 'cycle')} committed, {many(found.events, 'event')}")
    lines = [
        ("raw", f"{_bytes(found.raw_bytes)} of events before compression"),
        ("stored", f"{_bytes(found.stored_bytes)} in batches, {_bytes(found.snapshot_bytes)} in "
                   f"{many(len(found.snapshots), 'snapshot')} ({_bytes(found.kept_snapshot_bytes)} still there)"),
        ("durable writes", f"{found.writes}, waited for {found.waited_s * 1000:,.1f} ms"),
    ]  # fmt: skip
    if disk is not None:
        took = f"{disk.seconds * 1000:,.1f} ms"
        lines.append(("on the disk", f"{_bytes(disk.bytes)} and {many(disk.syncs, 'fsync')} in {took}, "
                      "measured by writing it again to a store of its own"))  # fmt: skip
    lines += [
        ("calls", f"{calls.calls} made, {calls.recalled} answered from the journal"),
        ("tokens", f"{calls.tokens_in:,} in, {calls.tokens_out:,} out"),
        ("money", _money(calls)),
    ]
    if calls.recalled:
        saved = _known(calls.saved_usd, calls.saved_unpriced, calls.saved_tokens)
        lines.append(("saved", f"{saved}, {calls.saved_tokens:,} tokens and {calls.saved_seconds:,.2f} s of calls "
                      "that the journal answered"))  # fmt: skip
    for name, text in lines:
        say(f"  {name:<16}{text}")
    if found.actions:
        heading("by action")
        table(("action", "effect", "calls", "failed", "from journal", "results", "tokens", "money", "seconds", "saved"),
              [(name, use.effect or "-", use.calls, use.failed, use.recalled, shown(use.result_bytes),
                f"{use.tokens_in + use.tokens_out:,}", _money(use), f"{use.seconds:,.2f}",
                _known(use.saved_usd, use.saved_unpriced, use.saved_tokens) if use.recalled else "-")
               for name, use in sorted(found.actions.items())])  # fmt: skip
    if found.fields:
        heading("by field of the state, in changes before compression")
        table(("field", "kind", "changes", "written", "rewritten", "in rewrites", "holds now"),
              [(name, use.kind, use.changes, shown(use.bytes), use.rewrites, shown(use.rewritten_bytes),
                shown(use.held_bytes)) for name, use in found.fields.items()])  # fmt: skip


def written(told: Report) -> None:
    """What each strategy writes."""
    heading(f"written under each strategy, encoded for real ({counted(told)}, {shown(told.raw_bytes)} raw)")
    table(("strategy", "writes", "bytes written", "× raw", "kept", "CPU s"),
          [(row.strategy, f"{row.writes:,}", f"{row.written_bytes:,}", f"{row.share:,.3f}", f"{row.kept_bytes:,}",
            f"{row.cpu_s:.3f}") for row in told.written])  # fmt: skip


def kinds(sample: Sample) -> None:
    """The bytes under each strategy, a column for each kind of run."""
    names = sorted({part.course.kind for part in sample.parts})
    parts = {name: [part for part in sample.parts if part.course.kind == name] for name in names}
    heading("bytes by kind")
    rows: list[tuple[str, ...]] = [
        ("runs", *(f"{len(parts[name]):,}" for name in names)),
        ("loops", *(f"{sum(len(part.course.loops) for part in parts[name]):,}" for name in names)),
        ("raw", *(f"{sum(part.raw_bytes for part in parts[name]):,}" for name in names)),
    ]
    for strategy in sample.strategies:
        sizes = dict.fromkeys(names, 0)
        for part, encoded in zip(sample.parts, sample.of(strategy), strict=True):
            sizes[part.course.kind] += encoded.footprint.writes.total
        rows.append((strategy, *(f"{size:,}" for size in sizes.values())))
    table(("strategy", *names), rows)


def costs(told: Report) -> None:
    """What a month of storage costs, strategies by storages."""
    assumed = told.assumed
    heading(f"storage, dollars a month at {assumed.runs_per_day:g} runs a day kept {assumed.keep_days:g} days")
    names = [storage.name for storage in told.storages]
    for at in range(0, len(names), _WIDE):
        few = names[at : at + _WIDE]
        table(("strategy", *few),
              [(row.strategy, *(usd(told.costs[name][row.strategy].dollars) for name in few))
               for row in told.written])  # fmt: skip
        if at + _WIDE < len(names):
            say()


def crashes(told: Report, *, named: bool) -> None:
    """What crashes add to it; of all storages if they were `named`, else of two, with the best of each."""
    assumed = told.assumed
    looks = f"{assumed.minutes_per_crash:g} min of a developer at {usd(assumed.hourly_rate)} an hour"
    heading(f"one crash, in any loop ({looks} if a person has to look, both assumed)")
    some = next(iter(told.crashes.values()))
    table(("strategy", "loops again", "paid again", "time lost", "asks a person", "developer", "a crash costs", "safe"),
          [(month.strategy, f"{month.crash.lost.again:,.3g}", _again(month), _time(month),
            f"{month.crash.lost.asked:.0%}", usd(month.crash.developer_usd), _least(month, month.crash.usd),
            "yes" if month.safe else "no") for month in some])  # fmt: skip
    say(f"safe: no. {UNSAFE[0].upper()}{UNSAFE[1:]}.")
    for storage in told.storages:
        if not named and storage.name not in _TOLD_OF:
            continue
        heading(f"{storage.name} with {assumed.crashes_per_month:g} crashes a month (assumed)")
        table(("strategy", "storage", "crashes", "together", "break-even crashes a month", ""),
              [(month.strategy, usd(month.storage_usd), _least(month, assumed.crashes_per_month * month.crash.usd),
                _least(month, month.total_usd), _even(month), "<- cheapest safe" if month.best else "")
               for month in told.crashes[storage.name]])  # fmt: skip
        cheapest, best = told.cheapest(storage.name), told.best(storage.name)
        if best is None:
            say(f"nothing is marked: {storage.name} is a cache, and what it acknowledged can be lost")
        elif best.crash.known and round(cheapest.total_usd, 9) < round(best.total_usd, 9):
            say(f"cheapest of all is {cheapest.strategy} at {usd(cheapest.total_usd)}, which is not safe")
    if len(told.storages) > 1:
        heading("the cheapest that is safe, by storage")
        rows = [_best(told, storage.name) for storage in told.storages]
        table(("storage", "strategy", "storage a month", "with crashes"), rows)
    say("break-even: from how many crashes a month on it is cheaper than the one whose storage costs least")


def _best(told: Report, storage: str) -> tuple[str, ...]:
    month = told.best(storage)
    if month is None:
        return storage, "none: it is not durable", "-", "-"
    return storage, month.strategy, usd(month.storage_usd), _least(month, month.total_usd)


def fields(told: Report) -> None:
    """Fields that are rewritten again and again."""
    if told.fields:
        heading("fields that cost more than they need to")
        for each in told.fields:
            say(f"  {safe(each)}" + (f" (in {safe(each.run)})" if told.runs > 1 else ""))


def claim(found: Claim, sample: Sample, assumed: Assumed) -> None:
    """A public claim, and when it is true."""
    say(f'"{found.quote}"')
    say(safe(f"taken as: {found.meaning}"))
    of = f"{many(len(sample.parts), 'run')}, {many(sample.loops, 'loop')}, {shown(sample.raw_bytes)} raw"
    say(f"for: {of}; {assumed.runs_per_day:g} runs a day, kept {assumed.keep_days:g} days")
    say()
    table(found.columns, found.rows)
    say()
    for condition in found.conditions:
        say(f"  {safe(condition)}")


def notices(found: Sequence[str]) -> None:
    """What could not be read or is not known."""
    for notice in dict.fromkeys(found[:MOST_NOTICES]):
        say(f"notice: {safe(notice)}")
    if len(found) > MOST_NOTICES:
        say(f"notice: {len(found) - MOST_NOTICES} more (--json)")


def _bytes(size: int) -> str:
    return f"{size:,} bytes"


def _known(dollars: float, unpriced: int, tokens: int) -> str:
    """Money, where a call without a price, or a sum of nothing that was reported, is not taken for none."""
    if unpriced:
        return f"at least {usd(dollars)} ({unpriced} unpriced)" if dollars else f"unknown ({unpriced} unpriced)"
    return usd(dollars) if dollars or tokens else "none reported"


def _money(use: ActionUse) -> str:
    return _known(use.usd, use.unpriced, use.tokens_in + use.tokens_out)


def _again(month: Month) -> str:
    if month.crash.lost.usd is None:
        return "unknown"
    return ("at least " if month.crash.lost.at_least else "") + usd(month.crash.lost.usd)


def _time(month: Month) -> str:
    seconds = month.crash.lost.seconds
    return "unknown" if seconds is None else f"{seconds:,.3g} s"


def _least(month: Month, value: float) -> str:
    return usd(value) if month.crash.known else f"{usd(value)} + unknown"


def _even(month: Month) -> str:
    if month.even_known == UNKNOWN:
        return "unknown"
    if month.even_known == AT_MOST:
        return f"at most {month.break_even:,.3g}"
    return "never" if month.break_even is None else "0" if month.break_even == 0 else f"{month.break_even:,.3g}"
