"""The tables of a bill.

Owns: columns, headings, and how a figure that is not known is shown.
Must never: work anything out that is not in the report, or show what a run holds.
Invariant: money that is not known is shown as "unknown" or "at least", never as zero.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from indelible.bill.claims import Claim
from indelible.bill.costs import number, shown
from indelible.bill.crashes import AT_MOST, UNKNOWN, UNSAFE, Month
from indelible.bill.physical import Physical
from indelible.bill.report import Report, from_on, seconds, usd
from indelible.bill.sample import Assumed, Sample
from indelible.cli.screen import many, safe, say, table
from indelible.runtime.meter import ActionUse, Meter

MOST_NOTICES = 20
_WIDEST = 120
_ALL = 1_000
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
        ("events", f"{_bytes(found.raw_bytes)} before compression"),
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
        table(("action", "effect", "calls", "failed", "results", "tokens", "money", "seconds"),
              [(name, use.effect or "-", use.calls, use.failed, shown(use.result_bytes),
                f"{use.tokens_in + use.tokens_out:,}", _money(use), f"{use.seconds:,.2f}")
               for name, use in sorted(found.actions.items())])  # fmt: skip
    if calls.recalled:
        heading("answered from the journal")
        table(("action", "answers", "money saved", "tokens saved", "seconds saved"),
              [(name, use.recalled, _known(use.saved_usd, use.saved_unpriced, use.saved_tokens),
                f"{use.saved_tokens:,}", f"{use.saved_seconds:,.2f}")
               for name, use in sorted(found.actions.items()) if use.recalled])  # fmt: skip
    if found.fields:
        heading("by field of the state, in changes before compression")
        table(("field", "kind", "changes", "written", "rewritten", "in rewrites", "holds now"),
              [(name, use.kind, use.changes, shown(use.bytes), use.rewrites, shown(use.rewritten_bytes),
                shown(use.held_bytes)) for name, use in found.fields.items()])  # fmt: skip


def written(told: Report) -> None:
    """What each strategy writes."""
    heading(f"written under each strategy, encoded for real ({counted(told)})")
    table(("strategy", "writes", "bytes written", "× raw", "kept", "CPU s"),
          [(row.strategy, f"{row.writes:,}", f"{row.written_bytes:,}", f"{row.share:,.3f}", f"{row.kept_bytes:,}",
            f"{row.cpu_s:.3f}") for row in told.written])  # fmt: skip
    say(f"raw: {shown(told.raw_bytes)} of JSON were added to the state, each value counted once")
    if told.snapshots:
        say(f"of ours, {_bytes(sum(told.snapshots))} are {many(len(told.snapshots), 'snapshot')}")


def kinds(told: Report) -> None:
    """The bytes under each strategy, a column for each kind of run."""
    heading("bytes by kind")
    each = told.kinds.values()
    rows: list[tuple[str, ...]] = [
        ("runs", *(f"{kind.runs:,}" for kind in each)),
        ("loops", *(f"{kind.loops:,}" for kind in each)),
        ("raw", *(f"{kind.raw_bytes:,}" for kind in each)),
        *((row.strategy, *(f"{kind.written[row.strategy]:,}" for kind in each)) for row in told.written),
    ]
    _broad(("strategy", *told.kinds), rows)


def costs(told: Report) -> None:
    """What a month of storage costs, strategies by storages."""
    assumed = told.assumed
    days = f"{number(assumed.runs_per_day)} runs a day kept {number(assumed.keep_days)} days"
    heading(f"storage, dollars a month at {days}")
    names = [storage.name for storage in told.storages]
    _broad(("strategy", *names),
           [(row.strategy, *(usd(told.costs[name][row.strategy].dollars) for name in names))
            for row in told.written])  # fmt: skip


def _broad(columns: tuple[str, ...], rows: list[tuple[str, ...]], elsewhere: int = _WIDEST) -> None:
    """A table of many columns as several with the same first one: each as wide as fits the terminal, or, where there
    is none, `elsewhere` characters."""
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else elsewhere
    widths = [max(len(row[n]) for row in [columns, *rows]) + 2 for n in range(len(columns))]
    at = 1
    while at < len(columns):
        left, end = room + 2 - widths[0], at
        while end < len(columns) and (end == at or widths[end] <= left):
            left -= widths[end]
            end += 1
        if at > 1:
            say()
        table((columns[0], *columns[at:end]), [(row[0], *row[at:end]) for row in rows])
        at = end


def crashes(told: Report, *, named: bool) -> None:
    """What crashes add to it; of all storages if they were `named`, else of two, with the best of each."""
    assumed = told.assumed
    looks = f"{number(assumed.minutes_per_crash)} min of a developer at {usd(assumed.hourly_rate)} an hour"
    heading(f"one crash, in any loop ({looks} if a person has to look, both assumed)")
    some = next(iter(told.crashes.values()))
    columns = ("loops again", "paid again", "time lost", "asks a person", "developer", "a crash costs", "safe")
    _broad(("strategy", *columns),
           [(month.strategy, number(round(month.crash.lost.again, 2)), _again(month), _time(month),
             f"{month.crash.lost.asked:.0%}", usd(month.crash.developer_usd), _least(month, month.crash.usd),
             "yes" if month.safe else "no") for month in some], elsewhere=_ALL)  # fmt: skip
    say(f"safe: no. {UNSAFE[0].upper()}{UNSAFE[1:]}.")
    for storage in told.storages:
        if not named and storage.name not in _TOLD_OF:
            continue
        heading(f"{storage.name} with {number(assumed.crashes_per_month)} crashes a month (assumed)")
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
    say(f"for: {of}; {number(assumed.runs_per_day)} runs a day, kept {number(assumed.keep_days)} days")
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
    took = month.crash.lost.seconds
    return "unknown" if took is None else seconds(took)


def _least(month: Month, value: float) -> str:
    return usd(value) if month.crash.known else f"{usd(value)} + unknown"


def _even(month: Month) -> str:
    if month.even_known == UNKNOWN:
        return "unknown"
    if month.break_even is None:
        return "never"
    return ("at most " if month.even_known == AT_MOST else "") + from_on(month.break_even)
