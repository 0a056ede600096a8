"""`indelible bill --requests`: what object storage is asked, and what that costs.

Owns: the table.
Must never: leave out a kind of request that a provider charges for.
Invariant: the JSON holds every figure of the table.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from indelible.bill import requests as counting
from indelible.bill.prices import load
from indelible.bill.report import usd
from indelible.cli.screen import dump, note, safe, say, table


def requests(prices: Path | None, as_json: bool) -> int:
    """Count, and tell."""
    note(f"running {counting.CYCLES:,} cycles for each setting, in memory")
    known = load(prices)
    rows = counting.counted(known)
    providers = [known[name] for name in counting.PROVIDERS]
    if as_json:
        dump({
            "cycles": counting.CYCLES, "calls_per_cycle": counting.CALLS, "call_seconds": counting.CALL_S,
            "call_usd": counting.CALL_USD, "mtbf_hours": counting.MTBF_HOURS, "usd_per_hour": counting.USD_PER_HOUR,
            "rows": [{**asdict(row), "what": row.what.strip(),
                      "usd": {one.name: row.dollars(known, one.name) for one in providers}} for row in rows],
            "sources": {one.name: {part: {"value": figure.value, "unit": figure.unit, "source": figure.source,
                                          "date": figure.date}
                                   for part, figure in one.figures.items() if part.endswith("_request")}
                        for one in providers},
        })  # fmt: skip
        return 0
    say(f"A run of {counting.CALLS} calls of {counting.CALL_S:.0f} s and {usd(counting.CALL_USD)} in each cycle;"
        f" economic: a crash every {counting.MTBF_HOURS:.0f} h, an hour at {usd(counting.USD_PER_HOUR)}.")  # fmt: skip
    say("Requests, counted by running it, and their price. A listing costs as much as a write, a deletion nothing.")
    head = ("what", "PUT", "LIST", "GET", "DELETE", *(one.name for one in providers))
    table(head, [
        (row.what, f"{row.puts:,}", f"{row.lists:,}", f"{row.gets:,}", f"{row.deletes:,}",
         *(usd(row.dollars(known, one.name)) for one in providers))
        for row in rows
    ])  # fmt: skip
    say()
    for one in providers:
        figure = one.figures["write_request"]
        say(f"{safe(one.name)}: {usd(figure.value)} for {figure.unit}, {safe(figure.source)} ({safe(figure.date)})")
    return 0
