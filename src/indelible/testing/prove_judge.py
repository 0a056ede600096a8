"""What a case shows about the agent, in one plain sentence for each culprit.

Owns: the comparison of a case with the untouched run, and the wording of what was found.
Must never: look anywhere but into what was seen; a case's journal is compared with its deeds, not believed.
Invariant: the same fault of the same culprit is one finding, however many cases show it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from indelible.core.actions import OnDoubt
from indelible.core.codec import GENERIC, from_plain, to_json, unpack
from indelible.core.record import COMPLETED, FAILED, FAILED_CALL, FINISHED, SETTLED_NOT
from indelible.runtime.actions import resolve
from indelible.testing import checkers
from indelible.testing.checkers import CallStory, Journal
from indelible.testing.prove_evidence import Case, Entry, name_of
from indelible.testing.prove_limits import MAX_IDLE

MAX_SHOWN = 48
OUTSIDE_STATE = "something is remembered outside State"


class Fact(NamedTuple):
    """What one case shows. `rule` and `culprit` say which finding it belongs to."""

    rule: str
    culprit: str
    sentence: str


@dataclass
class Finding:
    """A fault, the first case that shows it, and how many do. `rule` is lost, repeated, world, state or library."""

    rule: str
    culprit: str
    sentence: str
    where: str
    cases: int = 1


@dataclass
class Usual:
    """How the run ends without any fault, and what of that differs from one such run to the next."""

    case: Case
    volatile: set[str] = field(default_factory=set)
    same_result: bool = True
    same_bodies: bool = True
    same_entries: bool = True

    @staticmethod
    def of(cases: Sequence[Case]) -> Usual:
        """What all the untouched runs have in common."""
        first, usual = cases[0], Usual(cases[0])
        for other in cases[1:]:
            one, two = _journal(first).record, _journal(other).record
            usual.volatile |= set(_differing(one.doc, two.doc))
            usual.same_result &= (one.status, one.result) == (two.status, two.result)
            usual.same_bodies &= _bodies(first.entries) == _bodies(other.entries)
            usual.same_entries &= _kinds(first.entries) == _kinds(other.entries)
        return usual

    def notes(self) -> Iterator[str]:
        """What cannot be judged, because two untouched runs differ in it, and what goes wrong without any fault."""
        yield from (f"a cycle raises {error[:120]} without any fault" for error in sorted(self.case.rollbacks()))
        yield from (f"state.{name} differs between two untouched runs, so it cannot be judged" for name in
                    sorted(self.volatile))  # fmt: skip
        if not self.same_result:
            yield "the result differs between two untouched runs, so it cannot be judged"
        if not self.same_entries:
            yield "the deeds in the world differ between two untouched runs, so their number cannot be judged"
        elif not self.same_bodies:
            yield "the deeds in the world differ in content between two untouched runs, so only their number is judged"

    @property
    def deterministic(self) -> bool:
        """True if two untouched runs end alike."""
        return not self.volatile and self.same_result and self.same_bodies


def judge(case: Case, usual: Usual) -> Iterator[Fact]:
    """Everything that is wrong with a case."""
    yield from (Fact("lost" if text.startswith("lost") else "library", text, text) for text in case.problems)
    yield from _lost(case)
    if case.endless:
        yield Fact("state", "end", _endless(case))
    journal = case.journal
    stories = checkers.stories(journal.events) if journal is not None else {}
    yield from _repeated(case, stories)
    if journal is None or journal.record.status not in (FINISHED, FAILED):
        if case.lives[-1].error and not case.cut:
            error = case.lives[-1].error.partition("\n")[0][:160]
            yield Fact("state", "error", f"after a restart the run stopped with {error}")
        return
    yield from _told(case, stories)
    library = [*checkers.conserved(journal.record.doc), *checkers.values_kept(journal),
               *checkers.waits_answered(journal)]  # fmt: skip
    yield from (Fact("lost" if text.startswith("lost") else "library", text, text) for text in library)
    # An agent that was given an error, and has not just begun its cycle anew, may have chosen another way.
    alike = not case.raised or (bool(case.rollbacks()) and not case.gave_up())
    found = list(_world(case, usual, stories, alike))
    yield from found
    # What was done twice may well end otherwise; that is no fault of its own.
    if alike and not [*found, *_repeated(case, stories)]:
        yield from _state(case, usual)


def _endless(case: Case) -> str:
    if case.waits.count("diverged") > MAX_IDLE // 4:
        return ("after a restart each entry into the cycle wants another deed than the one it has done: take times and "
                "random values from run.now(), run.random and run.new_id()")  # fmt: skip
    return f"after a restart the run does not come to an end: {case.endless}"


def _lost(case: Case) -> Iterator[Fact]:
    """What was durable is not done again, and what was handed out was durable by then."""
    done: set[str] = set()
    undone = {call.removeprefix("undo:") for call in case.began if call.startswith("undo:")}  # may be done anew
    for life in case.lives:
        for call in sorted(done.intersection(life.began) - undone):
            name = name_of(call)
            yield Fact("lost", name, f"lost: `{name}` was called again, though its result was in the journal")
        for call in sorted({*life.again} - undone):
            name = name_of(call)
            yield Fact("lost", name, f"lost: `{name}` was called again in the same process that had got its result")
        if life.journal is None:
            continue
        done = {call for call, story in checkers.stories(life.journal.events).items() if story.status == COMPLETED}
        for call in sorted(life.handed - done):
            name = name_of(call)
            yield Fact("lost", name, f"lost: the result of `{name}` was given to the agent, and is not in the journal")


def _repeated(case: Case, stories: dict[str, CallStory]) -> Iterator[Fact]:
    counts = Counter(seen.call for seen in case.returned if seen.effect == "irreversible")
    for call, count in counts.items():
        if count > 1 and not _may_repeat(call, stories):
            yield _again(call, count, case)


def _again(call: str, count: int, case: Case) -> Fact:
    """An irreversible deed was done more than one time."""
    name = name_of(call)
    why = ": its probe said that it had not happened, and it had" if case.denied(call) else ""
    return Fact("repeated", name, f"`{name}` is irreversible, and was done {count} times{why}")


def _may_repeat(call: str, stories: dict[str, CallStory]) -> bool:
    """True if it was settled by policy that the call did not happen, and that is the policy it was declared with."""
    spec = resolve(name_of(call))
    return call in stories and stories[call].policy > 0 and spec is not None and spec.on_doubt is OnDoubt.ASSUME_NOT


def _told(case: Case, stories: dict[str, CallStory]) -> Iterator[Fact]:
    """The journal tells of the same deeds that were seen."""
    returned = {seen.call for seen in case.returned}
    for story in stories.values():
        if story.effect != "irreversible" or _may_repeat(story.call, stories):
            continue
        if story.status == COMPLETED and story.source == "probe" and not case.began[story.call]:
            yield Fact("world", story.name, f"the probe of `{story.name}` said that it happened; it had not")
        if story.status in (FAILED_CALL, SETTLED_NOT) and story.call in returned:
            yield Fact("world", story.name, f"`{story.name}` was done, and the journal says that it was not: "
                       "its probe, or its fails_cleanly, is wrong")  # fmt: skip


def _world(case: Case, usual: Usual, stories: dict[str, CallStory], alike: bool) -> Iterator[Fact]:
    """The world's ledger holds what it holds without any fault."""
    if not usual.same_entries:
        return
    if not usual.same_bodies:
        found, wanted = _kinds(case.entries), _kinds(usual.case.entries)
    else:
        found, wanted = _bodies(case.entries), _bodies(usual.case.entries)
    kinds, usually = _kinds(case.entries), _kinds(usual.case.entries)
    for what in found - wanted:
        entries = [entry for entry in case.entries if what in (entry.what, (entry.kind, ""))]
        yield from _extra(entries, kinds[what[0], ""], usually[what[0], ""], bool(wanted[what]), case, stories, alike)
    assumed = any(story.source == "policy" for story in stories.values())
    if not alike or assumed or found - wanted:
        return
    for (kind, _), count in (wanted - found).items():
        yield Fact("world", kind, f"missing: {kind}: {count} fewer than in the untouched run")


