"""`indelible bill --economics`: economic durability, simulated against fixed habits.

Owns: the table of the simulation.
Must never: leave out a setting in which the rule did badly.
Invariant: the JSON holds every figure of the table.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from indelible.bill import plots
from indelible.bill.economics import BATCH_BYTES, FLUSH_S, STEPS, Found, simulate
from indelible.bill.prices import load
from indelible.bill.report import usd
from indelible.cli.screen import dump, note, safe, say, table

_COLUMNS = ("steps", "storage", "a crash every", "Young/Daly", "best: every", "costs", "economic", "every loop",
            "every 5", "never")  # fmt: skip


def economics(prices: Path | None, plot: Path | None, usd_per_hour: float, as_json: bool) -> int:
    """Simulate, and tell."""
    note(f"simulating {len(FLUSH_S)} storages, {STEPS:,} steps each way")
    found = list(simulate(load(prices), usd_per_hour=usd_per_hour, count=STEPS))
    drawn = [plots.draw_economics(found, plot)] if plot is not None else []
    if as_json:
        rows = [{**asdict(one), "to_best": one.to_best} for one in found]
        dump({"usd_per_hour": usd_per_hour, "steps": STEPS, "rows": rows, "drawn": [str(path) for path in drawn]})
        return 0
    say(f"{STEPS:,} uneven steps, a write of {BATCH_BYTES:,} bytes, the agent's time at {usd(usd_per_hour)} an hour.")
    say("What writes and crashes are expected to cost, in multiples of the best fixed interval:")
    table(_COLUMNS, [_row(one) for one in found])
    worst = max(found, key=lambda one: one.to_best)
    where = f"{worst.kind}, {safe(worst.storage)}, a crash every {worst.mtbf}"
    say()
    say(f"economic: at most {worst.to_best:.2f} x the best of all the others ({where})")
    for path in drawn:
        say(f"drawn: {safe(path)}")
    return 0


def _row(one: Found) -> tuple[str, ...]:
    def times(cost: float | None) -> str:
        if cost is None:
            return "no end"
        ratio = cost / one.best_fixed
        return f"{ratio:.2f} x" if ratio < 1e4 else "> 10,000 x"

    return (one.kind, one.storage, one.mtbf, f"{one.interval_s:,.1f} s", f"{one.best_every:,}", usd(one.best_fixed),
            times(one.economic), times(one.every_loop), times(one.every_5), times(one.never))  # fmt: skip
