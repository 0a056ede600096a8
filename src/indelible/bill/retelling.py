"""A trace told again as the events of a run, written by the journal that runs are written by.

Owns: which events a loop of a trace becomes, and when they are written.
Must never: read a clock or draw an id, so that the same trace always comes to the same bytes.
Invariant: the batches are what `core.journal` makes of these events, and the snapshots what `core.snapshots` asks for.

A model's answer is a batch of its own, as in a run: it was paid for, or took longer than 20 commits. What tools return
and what the loop commits follows in one batch. How long a call took, a deed's intent, and arguments are in no trace,
and so not in these events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from time import process_time
from typing import Any, cast

from indelible.core import events as ev
from indelible.core import snapshots
from indelible.core.actions import call_id
from indelible.core.changes import Doc, log_field, plain_field
from indelible.core.codec import GENERIC, Plain, digest, pack, to_plain
from indelible.core.journal import Journal, seed
from indelible.core.record import Record, fold

MEMORY = "memory"
_EPOCH = 1_700_000_000.0
_STEP_S = 7.303
"""Between two events; no round number, for the times of a real run are none."""


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a trace. `usd` None: it cost something, and how much is not known."""

    loop: int
    kind: str
    content: Any
    sets: dict[str, Any]
    decision: bool
    tokens: int
    usd: float | None


@dataclass(slots=True)
class Retold:
    """`records` are the events of each loop; `batches` and `snapshots` the sizes of what was written; `cpu_s` the
    processor time for all of it, in seconds."""

    records: list[tuple[bytes, ...]] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    cpu_s: float = 0.0


class _Writer:
    """A run's way to a store that keeps sizes."""

    def __init__(self, name: str, told: Retold) -> None:
        self._told = told
        self._journal = Journal(seed(name))
        self._record = Record(name)
        self._loop: list[ev.Event] = []
        self._at_snapshot = self._snapshot_size = 0
        self._at = _EPOCH

    def now(self) -> float:
        self._at += _STEP_S
        return self._at

    def append(self, event: ev.Event) -> None:
        fold(self._record, self._journal.append(event), event)
        self._loop.append(event)

    def flush(self) -> None:
        self._told.batches.append(len(self._journal.seal().batch.data))
        self._journal.landed()

    def end_loop(self) -> list[ev.Event]:
        """After a commit: a snapshot if one is due, as in a run; and the events since the last loop."""
        self.flush()
        if snapshots.due(self._journal.stored_bytes - self._at_snapshot, self._snapshot_size):
            self._record.chain = self._journal.chain
            data = snapshots.encode(self._record)
            self._journal.restart_prefix()
            self._at_snapshot, self._snapshot_size = self._journal.stored_bytes, len(data)
            self._told.snapshots.append(len(data))
        events, self._loop = self._loop, []
        return events


def retell(name: str, loops: Iterable[list[Step]], *, actions: bool = True) -> Retold:
    """Write the loops of a trace. Without `actions` no step is an action: each content is in its commit alone."""
    loops, told = list(loops), Retold()
    writer = _Writer(name, told)
    began = process_time()
    _start(writer, name, loops)
    told.cpu_s += process_time() - began
    for number, steps in enumerate(loops, 1):
        began = process_time()
        events = _loop(writer, number, steps, actions)
        told.cpu_s += process_time() - began
        told.records.append(tuple(record_of(event) for event in events))
    return told


def record_of(event: ev.Event) -> bytes:
    """The event by itself, as MessagePack."""
    return ev.encode([event])[1:]  # without the head of a list of one


def _start(writer: _Writer, name: str, loops: list[list[Step]]) -> None:
    fields = dict.fromkeys(field for steps in loops for step in steps for field in step.sets)
    doc: Doc = {MEMORY: log_field(), **{field: plain_field(None) for field in fields}}
    fingerprint = digest(cast(Any, sorted(doc))).hex()
    writer.append(ev.RunStarted(writer.now(), name, "trace", 1, pack(name), pack(cast(Any, doc)), fingerprint))
    writer.flush()
    writer.append(ev.RunClaimed(writer.now(), 1, "trace"))
    writer.flush()


def _loop(writer: _Writer, number: int, steps: list[Step], actions: bool) -> list[ev.Event]:
    writer.append(ev.CycleEntered(writer.now(), number, 1))
    contents: list[Plain] = []
    values: dict[str, Plain] = {}
    for nth, step in enumerate(steps):
        plain = to_plain(step.content, GENERIC)
        contents.append(plain)
        values |= {name: to_plain(value, GENERIC) for name, value in step.sets.items()}
        if actions and step.kind != "other":
            call = call_id(str(number), step.kind, digest(nth), 0)
            writer.append(ev.ActionCompleted(writer.now(), number, call, step.kind, "repeatable", pack(plain),
                                             usage=_usage(step)))  # fmt: skip
            if step.kind == "llm":
                writer.flush()
    changes: list[Any] = [[MEMORY, "append", contents], *([name, "set", value] for name, value in values.items())]
    writer.append(ev.CycleCommitted(writer.now(), number, 1, pack(cast(Any, changes))))
    return writer.end_loop()


def _usage(step: Step) -> bytes:
    if step.kind != "llm":
        return b""
    usage: dict[str, Any] = {"tokens_in": step.tokens, "tokens_out": 0, "usd": step.usd, "model": ""}
    return pack(cast(Any, usage))
