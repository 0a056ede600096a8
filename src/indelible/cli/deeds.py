"""Every deed of a run, gathered from its whole journal.

Owns: what became of each idempotent and irreversible action, in words.
Must never: forget a deed because a later commit did; or show one as done that is in doubt.
Invariant: one `Deed` per call, in the order in which they were first intended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from indelible.core import events as ev
from indelible.core.failures import summary
from indelible.core.record import COMPLETED, DEEDS, FAILED_CALL, CallRecord, Record
from indelible.core.record import SETTLED_NOT as CALL_SETTLED_NOT

DONE, IN_DOUBT, ORPHANED, UNDONE, FAILED, SETTLED_NOT, UNFINISHED = (
    "done", "in doubt", "orphaned", "undone", "failed", "did not happen", "unfinished",
)  # fmt: skip


@dataclass
class Deed:
    """One call of an idempotent or irreversible action. `why` is a reason, an error, or who settled it."""

    call: str
    name: str
    effect: str
    cycle: int
    at: float
    became: str
    key: str = ""
    args: bytes = b""
    result: bytes = b""
    why: str = ""
    intents: int = 0
    seq: int = 0


class Deeds:
    """Gathers deeds, event by event."""

    def __init__(self) -> None:
        self._deeds: dict[str, Deed] = {}
        self._given_up = 0

    @classmethod
    def of(cls, events: Iterable[tuple[int, ev.Event]], before: Record | None = None) -> list[Deed]:
        """The deeds in these events, and those that the run as it stood `before` them had open, or holds a key of."""
        deeds = cls()
        for call in (*before.keyed.values(), *before.calls.values()) if before is not None else ():
            deeds.known(call)
        for seq, event in events:
            deeds.take(seq, event)
        return deeds.all()

    def known(self, call: CallRecord) -> None:
        """Take in a deed whose events were pruned."""
        if call.effect in DEEDS and not call.undoes:
            open_now = IN_DOUBT if call.effect == "irreversible" else UNFINISHED
            became = {COMPLETED: DONE, FAILED_CALL: FAILED, CALL_SETTLED_NOT: SETTLED_NOT}.get(call.status, open_now)
            why = "its beginning was pruned" if became == IN_DOUBT else ""
            deed = Deed(call.call, call.name, call.effect, call.cycle, 0.0, became, call.key, call.args, call.result)
            deed.why = call.doubt or why
            self._deeds[call.call] = deed

    def all(self) -> list[Deed]:
        """What was gathered so far."""
        return list(self._deeds.values())

    def take(self, seq: int, event: ev.Event) -> None:
        """Take the next event in."""
        if isinstance(event, ev.ActionIntended) and not event.undoes:
            deed = self._deed(event, seq)
            deed.became = IN_DOUBT if event.effect == "irreversible" else UNFINISHED
            deed.key, deed.args, deed.cycle = event.key, event.args, event.cycle
            deed.intents += 1
        elif isinstance(event, ev.ActionCompleted | ev.ActionFailed) and event.effect in DEEDS:
            self._ended(event, seq)
        elif isinstance(event, ev.ActionDoubted) and event.call in self._deeds:
            self._deeds[event.call].why = event.reason
        elif isinstance(event, ev.ActionSettled) and event.call in self._deeds:
            deed = self._deeds[event.call]
            deed.became = DONE if event.happened else SETTLED_NOT
            deed.why, deed.result = f"settled by {event.by}", event.result
        elif isinstance(event, ev.CycleCommitted | ev.CycleRolledBack):
            self._given_up = event.cycle
            for call in event.orphaned:
                if call in self._deeds and self._deeds[call].became == DONE:
                    self._deeds[call].became = ORPHANED
        elif isinstance(event, ev.RunReopened):  # the cycle is open again, and asks for them
            for deed in self._deeds.values():
                if deed.became == ORPHANED and deed.cycle == self._given_up:
                    deed.became = DONE

    def _ended(self, event: ev.ActionCompleted | ev.ActionFailed, seq: int) -> None:
        undone = self._deeds.get(event.call.removeprefix("undo:"))
        if event.call.startswith("undo:") and undone is not None:
            if isinstance(event, ev.ActionCompleted):
                undone.became = UNDONE
            else:
                undone.why = f"its undo failed: {summary(event.error)}"
            return
        deed = self._deed(event, seq)
        if isinstance(event, ev.ActionCompleted):
            deed.became, deed.result = DONE, event.result
            deed.why = {"probe": "found by its probe", "policy": "assumed, by policy"}.get(event.source, "")
            if event.unstorable:
                deed.why = "its result could not be kept"
        else:
            deed.became, deed.why = FAILED, summary(event.error)

    def _deed(self, event: ev.ActionIntended | ev.ActionCompleted | ev.ActionFailed, seq: int) -> Deed:
        return self._deeds.setdefault(
            event.call, Deed(event.call, event.name, event.effect, event.cycle, event.at, UNFINISHED, seq=seq)
        )
