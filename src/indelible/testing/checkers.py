"""What must be true after any crash: pure questions to a journal, a record and a ledger.

Owns: the rules by which a simulated world is judged.
Must never: know a workload, or change a world.
Invariant: each check answers with sentences, one per violation, and with none if all is well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from indelible.core import events as ev
from indelible.core.changes import ATTEMPTS, DONE, FAILED, ITEM_VALUE, ITEMS, NEXT_ID, PRIORITY, REMOVED
from indelible.core.codec import pack, unpack
from indelible.core.journal import Reader, Torn, read_all
from indelible.core.record import COMPLETED, FAILED_CALL, INTENDED, SETTLED_NOT, Record, fold
from indelible.errors import IndelibleError, JournalDamaged
from indelible.stores.base import Batch
from indelible.testing.world import Deed, World

FINAL = 2**62


class Rule(NamedTuple):
    """What repeating a kind of deed means: an action's `effect`, or `undo` for a compensation."""

    effect: str
    on_doubt: str = "ask"


@dataclass
class CallStory:
    """Everything the journal says about one call."""

    call: str
    name: str = ""
    effect: str = ""
    cycle: int = 0
    key: str = ""
    status: str = ""
    source: str = ""
    result: bytes = b""
    keys: set[str] = field(default_factory=set)
    policy: int = 0
    doubts: int = 0


class Journal(NamedTuple):
    """A journal, read and verified from its first event."""

    events: list[ev.Event]
    chain: bytes | None
    record: Record


