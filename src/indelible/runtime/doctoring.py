"""Examining a store: what it guarantees, whether what it holds is whole, who holds what, and what grows.

Owns: which findings there are, and how bad each is.
Must never: write, claim, or stop because one run cannot be read.
Invariant: every finding that is not "ok" carries what would help.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from indelible.core.arriving import ARRIVING
from indelible.core.record import FAILED, PARKED, RUNNING
from indelible.errors import IndelibleError
from indelible.runtime.labels import About, about_of
from indelible.runtime.meter import Meter
from indelible.runtime.pruning import time_of
from indelible.runtime.runstore import RunStore
from indelible.runtime.verify import verify
from indelible.stores.base import Query, RunEntry, Upkeep
from indelible.stores.owner import describe, is_gone
from indelible.stores.patience import lags

SAMPLE = 20
"""So many runs are verified, and looked at for growth, if not all are: the largest and the newest."""
SKEW_S = 2.0
OVERDUE_S = 300.0
GROWING = 3.0
"""A cycle that writes so many times what an early one wrote is worth a word."""
FEW_CYCLES = 12
LARGE_BYTES = 1 << 20
HEAVY_BYTES = 4096
HEAVY_SHARE = 0.5
SMALL_BYTES = 256 << 10

Verdict = Literal["ok", "note", "bad"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found: in which part of the examination, about what, and what helps."""

    part: str
    what: str
    verdict: Verdict = "ok"
    hint: str = ""


@dataclass(slots=True)
class Examination:
    """All that was found in a store."""

    url: str
    runs: int = 0
    verified: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """The worst of all."""
        found = {finding.verdict for finding in self.findings}
        return "bad" if "bad" in found else "note" if "note" in found else "ok"


def examine(runs: RunStore, quick: bool = False) -> Examination:
    """Examine a store; with `quick` only `SAMPLE` runs are read through. Raises `StoreUnavailable`."""
    found = Examination(runs.url)
    if isinstance(runs.store, Upkeep):
        found.findings += [Finding("store", f"{name}: {value}", verdict, hint)
                           for name, value, verdict, hint in runs.store.facts()]  # fmt: skip
    now = time_of(runs)
    if not lags(runs.store):  # else nothing is known of its clock but what was written last
        found.findings.append(_skew(now - runs.clock.now()))
    entries = list(_all(runs))
    found.runs = len(entries)
    for entry in entries:
        found.findings += _stands(entry, about_of(entry.label), now)
    settled = [entry for entry in entries if entry.head and _status(entry) != ARRIVING]
    looked_at = _sample(settled) if quick else settled
    for entry in looked_at:
        found.findings += _whole(runs, entry)
        found.findings += _growth(runs, entry)
    found.verified = len(looked_at)
    return found


def _all(runs: RunStore) -> Iterator[RunEntry]:
    """Every run, also what was claimed and never accepted."""
    cursor: str | None = None
    while True:
        page = runs.store.list_runs(Query(), cursor)
        yield from page.runs
        cursor = page.cursor
        if cursor is None:
            return


