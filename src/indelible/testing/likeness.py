"""When two worlds are alike for a process that starts in one of them.

Owns: the reduction of a world to what a recovery can tell apart.
Must never: leave out what the protocol acts on.
Invariant: worlds of the same likeness differ in times, random values, seqs and the number of
processes so far, and in nothing else; names for keys are given in the order of their appearance.
"""

from __future__ import annotations

from typing import Any

import msgspec

from indelible.core.inbox import inbox_of
from indelible.testing.checkers import FINAL, Journal
from indelible.testing.world import World

LEFT_OUT = (
    *("chain", "seq", "updated_at", "started_at", "claims", "usage", "entries", "entered_at"),
    *("values", "waits", "calls", "keyed", "loose", "given_up"),
    "abandoned_at",  # a failure told by the journal is raised from another line than the failure itself
)
"""Parts of the record that carry times and random values, or are reduced one by one."""


def likeness(world: World, journal: Journal, run_id: str, volatile: frozenset[str]) -> bytes:
    """Equal for worlds in which the recovery of the run goes the same way."""
    record, last = journal.record, journal.record.given_up
    names: dict[str, int] = {"": -1}

    def named(key: str) -> int:
        return names.setdefault(key, len(names))

    parts: dict[str, Any] = {
        name: getattr(record, name) for name in type(record).__struct_fields__ if name not in LEFT_OUT
    }
    parts["doc"] = [(name, stored) for name, stored in record.doc.items() if name not in volatile]
    parts["ledger"] = [(deed.kind, deed.what, named(deed.key), deed.repeat) for deed in world.ledger]
    parts["calls"] = [
        (place, call.call, call.status, named(call.key), call.args, call.result, call.cycle - record.cycle,
         call.attempt, call.doubt != "", call.source, call.undoes, call.charged)
        for place, calls in enumerate((record.calls, record.keyed, record.loose, last.calls if last else {}))
        for call in calls.values()
    ]  # fmt: skip
    parts["spent"] = record.usage.usd if record.budget is not None else 0.0
    parts["waits"] = [(w.wait, w.answered, w.wake_at > world.time, w.answer, w.by) for w in record.waits.values()]
    parts["values"] = (sorted(record.values), record.entered_at > 0)
    parts["given_up"] = last and (last.cycle - record.cycle, sorted(last.waits), sorted(last.values), last.standing)
    parts["inbox_seq"] = [batch.data for batch in world.store.read(inbox_of(run_id), record.inbox_seq)]
    parts["snapshot"] = world.store.get_snapshot(run_id, FINAL) is not None
    parts["late"] = sorted(map(named, world.late))
    return msgspec.msgpack.encode(parts)
