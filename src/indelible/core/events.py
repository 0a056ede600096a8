"""What can happen to a run, as facts in the past tense.

Owns: the event classes and their encoding inside a batch.
Must never: hold live objects; values travel as packed bytes of plain data.
Invariant: an event once released keeps its tag and the meaning of its fields; fields
are only added, with defaults, so that older journals always decode.

Every event carries `at`, epoch seconds, for people to read. Order comes from the seq
alone, never from `at`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from indelible.errors import JournalDamaged


class Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="e", tag="event"):
    """A fact about a run."""

    at: float


class RunStarted(Event, frozen=True, tag="run.started"):
    """The run was accepted. `objective` and `doc` are packed."""

    run_id: str
    agent: str
    version: int
    objective: bytes
    doc: bytes
    fingerprint: str
    library: str = ""


class RunClaimed(Event, frozen=True, tag="run.claimed"):
    """A process took the run up, to start it or to go on with it."""

    epoch: int
    owner: str
    library: str = ""
    cut: int = 0
    """Number of events in a torn last batch that was passed over."""


class RunBudgeted(Event, frozen=True, tag="run.budgeted"):
    """From here on the run may spend `usd` US dollars in all. A person's later word is in a `wait.answered`."""

    usd: float
    by: str


class ActionIntended(Event, frozen=True, tag="action.intended"):
    """An idempotent or irreversible action is about to be called. `args` is packed."""

    cycle: int
    attempt: int
    call: str
    name: str
    effect: str
    key: str
    args: bytes
    business: bool = False
    """True if the key is a declared business key, good for the whole run."""
    undoes: str = ""
    within: str = ""
    """The action it was called in, if any."""


class ActionCompleted(Event, frozen=True, tag="action.completed"):
    """An action returned, or is known to have happened. `result` is packed."""

    cycle: int
    call: str
    name: str
    effect: str
    result: bytes
    took: float = 0.0
    source: str = "call"
    """`call`, `probe` or `policy`."""
    usage: bytes = b""
    business: bool = False
    unstorable: str = ""
    """Why the result could not be kept, if it could not: the deed is done all the same."""
    within: str = ""


class ActionFailed(Event, frozen=True, tag="action.failed"):
    """An action raised. For an irreversible one this is a clean failure: nothing happened."""

    cycle: int
    attempt: int
    call: str
    name: str
    effect: str
    error: bytes
    took: float = 0.0
    usage: bytes = b""
    business: bool = False


class ActionDoubted(Event, frozen=True, tag="action.doubted"):
    """It is not known whether the intended action happened; `reason` says why."""

    cycle: int
    call: str
    name: str
    reason: str


class ActionSettled(Event, frozen=True, tag="action.settled"):
    """A person or a policy decided what became of an action in doubt."""

    cycle: int
    call: str
    name: str
    happened: bool
    by: str
    result: bytes = b""
    inbox_seq: int = 0


class ActionCharged(Event, frozen=True, tag="action.charged"):
    """A call has cost something that no outcome of it tells: it was cut off, is in doubt, or left nothing to keep."""

    cycle: int
    call: str
    name: str
    usage: bytes


class ValueRecorded(Event, frozen=True, tag="value.recorded"):
    """The clock or a random seed as this cycle saw it."""

    cycle: int
    slot: str
    value: bytes


class CycleEntered(Event, frozen=True, tag="cycle.entered"):
    """The cycle began, or began again. The first entry's `at` is the time by which tasks are due in all of them."""

    cycle: int
    attempt: int


class CycleParked(Event, frozen=True, tag="cycle.parked"):
    """The cycle was suspended: nothing committed, its completed actions kept."""

    cycle: int
    wait: str
    kind: str
    question: str
    wake_at: float = 0.0
    detail: bytes = b""
    recalls: tuple[str, ...] = ()


class WaitAnswered(Event, frozen=True, tag="wait.answered"):
    """What a parked cycle waited for has come."""

    cycle: int
    wait: str
    answer: bytes
    by: str
    inbox_seq: int = 0


class InboxRead(Event, frozen=True, tag="inbox.read"):
    """Messages up to `inbox_seq` were looked at; `refused` of them did not apply."""

    inbox_seq: int
    refused: int = 0


class CycleCommitted(Event, frozen=True, tag="cycle.committed"):
    """One logical transaction: everything in `changes` (packed) holds from here on."""

    cycle: int
    attempt: int
    changes: bytes
    orphaned: tuple[str, ...] = ()
    recalled: int = 0
    """Calls of this cycle that were answered from the journal."""
    recalls: tuple[str, ...] = ()
    """Which those were, each as often as it was asked for."""
    waited: float = 0.0
    """Seconds in which a durable write was under way, since the commit before in the same process."""