class Journals:
    """Reads journals; what several worlds share is read once."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._known: dict[bytes, Journal] = {}

    def read(self, world: World) -> Journal:
        """The journal of the run. Raises `JournalDamaged`."""
        batches = list(world.store.read(self._run_id))
        left: list[Batch] = []
        found = Journal([], None, Record(self._run_id))
        while batches:
            known = self._known.get(batches[-1].data)
            if known is not None and (not left or _can_follow(known, left[-1])):
                found = known
                break
            left.append(batches.pop())
        if left:
            found = self._known[left[0].data] = _extended(found, left[::-1])
        return found


def _can_follow(journal: Journal, batch: Batch) -> bool:
    """True if the batch can be read without the ones before it, whose digest alone is known."""
    try:
        Reader(journal.record.run_id, journal.chain, journal.record.seq).open(batch)
    except JournalDamaged:
        return False
    return True


def _extended(journal: Journal, batches: list[Batch]) -> Journal:
    record, events = _copy(journal.record), journal.events.copy()
    reader = Reader(record.run_id, journal.chain, record.seq)
    for opened in read_all(reader, batches):
        if isinstance(opened, Torn):
            raise opened.error
        for offset, event in enumerate(opened.events):
            fold(record, opened.after_seq + 1 + offset, event)
            events.append(event)
    return Journal(events, reader.chain, record)


def _copy(record: Record) -> Record:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=Record)


def stories(events: Iterable[ev.Event]) -> dict[str, CallStory]:
    """The calls a journal tells of."""
    found: dict[str, CallStory] = {}
    for event in events:
        if isinstance(event, ev.ActionDoubted) and event.call in found:
            found[event.call].doubts += 1
        if not isinstance(event, ev.ActionIntended | ev.ActionCompleted | ev.ActionFailed | ev.ActionSettled):
            continue
        story = found.setdefault(event.call, CallStory(event.call, event.name, cycle=event.cycle))
        if isinstance(event, ev.ActionIntended):
            story.effect, story.key, story.status = event.effect, event.key, INTENDED
            story.keys.add(event.key)
        elif isinstance(event, ev.ActionCompleted):
            story.effect, story.status, story.source, story.result = (
                event.effect, COMPLETED, event.source, event.result)  # fmt: skip
        elif isinstance(event, ev.ActionFailed):
            story.effect, story.status = event.effect, FAILED_CALL
        elif event.happened:
            story.status, story.source, story.result = COMPLETED, event.by, event.result
        else:
            story.status = SETTLED_NOT
            story.policy += event.by == "policy"
    return found


def grown(before: World, after: World, run_id: str) -> Iterator[str]:
    """A journal only grows."""
    old, new = list(before.store.read(run_id)), list(after.store.read(run_id))
    if new[: len(old)] != old:
        yield "lost: what was durable in the journal is not there any more"


def readable(journal: Journal, recovered: Record) -> Iterator[str]:
    """The record is the fold of the journal, whether by way of a snapshot or from the first event."""
    folded, found = (msgspec.structs.replace(record, chain=b"") for record in (journal.record, recovered))
    if folded != found:
        names = [name for name in Record.__struct_fields__ if getattr(folded, name) != getattr(found, name)]
        yield f"the record that was recovered is not the fold of the journal: {', '.join(names)} differ"
    if journal.record.seq != len(journal.events):
        yield f"the journal holds {len(journal.events)} events, the last one has seq {journal.record.seq}"


def kept(seen: Mapping[str, str], journal: Journal) -> Iterator[str]:
    """What was handed to the agent as done stays done."""
    completed = {event.call for event in journal.events if isinstance(event, ev.ActionCompleted)}
    completed |= {event.call for event in journal.events if isinstance(event, ev.ActionSettled) and event.happened}
    completed |= {f"cycle {event.cycle}" for event in journal.events if isinstance(event, ev.CycleCommitted)}
    for call, name in seen.items():
        if call not in completed:
            yield f"lost: the result of {name} was returned to the agent, and is not in the journal"


def paid_once(journal: Journal, done: list[Deed], rules: Mapping[str, Rule]) -> Iterator[str]:
    """A result that is in the journal is never paid for again: `done` came after `journal`."""
    known = {event.result for event in journal.events if isinstance(event, ev.ActionCompleted)}
    for deed in done:
        rule = rules.get(deed.kind)
        if rule is not None and rule.effect == "repeatable" and pack(f"{deed.kind} {deed.what}: done") in known:
            yield f"paid again: {deed.kind} {deed.what} was called though its result was in the journal"


def keys_kept(journal: Journal, ledger: list[Deed]) -> Iterator[str]:
    """The idempotency key of a call is made once."""
    for story in stories(journal.events).values():
        if len(story.keys) > 1:
            yield f"the key of {story.name} was made again"
    by_deed: dict[tuple[str, str], set[str]] = {}
    for deed in ledger:
        if deed.key:
            by_deed.setdefault((deed.kind, deed.what), set()).add(deed.key)
    for (kind, what), keys in by_deed.items():
        if len(keys) > 1:
            yield f"{kind} {what} was done with {len(keys)} different keys"


def deeds_match(journal: Journal, ledger: list[Deed], rules: Mapping[str, Rule], late: set[str]) -> Iterator[str]:
    """Journal and ledger tell of the same deeds, but for those in doubt."""
    told = stories(journal.events)
    intended = {key for story in told.values() for key in story.keys}
    done = {deed.key for deed in ledger if deed.key}
    listed = {call.call for call in journal.record.in_doubt()} & orphaned(journal)
    for deed in ledger:
        rule = rules.get(deed.kind)
        if rule is not None and rule.effect != "repeatable" and deed.key not in intended:
            yield f"{deed.kind} {deed.what} was done, and the journal has no intent of it"
    for story in told.values():
        if not story.key or story.key in late:
            continue
        if story.status == COMPLETED and story.source != "policy" and story.key not in done:
            yield f"the journal says that {story.name} happened ({story.source}); it did not"
        elif story.effect != "irreversible":
            continue
        elif story.status in (FAILED_CALL, SETTLED_NOT) and story.key in done and not story.policy:
            if rules_of(ledger, story.key, rules).on_doubt != "assume_not":
                yield f"the journal says that {story.name} did not happen; it did"
        elif story.status == INTENDED and story.cycle < journal.record.cycle and story.call not in listed:
            yield f"{story.name} is in doubt, and is listed nowhere"


def rules_of(ledger: list[Deed], key: str, rules: Mapping[str, Rule]) -> Rule:
    """The rule for the deed that was done under `key`."""
    return next((rules[deed.kind] for deed in ledger if deed.key == key and deed.kind in rules), Rule("irreversible"))


def orphaned(journal: Journal) -> set[str]:
    """Deeds that the journal lists as claimed by nobody, or left standing."""
    ends = (event for event in journal.events if isinstance(event, ev.CycleCommitted | ev.CycleRolledBack))
    return {call for event in ends for call in event.orphaned}


def done_once(
    ledger: list[Deed], expected: list[Deed], rules: Mapping[str, Rule], late: set[str], journal: Journal
) -> Iterator[str]:
    """Each deed that can be done only once was done as often as without any crash."""
    wanted, found = _counts(expected, rules, set()), _counts(ledger, rules, late)
    told = stories(journal.events).values()
    assumed = any(story.source == "policy" for story in told)
    unsure = {story.key for story in told if story.policy or story.doubts}
    may_repeat = {(deed.kind, deed.what) for deed in ledger
                  if deed.key in unsure and rules_of(ledger, deed.key, rules).on_doubt == "assume_not"}  # fmt: skip
    left = orphaned(journal)
    forgiven = {(deed.kind, deed.what) for deed in ledger if deed.key in late}
    for kind, what in found | wanted:
        rule, have, want = rules[kind], found[kind, what], wanted[kind, what]
        if have > 1 and (kind, what) not in may_repeat:
            yield f"repeated: {kind} {what} was done {have} times"
        elif have > want == 0:
            yield f"{kind} {what} was done, and without the crash it is not"
        elif have < want and (kind, what) not in forgiven:
            left_standing = rule.effect == "undo" and left
            if not left_standing and not (rule.on_doubt == "assume_happened" and assumed):
                yield f"missing: {kind} {what} was done {have} times instead of {want}"


def all_done(ledger: list[Deed], must_do: frozenset[tuple[str, str]]) -> Iterator[str]:
    """The untouched run does what its workload is there for."""
    for kind, what in sorted(must_do - {(deed.kind, deed.what) for deed in ledger}):
        yield f"missing: {kind} {what} was not done"


def _counts(ledger: list[Deed], rules: Mapping[str, Rule], late: set[str]) -> Counter[tuple[str, str]]:
    return Counter(
        (deed.kind, deed.what) for deed in ledger
        if deed.kind in rules and rules[deed.kind].effect != "repeatable" and not deed.repeat and deed.key not in late
    )  # fmt: skip


def same_state(doc: dict[str, Any], expected: dict[str, Any], volatile: frozenset[str]) -> Iterator[str]:
    """The final state is that of the untouched run, field by field."""
    for name in expected.keys() | doc.keys():
        if name not in volatile and comparable(doc.get(name)) != comparable(expected.get(name)):
            yield f"state.{name} is not what it is without the crash"


def comparable(stored: Any) -> Any:
    """A state field without what a further attempt may change: counts of attempts and error texts."""
    if not isinstance(stored, list) or not stored or stored[0] != "queue":
        return stored
    waiting = [(item[PRIORITY], pack(item[ITEM_VALUE])) for item in stored[ITEMS].values()]
    failed = [pack(item[ITEM_VALUE]) for item in stored[FAILED].values()]
    return ["queue", stored[NEXT_ID], sorted(waiting), sorted(failed), stored[DONE], stored[REMOVED]]


def conserved(doc: dict[str, Any]) -> Iterator[str]:
    """Every task that was added is done, failed, removed or waiting."""
    for name, stored in doc.items():
        if stored[0] != "queue":
            continue
        accounted = stored[DONE] + stored[REMOVED] + len(stored[FAILED]) + len(stored[ITEMS])
        if stored[NEXT_ID] != accounted:
            yield f"lost: state.{name} had {stored[NEXT_ID]} tasks added, and accounts for {accounted}"
        if any(item[ATTEMPTS] < 0 for item in stored[ITEMS].values()):
            yield f"state.{name} counts attempts below zero"


def values_kept(journal: Journal) -> Iterator[str]:
    """A recorded value is recorded once per cycle."""
    found: dict[tuple[int, str], Any] = {}
    for event in journal.events:
        if isinstance(event, ev.ValueRecorded):
            value = unpack(event.value)
            if found.setdefault((event.cycle, event.slot), value) != value:
                yield f"the recorded value {event.slot} of cycle {event.cycle} changed"


def waits_answered(journal: Journal) -> Iterator[str]:
    """No message of a person is taken twice."""
    taken = [event.inbox_seq for event in journal.events
             if isinstance(event, ev.WaitAnswered | ev.ActionSettled) and event.inbox_seq]  # fmt: skip
    if len(taken) != len(set(taken)):
        yield "a message from the inbox was taken twice"


def budget_kept(journal: Journal) -> Iterator[str]:
    """No call is recorded that was let through beyond the budget of that moment: each that costs must fit in, as long
    as what it costs is known before."""
    told = Record("")
    for seq, event in enumerate(journal.events, 1):
        fold(told, seq, event)
        paid = isinstance(event, ev.ActionCompleted | ev.ActionFailed | ev.ActionCharged) and event.usage
        if paid and told.budget is not None and told.usage.usd > told.budget * (1 + 1e-9):
            yield f"event {seq} ({ev.kind_of(event)}) passed the budget: {told.usage.usd:g} of {told.budget:g} USD"


def not_written(after: World, run_id: str, own: int) -> Iterator[str]:
    """A process that was fenced off writes no more; `own` is the head of its journal then."""
    head = max((batch.last_seq for batch in after.store.read(run_id)), default=0)
    if head > own:
        yield f"a process that was fenced off wrote events {own + 1} to {head}"


def outcome_of_open(error: IndelibleError) -> str:
    """A store that cannot be read after a crash, in a sentence."""
    return f"after the crash the run cannot be read: {error.what}"
