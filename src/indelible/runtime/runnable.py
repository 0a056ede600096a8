"""Which runs can go on now: what a worker learns from the store's listing and from inboxes.

Owns: the rule for "can go on", and what is remembered so that a look at thousands of parked runs stays cheap.
Must never: claim or write; a listing is old when it is read, and only a claim decides.
Invariant: a journal is read only for a run that something was said to, and again only when its head has moved.

What was set aside comes back when its standing changes. Its head is no part of that: two workers that fail at the
same run, each of which moves the head, would call one another back for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from indelible.core.inbox import inbox_of, open_inbox
from indelible.core.record import PARKED, RUNNING
from indelible.errors import IndelibleError, StoreUnavailable, UnknownRun
from indelible.runtime.labels import about_of
from indelible.runtime.runstore import RunStore
from indelible.stores.base import Query, RunEntry, Upkeep
from indelible.stores.patience import at_once

INBOXES = 500
"""How many inboxes one look opens at most; the ones that were opened longest ago go first."""

Standing = tuple[object, ...]


class Runnable(NamedTuple):
    """A run that could go on when the store was looked at. `said` is the seq of its last message, if that is why."""

    entry: RunEntry
    said: int = 0

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.entry.run_id

    @property
    def agent(self) -> str:
        """The name of its agent."""
        assert self.entry.label is not None
        return self.entry.label.agent

    @property
    def standing(self) -> Standing:
        """What must change before another try is worth it."""
        label, about = self.entry.label, about_of(self.entry.label)
        status = label.status if label is not None else ""
        return status, about.version, about.cycle, about.kind, about.question, about.budget, self.said


@dataclass
class Survey:
    """What one look has found: the runs that can go on, oldest update first.

    `unsettled` counts those that will or may come to it by themselves: they wait for a time, or a live process holds
    them. `broken` are runs whose inbox cannot be read, `trouble` is why not every inbox was looked into.
    """

    runnable: list[Runnable] = field(default_factory=list)
    unsettled: int = 0
    broken: list[tuple[Runnable, IndelibleError]] = field(default_factory=list)
    trouble: StoreUnavailable | None = None


class Lookout:
    """Looks for runs of `agents` that can go on."""

    def __init__(self, runs: RunStore, agents: Collection[str]) -> None:
        # A server that is away must not keep a worker from hearing that it is to end.
        self._runs = runs if at_once(runs.store) is runs.store else RunStore(at_once(runs.store), runs.clock)
        self._agents = sorted(agents)
        self._looks = 0
        self._opened: dict[str, int] = {}
        """In which look each inbox was opened last."""
        self._taken_in: dict[str, tuple[int, int]] = {}
        """The head at which a run's journal was read, and up to where it had taken its inbox in."""
        self._aside: dict[str, Standing | None] = {}
        """None until the run was seen again, for only then it is known where it stands now."""

    @property
    def aside(self) -> int:
        """How many runs are set aside."""
        return len(self._aside)

    def look(self, ours: Collection[str] = (), every_inbox: bool = False) -> Survey:
        """What can go on now, besides `ours`, which this process works on. Raises what the listing raises."""
        self._looks += 1
        listed = {entry.run_id: entry for entry in self._listed()}
        survey, asking, sleeping = Survey(), list[RunEntry](), list[tuple[float, RunEntry]]()
        for entry in sorted(listed.values(), key=lambda entry: entry.updated_at, reverse=True)[::-1]:
            if entry.run_id in ours:
                continue
            if entry.live:
                survey.unsettled += 1
                continue
            assert entry.label is not None
            if entry.label.status == RUNNING or not (entry.label.wake_at or about_of(entry.label).kind):
                survey.runnable.append(Runnable(entry))
            elif entry.label.wake_at is None:
                asking.append(entry)
            else:
                sleeping.append((entry.label.wake_at, entry))
        self._wake(sleeping, survey)
        self._forget(listed)
        self._ask(asking, survey, every_inbox)
        survey.runnable = [found for found in survey.runnable if not self._is_aside(found)]
        survey.runnable.sort(key=lambda found: found.entry.updated_at)
        return survey

    def still(self, found: Runnable) -> bool:
        """Whether nothing has become of it since it was found, as far as can be known without a claim."""
        entries = self._runs.store.list_runs(Query(run_ids=(found.run_id,))).runs
        seen = (found.entry.head, found.entry.epoch, False)
        return any((entry.head, entry.epoch, entry.live) == seen for entry in entries)

    def set_aside(self, run_id: str) -> None:
        """Leave the run alone until its standing changes: a cycle committed, another version, something said to it."""
        self._aside[run_id] = None

    def _listed(self) -> Iterator[RunEntry]:
        for agent in self._agents:
            yield from self._runs.entries(statuses={RUNNING, PARKED}, agent=agent)

    def _wake(self, sleeping: list[tuple[float, RunEntry]], survey: Survey) -> None:
        """A time has come when this machine's clock says so, by which the run itself will look, and so does the
        store's, which all workers share. That one is asked only then, for object storage charges for it."""
        store, now = self._runs.store, self._runs.clock.now()
        if isinstance(store, Upkeep) and any(wake_at <= now for wake_at, _ in sleeping):
            now = min(now, store.now())
        survey.runnable += (Runnable(entry) for wake_at, entry in sleeping if wake_at <= now)
        survey.unsettled += sum(wake_at > now for wake_at, _ in sleeping)

    def _ask(self, asking: list[RunEntry], survey: Survey, every_inbox: bool) -> None:
        """Look for messages to those that wait for a person."""
        asking.sort(key=lambda entry: self._opened.get(entry.run_id, 0))  # stable: else the oldest update first
        for entry in asking if every_inbox else asking[:INBOXES]:
            self._opened[entry.run_id] = self._looks
            try:
                found = self._news(entry)
            except StoreUnavailable as error:
                survey.trouble = error  # the others are looked at first next time
                return
            except UnknownRun:
                continue  # deleted meanwhile
            except IndelibleError as error:
                broken = Runnable(entry)
                if not self._is_aside(broken):
                    survey.broken.append((broken, error))
                continue
            if found is not None:
                survey.runnable.append(found)

    def _news(self, entry: RunEntry) -> Runnable | None:
        said = open_inbox(entry.run_id, self._runs.store.read(inbox_of(entry.run_id))).seq
        if not said:
            return None
        head, taken_in = self._taken_in.get(entry.run_id, (-1, 0))
        if head != entry.head:
            taken_in = self._runs.recover(entry.run_id).record.inbox_seq
            self._taken_in[entry.run_id] = entry.head, taken_in
        return Runnable(entry, said) if said > taken_in else None

    def _is_aside(self, found: Runnable) -> bool:
        if found.run_id not in self._aside:
            return False
        standing = self._aside[found.run_id]
        if standing is None:
            self._aside[found.run_id] = found.standing
        elif standing != found.standing:
            del self._aside[found.run_id]
            return False
        return True

    def _forget(self, listed: Collection[str]) -> None:
        """Remember nothing of runs that have ended."""
        for memory in (self._opened, self._taken_in, self._aside):
            for run_id in [run_id for run_id in memory if run_id not in listed]:
                del memory[run_id]
