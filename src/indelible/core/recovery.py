"""Recovery: from what a store holds to a run that can go on.

Owns: the choice of a snapshot, the fold of the tail, the acceptance of a new run, and the
carrying over of older state to newer code.
Must never: trust a snapshot that does not verify, delete anything, or run user code other
than migrations, invariants and the start function.
Invariant: what is recovered is the fold of the journal, whichever snapshot it began from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, cast

from indelible.core import arriving, snapshots
from indelible.core import events as ev
from indelible.core.budgets import CALLER
from indelible.core.changes import Doc
from indelible.core.codec import pack, unpack
from indelible.core.cycle import AgentSpec, Live
from indelible.core.failures import text_of
from indelible.core.journal import Journal, Reader, Torn, read_all, seed
from indelible.core.natural import from_natural, natural
from indelible.core.record import Record, fold
from indelible.core.requests import NOW, Append, Call, Steps, StoreCall
from indelible.core.state import Workspace
from indelible.errors import IndelibleError, JournalDamaged, StateInvalid

NEWEST = 2**62


@dataclass
class Recovered:
    """A run as read from a store. `cut_to` is above `record.seq` if the last batch is torn."""

    record: Record
    chain: bytes
    cut_to: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    snapshot_size: int = 0
    notices: list[str] = field(default_factory=list)

    def journal(self) -> Journal:
        """The journal that goes on where this one ends."""
        return Journal(self.chain, self.record.seq, cut_to=self.cut_to)


def recover(run_id: str) -> Steps[Recovered]:
    """Read a run: the newest snapshot that verifies, and the batches after it.

    Raises `JournalDamaged` with the position if a batch other than the last does not verify, `RunMoved` for a run of
    which not all has arrived in this store.
    """
    notices: list[str] = []
    at_most = NEWEST
    torn: tuple[int, Recovered] | None = None
    while True:
        found = yield StoreCall("get_snapshot", (run_id, at_most))
        start = Recovered(Record(run_id), seed(run_id), notices=notices)
        if found is not None:
            seq, data = found
            if at_most == NEWEST:
                arriving.must_be_here(run_id, data)
            at_most = seq - 1
            if arriving.marked(data) is not None:
                continue  # of a move that came to nothing
            try:
                record = snapshots.decode(data, run_id, seq)
            except JournalDamaged as error:
                notices.append(f"{error.what}; an older one is used")
                continue
            start = Recovered(record, record.chain, snapshot_size=len(data), notices=notices)
        began = start.record.seq
        batches = iter((yield StoreCall("read", (run_id, began))))
        if found is None:  # the journal itself must begin at its first event, or what came before was pruned
            first = next(batches, None)
            if torn is not None and first is not None and first[0] == torn[0]:
                return torn[1]
            if first is None and notices:
                raise JournalDamaged(f"run {run_id!r}: {notices[-1]}, and there is none", hint="indelible verify RUN")
            batches = batches if first is None else chain((first,), batches)
        try:
            _fold_tail(start, batches)
        except JournalDamaged as error:
            if found is None:
                raise
            notices.append(f"{error.what}; the snapshot at event {start.record.seq} is passed over")
            continue
        if start.cut_to and found is not None:
            torn = began, start
            continue  # make sure that it is the tail that is torn, and not the snapshot that misleads
        return start


def _fold_tail(start: Recovered, batches: Iterable[tuple[int, int, bytes]]) -> None:
    reader = Reader(start.record.run_id, start.chain, start.record.seq)
    for opened in read_all(reader, batches):
        if isinstance(opened, Torn):
            start.cut_to = opened.last_seq
            start.notices.append(f"{opened.error.what}; it is cut off and kept aside")
            break
        for offset, event in enumerate(opened.events):
            fold(start.record, opened.after_seq + 1 + offset, event)
        start.chain = reader.chain
        start.raw_bytes += opened.raw_bytes
        start.stored_bytes += opened.stored_bytes


def accept(live: Live, objective: str, library: str, budget: float | None = None) -> Steps[None]:
    """Accept a new run: its first state, with what the start function does, is durable when this returns."""
    agent, workspace = live.agent, live.workspace
    at = yield NOW
    if agent.start is not None:
        workspace.open(at)
        try:
            yield Call(agent.start, (live.handle,), {}, None)
            workspace.commit(workspace.changes())
        except BaseException:
            workspace.discard()
            raise
    check_invariants(live)
    doc = pack(cast(Any, workspace.doc))
    started = ev.RunStarted(at, live.record.run_id, agent.name, agent.version, pack(objective), doc,
                            agent.shape.fingerprint, library)  # fmt: skip
    yield Append(started, durable=budget is None)
    if budget is not None:  # in one batch: there is no moment at which the run is known without it
        yield Append(ev.RunBudgeted(at, budget, CALLER), durable=True)
    live.workspace = Workspace(agent.shape, live.record.doc)  # the fold's own document: it is folded into once only


def carry_over(record: Record, agent: AgentSpec) -> ev.StateMigrated | None:
    """What must be recorded for this code to go on with that state; None if it fits as it is.

    Runs the migrations on a copy; `record` is left alone. The event's `at` is 0, for the
    caller to replace. Raises `StateInvalid`, naming the step or the field.
    """
    if record.version == agent.version and record.fingerprint == agent.shape.fingerprint:
        return None
    if record.version > agent.version:
        raise StateInvalid(
            f"run {record.run_id} was last written by version {record.version} of agent {agent.name}; "
            f"this code is version {agent.version}",
            hint="deploy the newer code again, or raise version= and add the migration",
            run=record.run_id,
        )
    data = natural(record.doc, agent.shape.types)
    for version in range(record.version, agent.version):
        step = agent.migrations.get(version)
        if step is None:
            continue
        try:
            data = step(data)
        except Exception as error:
            raise StateInvalid(
                f"run {record.run_id}: the migration from version {version} failed with {text_of(error)}",
                hint=f"mend @{agent.name}.migration({version}); nothing was changed",
                run=record.run_id,
            ) from error
        if not isinstance(data, dict):
            raise StateInvalid(
                f"the migration from version {version} returned {type(data).__name__}, not a dict",
                hint=f"return the dict from @{agent.name}.migration({version})",
            )
    doc, unknown = from_natural(data, agent.shape, record.doc)
    packed, kept = pack(cast(Any, doc)), pack(cast(Any, unknown))
    return ev.StateMigrated(0.0, record.version, agent.version, packed, kept, agent.shape.fingerprint)


def fit(live: Live) -> ev.StateMigrated | None:
    """Make a working copy of the state as this code has it, and check its meaning. Nothing is appended.

    Returns what is to be given to `migrate`. Raises `StateInvalid`, and then this code cannot go on with the run.
    """
    event = carry_over(live.record, live.agent)
    doc = live.record.doc if event is None else cast(Doc, unpack(event.doc))
    live.workspace = Workspace(live.agent.shape, doc)
    check_invariants(live)
    return event


def migrate(live: Live, event: ev.StateMigrated | None) -> Steps[None]:
    """Carry the state over to this code, as `fit` has found it to be possible. Durable with the next write."""
    if event is not None:
        at = yield NOW
        yield Append(ev.StateMigrated(at, event.old, event.new, event.doc, event.unknown, event.fingerprint))
        live.workspace = Workspace(live.agent.shape, live.record.doc)


def check_invariants(live: Live) -> None:
    """Ask the agent's invariants about the state. Raises `StateInvalid` naming the one that fails."""
    for invariant in live.agent.invariants:
        name = getattr(invariant, "__name__", "invariant")
        try:
            verdict = invariant(live.workspace.state)
        except IndelibleError:
            raise
        except Exception as error:
            verdict = text_of(error)
        if verdict is False or isinstance(verdict, str):
            why = f": {verdict}" if isinstance(verdict, str) else ""
            known = f"indelible show {live.record.run_id}"
            raise StateInvalid(
                f"run {live.record.run_id}: the invariant {name} does not hold{why}",
                hint=known if live.record.agent else f"mend @{live.agent.name}.start; no run was accepted",
                run=live.record.run_id,
            )
