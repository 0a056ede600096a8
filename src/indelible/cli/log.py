"""`indelible log`: a journal as a timeline.

Owns: one line of text for each kind of event.
Must never: leave an event out, also one of a kind this release does not know.
Invariant: what is readable before damage is shown before the damage is reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from indelible.cli.reading import about, entry_of, reading
from indelible.cli.screen import brief, dump, iso, jsonable, many, moment, note, safe, table
from indelible.core import events as ev
from indelible.core.codec import unpack
from indelible.core.failures import placed, summary
from indelible.errors import IndelibleError
from indelible.stores.owner import describe

_PACKED = frozenset({"objective", "args", "result", "value", "answer", "changes", "doc", "unknown", "detail", "usage",
                     "error"})  # fmt: skip


def log(run_id: str, store: str, as_json: bool, from_seq: int, limit: int) -> int:
    """Show events from `from_seq` on, or without it the last `limit` ones; 0 shows all."""
    damage: IndelibleError | None = None
    kept: deque[tuple[int, ev.Event]] = deque(maxlen=None if from_seq or not limit else limit)
    pruned = seen = 0
    with reading(store, run_id) as runs:
        entry = entry_of(runs, run_id, "log", store)
        try:
            pruned = seen = runs.pruned(run_id)
            for seq, event in runs.events(run_id):
                seen = seq
                if seq >= from_seq:
                    kept.append((seq, event))
                if from_seq and limit and len(kept) == limit:
                    break
        except IndelibleError as error:
            damage = error
    if pruned:
        note(f"note: events 1 to {pruned} were pruned; a snapshot stands for them")
    if as_json:
        dump([_described(seq, event) for seq, event in kept])
    else:
        _say(kept)
    if damage is not None:
        with about(run_id):
            raise damage
    if seen < entry.head and not (from_seq and limit and len(kept) == limit):
        note(f"note: the last batch, up to event {entry.head}, does not verify; a resume cuts it off")
    return 0


def _say(events: Iterable[tuple[int, ev.Event]]) -> None:
    rows = []
    for seq, event in events:
        took, usd = getattr(event, "took", 0.0), _usd(event)
        rows.append((
            seq, moment(event.at), getattr(event, "cycle", "-"), ev.kind_of(event),
            f"{took:.3f} s" if took else "-", f"${usd:.4f}" if usd else "-", _told(event),
        ))  # fmt: skip
    table(("seq", "time", "cycle", "event", "took", "usd", "what"), rows)


def _usd(event: ev.Event) -> float:
    packed = getattr(event, "usage", b"")
    found: Any = unpack(packed) if packed else {}
    usd = found.get("usd") if isinstance(found, dict) else None
    return float(usd) if isinstance(usd, int | float) else 0.0


def _told(event: ev.Event) -> str:
    """What happened, in a line."""
    match event:
        case ev.RunStarted():
            return f"{event.agent} version {event.version}: {brief(unpack(event.objective), 80)}"
        case ev.RunClaimed():
            return describe(event.owner) + (f"; {event.cut} torn events cut off" if event.cut else "")
        case ev.RunBudgeted():
            return f"${event.usd:.10g}, says {event.by}"
        case ev.ActionIntended():
            return f"{event.call} {brief(unpack(event.args), 80)}"
        case ev.ActionCompleted():
            source = "" if event.source == "call" else f" (known by {event.source})"
            return f"{event.call}{source} -> {brief(unpack(event.result), 80)}"
        case ev.ActionFailed():
            return f"{event.call}: {summary(event.error)[:120]}"
        case ev.ActionDoubted():
            return f"{event.call}: {event.reason[:120]}"
        case ev.ActionCharged():
            return f"{event.call}: what it cost, without an outcome"
        case ev.ActionSettled():
            return f"{event.call} {'happened' if event.happened else 'did not happen'}, says {event.by}"
        case ev.ValueRecorded():
            return event.slot
        case ev.CycleParked():
            return f"{event.kind}: {event.question[:120]}"
        case ev.WaitAnswered():
            return f"{event.wait} by {event.by}: {brief(unpack(event.answer), 80)}"
        case ev.CycleCommitted():
            changes: Any = unpack(event.changes)
            orphaned = f", orphaned: {', '.join(event.orphaned)}" if event.orphaned else ""
            return f"{many(len(changes), 'change')}, {many(event.recalled, 'call')} from the journal{orphaned}"
        case ev.CycleRolledBack() | ev.CycleAbandoned():
            return f"attempt {event.attempt}: {placed(event.error[:120], event.where)}"
        case ev.StateMigrated():
            return f"version {event.old} to {event.new}"
        case ev.RunFinished():
            return brief(unpack(event.result), 100)
        case ev.RunFailed():
            return event.error[:300]
        case ev.RunReopened():
            revived: Any = unpack(event.changes)
            return f"{many(sum(len(ids) for _, _, ids in revived), 'failed task')} tried again"
        case ev.InboxRead():
            return f"up to message {event.inbox_seq}" + (f", {event.refused} did not apply" if event.refused else "")
        case ev.Unknown():
            return "of a newer release"
    return ""


def _described(seq: int, event: ev.Event) -> dict[str, Any]:
    """An event with its fields, unpacked."""
    described: dict[str, Any] = {"seq": seq, "event": ev.kind_of(event), "at": iso(event.at)}
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if name == "at":
            continue
        if isinstance(value, bytes) and name in _PACKED:
            value = unpack(value) if value else None
        described[name] = safe(describe(str(value))) if name == "owner" else jsonable(value)
    return described