class CycleAbandoned(Event, frozen=True, tag="cycle.abandoned"):
    """The cycle will not be tried again; its deeds are being undone."""

    cycle: int
    attempt: int
    error: str
    changes: bytes
    recalls: tuple[str, ...] = ()
    where: str = ""
    """The line of the agent's own code that it came from, such as `agent.py:12 in worker`."""


class CycleRolledBack(Event, frozen=True, tag="cycle.rolled_back"):
    """The cycle ended in an exception; `changes` (packed) only count attempts."""

    cycle: int
    attempt: int
    error: str
    changes: bytes
    gave_up: bool = False
    orphaned: tuple[str, ...] = ()
    recalls: tuple[str, ...] = ()
    where: str = ""


class StateMigrated(Event, frozen=True, tag="state.migrated"):
    """The document was carried from version `old` to version `new`. `doc`, `unknown` are packed."""

    old: int
    new: int
    doc: bytes
    unknown: bytes
    fingerprint: str


class RunFinished(Event, frozen=True, tag="run.finished"):
    """The run reached its end. `result` is packed."""

    result: bytes


class RunFailed(Event, frozen=True, tag="run.failed"):
    """The run gave up; only a person takes it up again."""

    error: str


class RunReopened(Event, frozen=True, tag="run.reopened"):
    """A failed run was taken up again: its last cycle is open as it was, and `changes` (packed) revive tasks."""

    changes: bytes


class RunMoved(Event, frozen=True, tag="run.moved"):
    """From here on the run lives in the store `to`, once what is stored here has arrived there."""

    to: str
    move: str
    library: str = ""


class RunArrived(Event, frozen=True, tag="run.arrived"):
    """The run that was moved by `move` lives in this store now, as it stood before. `origin` is where it came from."""

    origin: str
    move: str
    library: str = ""


class Answer(Event, frozen=True, tag="inbox.answer"):
    """In an inbox: a person answers a wait (`value` packed)."""

    wait: str
    value: bytes
    by: str


class Settlement(Event, frozen=True, tag="inbox.settlement"):
    """In an inbox: a person says what became of an action in doubt."""

    call: str
    happened: bool
    result: bytes
    by: str


class Unknown(Event, frozen=True, tag="unknown"):
    """An event of a kind this release does not know: kept, counted, passed over."""

    kind: str
    raw: bytes


KNOWN = (
    RunStarted, RunClaimed, ActionIntended, ActionCompleted, ActionFailed, ActionDoubted, ActionSettled,
    ValueRecorded, CycleEntered, CycleParked, WaitAnswered, InboxRead, CycleCommitted, CycleAbandoned, CycleRolledBack,
    StateMigrated, RunFinished, RunFailed, RunReopened, RunBudgeted, ActionCharged, RunMoved,
    RunArrived, Answer, Settlement,
)  # fmt: skip

AnyEvent = (
    RunStarted | RunClaimed | ActionIntended | ActionCompleted | ActionFailed | ActionDoubted | ActionSettled
    | ValueRecorded | CycleEntered | CycleParked | WaitAnswered | InboxRead | CycleCommitted | CycleAbandoned
    | CycleRolledBack | StateMigrated | RunFinished | RunFailed | RunReopened | RunBudgeted | ActionCharged | RunMoved
    | RunArrived | Answer | Settlement
)  # fmt: skip

_TAGS = frozenset(cls.__struct_config__.tag for cls in KNOWN)
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[AnyEvent])
_raw_decoder: msgspec.msgpack.Decoder[list[msgspec.Raw]] = msgspec.msgpack.Decoder(list[msgspec.Raw])


def kind_of(event: Event) -> str:
    """The event's name, such as `action.intended`."""
    return event.kind if isinstance(event, Unknown) else str(type(event).__struct_config__.tag)


def encode(events: list[Event]) -> bytes:
    """The body of a batch."""
    return _encoder.encode(events)


def decode(body: bytes, where: str) -> list[Event]:
    """The events of a batch's body; `where` names the batch in errors.

    Events of unknown kinds come back as `Unknown`. Raises `JournalDamaged` if the body is
    not a list of events at all, or a known event lacks what it must have.
    """
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError:
        return _decode_each(body, where)
    except (msgspec.DecodeError, RecursionError) as error:
        raise JournalDamaged(f"{where} does not decode: {error}", hint="indelible verify RUN") from error


def _decode_each(body: bytes, where: str) -> list[Event]:
    events: list[Event] = []
    try:
        for raw in _raw_decoder.decode(body):
            fields = msgspec.msgpack.decode(raw)
            if isinstance(fields, dict) and fields.get("e") not in _TAGS:
                events.append(Unknown(float(fields.get("at", 0.0)), str(fields.get("e")), bytes(raw)))
            else:
                events.append(msgspec.msgpack.decode(raw, type=AnyEvent))
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
        raise JournalDamaged(f"{where} holds no valid event: {error}", hint="indelible verify RUN") from error
    return events