def _extra(
    entries: list[Entry], count: int, usually: int, repeated: bool, case: Case, stories: dict[str, CallStory],
    alike: bool,
) -> Iterator[Fact]:  # fmt: skip
    """Who is to blame for entries that the untouched run does not make."""
    kind = entries[0].kind
    if any(not entry.under_way for entry in entries):
        yield Fact("repeated", kind, f"{kind}: {_count(count, 'entry', 'entries')} where the uninterrupted run made "
                   f"{usually}, and no action was being performed: a deed is done outside an @action")  # fmt: skip
        return
    call = case.maker_of(entries[-1])
    name, effect = name_of(call), _effect_of(call, case, stories)
    if effect == "irreversible" and repeated and not _may_repeat(call, stories):
        yield _again(call, len(entries), case)
    elif effect == "repeatable" and case.began[call] > 1:
        yield Fact("repeated", name, f"`{name}` is declared repeatable, but calling it again changed the world: "
                   'declare it effect="irreversible" or "idempotent"')  # fmt: skip
    elif effect == "idempotent" and case.began[call] > 1:
        yield Fact("repeated", name, f"`{name}` is declared idempotent, but calling it again with the same key changed "
                   'the world: hand its key to the other side, or declare it effect="irreversible"')  # fmt: skip
    elif alike and not repeated:
        yield Fact("state", name, f"after a restart `{name}` did something else than in the untouched run: "
                   f"{OUTSIDE_STATE}")  # fmt: skip


