"""The inbox: what people say to a run, taken into its journal.

Owns: which message applies to what, and that each is taken once.
Must never: drop a message silently; one that no longer applies is counted as refused.
Invariant: `record.inbox_seq` moves in the same event that gives a message its effect.
"""

from __future__ import annotations

from indelible.core import events as ev
from indelible.core.cycle import Live
from indelible.core.journal import Reader, Torn, read_all
from indelible.core.record import Record
from indelible.core.requests import FLUSH, NOW, Append, Steps, StoreCall

INBOX = "/inbox"


def inbox_of(run_id: str) -> str:
    """The name of the journal that carries messages to a run."""
    return run_id + INBOX


def read_inbox(live: Live) -> Steps[int]:
    """Take new messages into the run's journal, durably; returns how many applied."""
    record = live.record
    reader = Reader(inbox_of(record.run_id))
    # An inbox holds a handful of short messages, so its chain is verified from the start each time.
    batches = yield StoreCall("read", (reader.run_id, 0))
    applied, refused, last = 0, 0, record.inbox_seq
    for opened in read_all(reader, batches):
        if isinstance(opened, Torn):
            raise opened.error
        for offset, message in enumerate(opened.events):
            seq = opened.after_seq + 1 + offset
            if seq <= record.inbox_seq:
                continue
            last = seq
            event = _effect(record, message, seq, (yield NOW))
            if event is None:
                refused += 1
            else:
                applied += 1
                yield Append(event)
    if last > record.inbox_seq:
        yield Append(ev.InboxRead((yield NOW), last, refused))
    if applied or refused:
        yield FLUSH
    return applied


def _effect(record: Record, message: ev.Event, seq: int, at: float) -> ev.Event | None:
    if isinstance(message, ev.Answer):
        wait = record.waits.get(message.wait)
        if wait is None or wait.answered:
            return None
        return ev.WaitAnswered(at, record.cycle, message.wait, message.value, message.by, seq)
    if isinstance(message, ev.Settlement):
        call = next((call for call in record.in_doubt() if call.call == message.call), None)
        if call is None:
            return None
        return ev.ActionSettled(at, call.cycle, call.call, call.name, message.happened, message.by, message.result, seq)
    return None
