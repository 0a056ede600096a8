"""`indelible effects`: every deed of a run and what became of it.

Owns: how deeds are shown, with what people have said that the run has not taken in.
Must never: call a deed in doubt while a live process is doing it.
Invariant: a deed in doubt is shown with the command that settles it.
"""

from __future__ import annotations

from typing import Any

from indelible.cli.deeds import IN_DOUBT, ORPHANED, Deed, Deeds
from indelible.cli.options import command
from indelible.cli.reading import Pending, pending, reading, recover
from indelible.cli.screen import brief, dump, iso, jsonable, moment, note, safe, say, table
from indelible.core.codec import unpack
from indelible.runtime.beginnings import beginning

UNDER_WAY = "under way"


def effects(run_id: str, store: str, as_json: bool) -> int:
    """List the deeds in the order in which they were first intended."""
    with reading(store, run_id) as runs:
        entry, found = recover(runs, run_id, "effects", store)
        said = pending(runs, found.record)
        before = beginning(runs.store, run_id).record
        deeds = Deeds.of(runs.events(run_id), before)
    if before.seq:
        note(f"note: events 1 to {before.seq} were pruned, with the deeds of the cycles that they committed")
    held = entry.live and found.record.status == "running"
    for deed in deeds:
        if held and deed.became == IN_DOUBT and deed.cycle == found.record.cycle:
            deed.became = UNDER_WAY
        elif deed.became == IN_DOUBT and deed.call in said.settlements:
            settled = said.settlements[deed.call]
            deed.why = f"{settled.by} says it {'happened' if settled.happened else 'did not happen'}; not taken in yet"
    if as_json:
        dump([_described(deed, said) for deed in deeds])
        return 0
    if not deeds:
        note("no deeds: this run has called no idempotent or irreversible action")
        return 0
    rows = [
        (deed.became, deed.call, deed.cycle, moment(deed.at), brief(_args(deed), 60), brief(deed.key, 40),
         deed.why[:80])
        for deed in deeds
    ]  # fmt: skip
    table(("became", "action", "cycle", "intended", "args", "key", "note"), rows)
    for deed in deeds:
        if deed.became == IN_DOUBT and deed.call not in said.settlements:
            say(f"in doubt: {safe(command('settle', run_id, deed.call, '--happened | --did-not-happen', store=store))}")
        elif deed.became == ORPHANED:
            say(f"orphaned: {safe(deed.call)} was done, and no committed cycle speaks of it; look at it yourself")
    return 0


def _args(deed: Deed) -> Any:
    return unpack(deed.args) if deed.args else {}


def _described(deed: Deed, said: Pending) -> dict[str, Any]:
    settlement = said.settlements.get(deed.call)
    return {
        "action": deed.call,
        "name": deed.name,
        "effect": deed.effect,
        "became": deed.became,
        "cycle": deed.cycle,
        "intended_at": iso(deed.at),
        "intents": deed.intents,
        "key": deed.key or None,
        "args": jsonable(_args(deed)),
        "result": jsonable(unpack(deed.result)) if deed.result else None,
        "note": deed.why or None,
        "said": None if settlement is None else {"happened": settlement.happened, "by": settlement.by},
    }