def _effect_of(call: str, case: Case, stories: dict[str, CallStory]) -> str:
    seen = next((seen.effect for seen in case.returned if seen.call == call), "")
    return seen or (stories[call].effect if call in stories else "repeatable")


def _state(case: Case, usual: Usual) -> Iterator[Fact]:
    """The run ends as it does without any fault."""
    end, wanted = _journal(case).record, _journal(usual.case).record
    if not case.raised:
        for error in sorted(case.rollbacks() - usual.case.rollbacks()):
            yield Fact("state", "error", f"after a restart a cycle raised {error[:120]}: {OUTSIDE_STATE}")
    for name in _differing(end.doc, wanted.doc):
        if name not in usual.volatile:
            what = _differ(end.doc.get(name), wanted.doc.get(name))
            yield Fact("state", name, f"after a restart `state.{name}` differs ({what}): {OUTSIDE_STATE}")
    if not usual.same_result:
        return
    if end.status != wanted.status:
        yield Fact("state", "end", f"after a restart the run {end.status}, and untouched {wanted.status}: "
                   f"{OUTSIDE_STATE}")  # fmt: skip
    elif end.result != wanted.result:
        one, two = (unpack(record.result) if record.result else None for record in (end, wanted))
        yield Fact("state", "result", f"after a restart the result differs ({_differ(one, two)}): {OUTSIDE_STATE}")
    if usual.deterministic and "diverged" in case.waits and "diverged" not in usual.case.waits:
        yield Fact("state", "diverged", "after a restart a cycle wanted another deed than the one it had done: "
                   f"{OUTSIDE_STATE}")  # fmt: skip


def _differing(one: dict[str, Any], two: dict[str, Any]) -> Iterator[str]:
    """The fields in which two states differ by more than counts of attempts."""
    for name in sorted(one.keys() | two.keys()):
        if checkers.comparable(one.get(name)) != checkers.comparable(two.get(name)):
            yield name


def _differ(one: Any, two: Any) -> str:
    return f"{_brief(one)} instead of {_brief(two)}"


def _brief(plain: Any) -> str:
    try:
        text = ascii(to_json(from_plain(plain, GENERIC, "")))
    except Exception:  # a report must not fail on what it shows
        text = ascii(plain)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _journal(case: Case) -> Journal:
    assert case.journal is not None
    return case.journal


def _bodies(entries: list[Entry]) -> Counter[tuple[str, str]]:
    return Counter(entry.what for entry in entries)


def _kinds(entries: list[Entry]) -> Counter[tuple[str, str]]:
    return Counter((entry.kind, "") for entry in entries)


class Findings:
    """What all cases of a proof have shown."""

    def __init__(self) -> None:
        self.all: dict[tuple[str, str], Finding] = {}

    def add(self, case: Case, facts: Iterator[Fact]) -> None:
        """Take in what one case shows; each culprit counts once for it."""
        told: set[tuple[str, str]] = set()
        for fact in facts:
            key = fact.rule, fact.culprit
            if key in told:
                continue
            told.add(key)
            if key in self.all:
                self.all[key].cases += 1
            else:
                self.all[key] = Finding(fact.rule, fact.culprit, fact.sentence, case.where)

    def count(self, rule: str) -> int:
        """How many cases show a fault of that rule."""
        return sum(finding.cases for finding in self.all.values() if finding.rule == rule)
