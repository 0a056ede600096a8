"""The inbox: what people say to a run, taken into its journal.

Owns: which message applies to what, that each is taken once, and where an inbox goes on behind a torn end.
Must never: drop a message silently; one that no longer applies is counted as refused, and of one that was torn there
is a notice.
Invariant: `record.inbox_seq` moves in the same event that gives a message its effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from indelible.core import events as ev
from indelible.core.budgets import counted, suits
from indelible.core.codec import from_plain, pack, unpack
from indelible.core.cycle import Live
from indelible.core.journal import Journal, Reader, Torn, read_all
from indelible.core.record import BUDGET, CallRecord, Record
from indelible.core.requests import FLUSH, NOW, Append, Steps, StoreCall
from indelible.errors import StateInvalid

INBOX = "/inbox"


def inbox_of(run_id: str) -> str:
    """The name of the journal that carries messages to a run."""
    return run_id + INBOX


@dataclass
class Inbox:
    """A run's inbox as read from a store. `cut_to` is above `seq` if the last batch is torn; `notice` then says so."""

    chain: bytes
    seq: int
    messages: list[tuple[int, ev.Event]] = field(default_factory=list)
    cut_to: int = 0
    notice: str = ""

    def journal(self) -> Journal:
        """The journal that goes on where this one ends; its next batch declares a torn one void."""
        return Journal(self.chain, self.seq, cut_to=self.cut_to)


def open_inbox(run_id: str, batches: Iterable[tuple[int, int, bytes]]) -> Inbox:
    """Every message that can be read, each with its seq. Raises `JournalDamaged` for damage before the last batch."""
    # An inbox holds a handful of short messages, so its chain is verified from the start each time.
    reader = Reader(inbox_of(run_id))
    found = Inbox(reader.chain, reader.seq)
    for opened in read_all(reader, batches):
        if isinstance(opened, Torn):
            found.cut_to = opened.last_seq
            found.notice = f"{opened.error.what}; it is cut off and kept aside: what was said last must be said again"
            break
        found.messages += ((opened.after_seq + 1 + offset, message) for offset, message in enumerate(opened.events))
        found.chain, found.seq = reader.chain, reader.seq
    return found


def has_news(record: Record) -> Steps[bool]:
    """True if something was said to the run that it has not taken in."""
    batches = yield StoreCall("read", (inbox_of(record.run_id), 0))
    return open_inbox(record.run_id, batches).seq > record.inbox_seq


def read_inbox(live: Live) -> Steps[int]:
    """Take new messages into the run's journal, durably; returns how many applied.

    Raises `StateInvalid` if a deed was settled with a result that its action cannot return. That is then refused
    for good: the deed stays in doubt, and is to be settled again.
    """
    record = live.record
    batches = yield StoreCall("read", (inbox_of(record.run_id), 0))
    inbox = open_inbox(record.run_id, batches)
    if inbox.notice and inbox.notice not in live.warnings:
        live.warnings.append(inbox.notice)
    applied, refused, last = 0, 0, record.inbox_seq
    misfits: dict[str, StateInvalid] = {}
    for seq, message in inbox.messages:
        if seq <= record.inbox_seq:
            continue
        last = seq
        at = yield NOW
        try:
            event = _effect(live, message, seq, at)
        except StateInvalid as error:
            misfits[str(error.ids["call"])], event = error, None
        if event is None:
            refused += 1
            continue
        applied += 1
        if isinstance(event, ev.ActionSettled):
            misfits.pop(event.call, None)
            yield from _charge_declared(live, event)
        yield Append(event)
    if refused or last > record.inbox_seq:
        yield Append(ev.InboxRead((yield NOW), last, refused))
    if applied or refused:
        yield FLUSH
    for misfit in misfits.values():
        raise misfit
    return applied


def _effect(live: Live, message: ev.Event, seq: int, at: float) -> ev.Event | None:
    record = live.record
    if isinstance(message, ev.Answer):
        wait = record.waits.get(message.wait)
        if wait is None or wait.answered:
            return None
        if wait.kind == BUDGET and not suits(record, unpack(message.value)):
            return None
        return ev.WaitAnswered(at, record.cycle, message.wait, message.value, message.by, seq)
    if isinstance(message, ev.Settlement):
        call = next((call for call in record.in_doubt() if call.call == message.call), None)
        if call is None:
            return None
        result = _fitting(live, call, message)
        return ev.ActionSettled(at, call.cycle, call.call, call.name, message.happened, message.by, result, seq)
    return None


def _charge_declared(live: Live, settled: ev.ActionSettled) -> Steps[None]:
    """What a deed that happened costs by its declaration, unless it has told before it was in doubt."""
    call = next(call for call in live.record.in_doubt() if call.call == settled.call)
    spec = live.actions.get(call.name) or live.resolve(call.name)
    cost = counted(spec, None) if spec is not None and settled.happened and not call.charged else None
    if cost is not None:
        yield Append(ev.ActionCharged(settled.at, call.cycle, call.call, call.name, pack(cost)))


def _fitting(live: Live, call: CallRecord, said: ev.Settlement) -> bytes:
    """The result as the action returns it, as far as the action is known."""
    spec = live.actions.get(call.name) or live.resolve(call.name)
    if not said.happened or spec is None:
        return said.result
    try:
        return spec.fitted(from_plain(unpack(said.result), spec.types))
    except StateInvalid as error:
        run_id = live.record.run_id
        raise StateInvalid(
            f"run {run_id!r}: {call.name} was settled with a result that it cannot return: {error.what}. "
            f"It is in doubt as before",
            hint=f"indelible settle {run_id} {call.call} --happened --result JSON",
            run=run_id,
            call=call.call,
        ) from None
