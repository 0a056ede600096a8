"""What was seen of one run from outside: the calls that were really made, the world's ledger, the journal.

Owns: the words in which a simulated and a real case are told alike.
Must never: judge, or believe the journal about what was done.
Invariant: a life holds what one process did; the lives of a case are in the order in which they were lived.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from indelible.core import events as ev
from indelible.core.codec import unpack
from indelible.testing.checkers import Journal

RUN_ID = "prove"


class Entry(NamedTuple):
    """One deed in the world's ledger, and the calls of actions that were being performed when it was done."""

    kind: str
    body: dict[str, Any]
    key: str
    under_way: tuple[str, ...]

    @property
    def what(self) -> tuple[str, str]:
        """Which deed it is, without what the sender makes up anew each time."""
        kept = {name: value for name, value in self.body.items() if name != "message_id"}
        return self.kind, json.dumps(kept, sort_keys=True)


class Seen(NamedTuple):
    """A call that returned: what it was, its packed result, and whether that had to be durable at once."""

    call: str
    effect: str
    result: bytes
    matters: bool


@dataclass
class Life:
    """One process. `journal` is what it left, None if the run was not accepted by then."""

    killed: bool = False
    error: str = ""
    began: list[str] = field(default_factory=list)
    returned: list[Seen] = field(default_factory=list)
    handed: set[str] = field(default_factory=set)
    """Calls whose result the agent has got."""
    again: list[str] = field(default_factory=list)
    """Calls that were made though the agent had got their result in this process."""
    journal: Journal | None = None


@dataclass
class Case:
    """One run from its start to its end, or as far as it came.

    raised: True if the agent was given an error of ours to deal with, so that it may go another way.
    cut: True if it was not played to its end, because the rest is known.
    points: how many points its real processes passed.
    endless: why it was given up before its end, if it was.
    """

    where: str
    lives: list[Life] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    raised: bool = False
    cut: bool = False
    points: int = 0
    endless: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def journal(self) -> Journal | None:
        """The run's journal at its end."""
        return self.lives[-1].journal if self.lives else None

    @property
    def returned(self) -> list[Seen]:
        """Every call that returned, in any of the processes."""
        return [seen for life in self.lives for seen in life.returned]

    @property
    def began(self) -> Counter[str]:
        """How often each call was made."""
        return Counter(call for life in self.lives for call in life.began)

    @property
    def deeds(self) -> int:
        """How many idempotent and irreversible calls were really performed."""
        return sum(seen.effect != "repeatable" for seen in self.returned)

    def result_of(self, call: str) -> bytes | None:
        """What a call returned; None if it was not seen to return."""
        return next((seen.result for seen in self.returned if seen.call == call), None)

    def maker_of(self, entry: Entry) -> str:
        """The call that made an entry; "" if none was under way.

        Of several, the one whose key came along, or whose arguments stand in the entry.
        """
        if len(entry.under_way) < 2:
            return "".join(entry.under_way)
        intents = {event.call: event for event in self._events() if isinstance(event, ev.ActionIntended)}

        def likely(call: str) -> tuple[bool, int]:
            intent = intents.get(call)
            if intent is None:
                return False, 0
            texts = [text for text in _texts(unpack(intent.args)) if text in _texts(entry.body)]
            return bool(entry.key) and intent.key == entry.key, len(texts)

        return max(entry.under_way, key=likely)

    def rollbacks(self) -> set[str]:
        """The errors by which cycles were rolled back."""
        return {event.error for event in self._events() if isinstance(event, ev.CycleRolledBack)}

    def denied(self, call: str) -> bool:
        """True if a probe said that the call had not happened."""
        return any(isinstance(event, ev.ActionSettled) and event.call == call and event.by == "its probe"
                   for event in self._events())  # fmt: skip

    def gave_up(self) -> bool:
        """True if a cycle was given up for good."""
        return any(event.gave_up for event in self._events() if isinstance(event, ev.CycleRolledBack))

    def results_by_arguments(self) -> Mapping[tuple[str, bytes], bytes]:
        """What deeds returned, by their name and arguments."""
        intents = {event.call: (event.name, event.args) for event in self._events()
                   if isinstance(event, ev.ActionIntended)}  # fmt: skip
        return {intents[seen.call]: seen.result for seen in self.returned if seen.call in intents}

    def _events(self) -> Iterable[ev.Event]:
        return self.journal.events if self.journal is not None else ()


def _texts(value: Any) -> list[str]:
    """Every text and number in plain data."""
    if isinstance(value, dict):
        return [text for part in value.values() for text in _texts(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in _texts(part)]
    return [str(value)]


def name_of(call: str) -> str:
    """The action that a call's identity names."""
    return call.removeprefix("undo:").rpartition("-")[0]
