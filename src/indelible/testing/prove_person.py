"""The person of a proof: answers what a run waits for, and settles deeds in doubt truthfully.

Owns: what is answered, and how it is found out whether a deed happened.
Must never: guess; a call that was seen to return happened, one that stands in the world's ledger happened, no other.
Invariant: a run that waits for a person is not left waiting.
"""

from __future__ import annotations

from indelible.core.codec import GENERIC, from_plain, unpack
from indelible.core.inbox import inbox_of
from indelible.core.record import PARKED, CallRecord, Record
from indelible.runtime.runstore import RunStore
from indelible.testing.prove_evidence import RUN_ID, Case


class Person:
    """Answers every question with `answer`. `usual` is the untouched run, which shows what a deed returns."""

    def __init__(self, answer: str, usual: Case | None = None) -> None:
        self.answer = answer
        self.usual = usual

    def attend(self, runs: RunStore, record: Record, case: Case) -> None:
        """Say what is asked for, unless it was said before."""
        wait = record.open_wait
        if record.status != PARKED or wait is None or wait.wake_at:
            return
        batches = list(runs.store.read(inbox_of(RUN_ID)))
        if batches and batches[-1].last_seq > record.inbox_seq:
            return
        case.waits.append(wait.kind)
        if wait.kind != "doubt":
            runs.answer(RUN_ID, {"approve": "yes", "diverged": "recorded"}.get(wait.kind, self.answer))
            return
        call = next(call for call in record.in_doubt() if wait.wait == f"doubt:{call.call}")
        result = self._result(case, call)
        runs.settle(RUN_ID, call.call, happened=result is not None,
                    result=from_plain(unpack(result), GENERIC, "result") if result else None)  # fmt: skip

    def _result(self, case: Case, call: CallRecord) -> bytes | None:
        """What the deed returned, or would have; None if it did not happen."""
        seen = case.result_of(call.call)
        if seen is not None:
            return seen
        if not any(case.maker_of(entry) == call.call for entry in case.entries):
            return None
        usual = self.usual.results_by_arguments() if self.usual is not None else {}
        return usual.get((call.name, call.args), b"")
