"""Verifying a run: everything that is stored of it is read and must agree.

Owns: what is compared with what, and how damage is located.
Must never: change anything, claim the run, or stop at the first fault if more can be told.
Invariant: a report without faults means that the journal verifies from its first event, or the
snapshot that stands for what was pruned, to its last, and that every snapshot, and what a resume
would start from, equals its fold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from indelible.core import snapshots
from indelible.core.arriving import marked
from indelible.core.changes import DONE, FAILED, ITEMS, NEXT_ID, REMOVED
from indelible.core.failures import text_of
from indelible.core.inbox import inbox_of, open_inbox
from indelible.core.journal import Opened, Torn, read_all
from indelible.core.record import Record, fold
from indelible.core.recovery import NEWEST
from indelible.errors import IndelibleError, JournalDamaged
from indelible.runtime.beginnings import Beginning, beginning
from indelible.runtime.runstore import RunStore
from indelible.stores.base import Batch, Query


@dataclass
class Report:
    """What was found. `faults` is empty if all is well; a torn tail or a batch kept aside is no fault."""

    run_id: str
    pruned: int = 0
    """Up to which event the past was pruned; 0 if the journal begins at its first."""
    events: int = 0
    batches: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    snapshots: list[int] = field(default_factory=list)
    """The seqs of the snapshots that are stored."""
    messages: int = 0
    kept_aside: int = 0
    """Torn batches that a later one declared void."""
    torn: str = ""
    inbox_torn: str = ""
    faults: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        return not self.faults


@dataclass
class _Expected:
    """A record that did not come from a full fold, and that one must equal."""

    what: str
    record: Record


def verify(runs: RunStore, run_id: str) -> Report:
    """Check a run's digests, its snapshots, and that a fold from scratch gives what a resume would.

    Reads everything, changes nothing, and may run while another process works on the run.
    Raises `StoreUnavailable`; damage is in the report, not raised.
    """
    report = Report(run_id)
    expected = _stored_snapshots(runs, report)
    try:
        expected.setdefault((found := runs.recover(run_id)).record.seq, []).append(
            _Expected("the state a resume would start from", found.record)
        )
    except IndelibleError:
        pass  # the full reading says what is wrong, and where
    try:
        begun = beginning(runs.store, run_id)
    except IndelibleError as error:
        report.faults.append(error.what)
        begun = Beginning(Record(run_id), runs.store.read(run_id))
    report.pruned = begun.seq
    reader, record = begun.reader(), begun.record
    counted = _Counted(begun.batches, begun.seq)
    try:
        if begun.seq:
            _compare(report, record, reader.chain, expected.pop(begun.seq, []))
        for opened in read_all(reader, counted):
            if isinstance(opened, Torn):
                report.torn = f"after event {opened.after_seq}: {opened.error.what}"
                break
            _fold(report, record, opened)
            _compare(report, record, reader.chain, expected.pop(record.seq, []))
    except IndelibleError as error:
        report.faults.append(f"after event {reader.seq}: {error.what}")
    report.kept_aside = counted.count - report.batches - bool(report.torn) if not report.faults else 0
    _left_over(report, reader.seq, expected)
    _queues(report, record)
    _head(runs, report, counted.last)
    _inbox(runs, report)
    return report


class _Counted:
    """Batches on their way, counted."""

    def __init__(self, batches: Iterable[Batch], begins: int) -> None:
        self._batches = batches
        self.count = 0
        self.last = begins

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._batches:
            self.count += 1
            self.last = batch.last_seq
            yield batch


def _stored_snapshots(runs: RunStore, report: Report) -> dict[int, list[_Expected]]:
    expected: dict[int, list[_Expected]] = {}
    at_most = NEWEST
    while (found := runs.store.get_snapshot(report.run_id, at_most)) is not None:
        seq, data = found
        at_most = seq - 1
        mark = marked(data)
        if mark is not None:
            if not report.snapshots and not expected:
                report.faults.append(f"it is being brought here from {mark.origin}, up to event {mark.upto}")
            continue  # an older one is of a move that came to nothing
        report.snapshots.append(seq)
        try:
            record = snapshots.decode(data, report.run_id, seq)
        except JournalDamaged as error:
            report.faults.append(f"{error.what}; a resume passes it over")
        else:
            expected.setdefault(seq, []).append(_Expected(f"the snapshot at event {seq}", record))
    return expected


def _fold(report: Report, record: Record, opened: Opened) -> None:
    for offset, event in enumerate(opened.events):
        seq = opened.after_seq + 1 + offset
        try:
            fold(record, seq, event)
        except IndelibleError:
            raise
        except Exception as error:
            raise JournalDamaged(f"event {seq} has no meaning: {text_of(error)}") from error
    report.events += len(opened.events)
    report.batches += 1
    report.raw_bytes += opened.raw_bytes
    report.stored_bytes += opened.stored_bytes


def _compare(report: Report, record: Record, chain: bytes, expected: list[_Expected]) -> None:
    if not expected:
        return
    record.chain = chain
    folded = snapshots.encode(record)
    for other in expected:
        # A record carries its chain only as far as its last snapshot; it is compared where it is told.
        if not other.what.startswith("the snapshot"):
            other.record.chain = chain
        if snapshots.encode(other.record) != folded:
            report.faults.append(f"at event {record.seq}: {other.what} differs from the fold of the journal")


def _left_over(report: Report, readable: int, expected: dict[int, list[_Expected]]) -> None:
    damaged = bool(report.faults)
    for seq, others in sorted(expected.items()):
        for other in others:
            if seq <= readable:
                report.faults.append(f"{other.what} lies inside a batch, at event {seq}")
            elif damaged:
                report.faults.append(f"{other.what} (event {seq}) is readable and lies behind the damage")
            elif other.what.startswith("the snapshot"):
                report.faults.append(f"{other.what} is ahead of the journal, which ends at event {readable}")


def _queues(report: Report, record: Record) -> None:
    for name, doc in record.doc.items():
        if doc[0] == "queue":
            parts = doc[DONE] + doc[REMOVED] + len(doc[FAILED]) + len(doc[ITEMS])
            if doc[NEXT_ID] != parts:
                report.faults.append(f"queue {name}: {doc[NEXT_ID]} items were added, {parts} are accounted for")


def _head(runs: RunStore, report: Report, last: int) -> None:
    for entry in runs.store.list_runs(Query(run_ids=(report.run_id,))).runs:
        if last and entry.head < last:
            report.faults.append(f"the store lists event {entry.head} as the last one, but holds event {last}")


def _inbox(runs: RunStore, report: Report) -> None:
    try:
        inbox = open_inbox(report.run_id, runs.store.read(inbox_of(report.run_id)))
    except IndelibleError as error:
        report.faults.append(f"inbox: {error.what}")
    else:
        report.messages, report.inbox_torn = len(inbox.messages), inbox.notice