def _sample(entries: list[RunEntry]) -> list[RunEntry]:
    largest = sorted(entries, key=lambda entry: -entry.stored_bytes)[: SAMPLE // 2]
    taken = {entry.run_id for entry in largest}
    return largest + [entry for entry in entries if entry.run_id not in taken][: SAMPLE - len(largest)]


def _skew(seconds: float) -> Finding:
    if abs(seconds) <= SKEW_S:
        return Finding("clock", f"this machine and the store differ by {abs(seconds):.1f} s")
    ahead = "ahead of" if seconds > 0 else "behind"
    return Finding("clock", f"the store's clock is {abs(seconds):.1f} s {ahead} this machine's; leases and times to "
                   "wake count by the store's", "note", "timedatectl    (on both machines)")  # fmt: skip


def _stands(entry: RunEntry, about: About, now: float) -> Iterator[Finding]:
    run_id, status, word = entry.run_id, _status(entry), shlex.quote(entry.run_id)
    show = f"indelible show {word}"
    agent = entry.label.agent if entry.label else "NAME"
    resume = f"indelible resume {word} AGENT.py:{agent}"
    if status == ARRIVING:
        yield Finding("orphans", f"run {run_id!r} is on its way here, and not all of it has arrived", "note", show)
        return
    if not entry.head:
        if not entry.live:
            yield Finding("orphans", f"run {run_id!r} was claimed and never accepted: nothing is lost, and it is not "
                          "listed", "note", f"indelible delete {word} --yes")  # fmt: skip
        return
    if entry.live:
        yield Finding("leases", f"run {run_id!r} is held by {describe(entry.owner)}")
    elif entry.owner and status in (RUNNING, PARKED):
        why = "is gone" if is_gone(entry.owner) else "let its lease run out"
        yield Finding("leases", f"run {run_id!r} ({status}): {describe(entry.owner)} {why}", "note", resume)
    elif status == RUNNING:
        yield Finding("leases", f"run {run_id!r} is unfinished, and nobody holds it", "note", resume)
    wake_at = entry.label.wake_at if entry.label else None
    if wake_at is not None and not entry.live and now - wake_at > OVERDUE_S:
        yield Finding("leases", f"run {run_id!r} was to go on {now - wake_at:.0f} s ago", "note", resume)
    if about.in_doubt and not entry.live:
        yield Finding("notices", f"run {run_id!r}: {about.in_doubt} deed(s) in doubt", "note",
                      f"indelible effects {word}")  # fmt: skip
    if status == FAILED:
        yield Finding("notices", f"run {run_id!r} has failed", "note", show)


def _whole(runs: RunStore, entry: RunEntry) -> Iterator[Finding]:
    run_id = entry.run_id
    try:
        report = verify(runs, run_id)
    except IndelibleError as error:
        yield Finding(
            "integrity", f"run {run_id!r}: {error.what}", "bad", error.hint or f"indelible verify {shlex.quote(run_id)}"
        )
        return
    if report.faults and entry.live:  # it may have been written to, or pruned, while it was read
        report = verify(runs, run_id)
    hint = f"indelible verify {shlex.quote(run_id)}"
    if report.faults:
        more = f" (and {len(report.faults) - 1} more)" if len(report.faults) > 1 else ""
        yield Finding("integrity", f"run {run_id!r}: {report.faults[0]}{more}", "bad", hint)
    if report.torn:
        yield Finding("integrity", f"run {run_id!r} has a torn tail, which a resume cuts off", "note", hint)
    if report.inbox_torn:
        yield Finding("integrity", f"run {run_id!r}: {report.inbox_torn}", "note", hint)


def _growth(runs: RunStore, entry: RunEntry) -> Iterator[Finding]:
    """B63 B65: what a cycle writes must not grow with the run; and which field it is that does."""
    try:
        meter = runs.meter(entry.run_id)
    except IndelibleError:
        return  # said already
    run_id = entry.run_id
    hint = f"indelible bill {shlex.quote(run_id)}"
    yield from _heavy(meter, hint)
    sizes = meter.batches
    if meter.cycles >= FEW_CYCLES and len(sizes) >= FEW_CYCLES and meter.stored_bytes > SMALL_BYTES:
        third = len(sizes) // 3
        early, late = sum(sizes[:third]) / third, sum(sizes[-third:]) / third
        if late > GROWING * early:
            grown = f"from {early:,.0f} to {late:,.0f} bytes"
            yield Finding("growth", f"run {run_id!r}: a write has grown {grown} since the run began", "note", hint)
    for name, use in meter.fields.items():
        if use.held_bytes > LARGE_BYTES:
            advice = "`compact` it" if use.kind == "log" else "keep large data in a file, and its path in the state"
            yield Finding("growth", f"run {run_id!r}: state.{name} holds {use.held_bytes:,} bytes", "note",
                          f"{hint}    ({advice})")  # fmt: skip


def _heavy(meter: Meter, hint: str) -> Iterator[Finding]:
    """Fields that are written again as a whole, and are most of what the changes take."""
    changes = sum(use.bytes for use in meter.fields.values())
    for name, use in meter.fields.items():
        if use.rewritten_bytes > HEAVY_SHARE * changes and use.rewritten_bytes > SMALL_BYTES and use.last > HEAVY_BYTES:
            share = use.rewritten_bytes / changes
            yield Finding(
                "growth",
                f"run {meter.run_id!r}: state.{name} was written as a whole {use.rewrites} times, the last time "
                f"{use.last:,} bytes: {share:.0%} of all changes",
                "note",
                f"{hint}    (it names the type that writes only what changes)",
            )


def _status(entry: RunEntry) -> str:
    return entry.label.status if entry.label else ""
