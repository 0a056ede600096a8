"""Messages to a run: each is taken once, the first answer holds, and none is lost in a race."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import indelible as ind
from indelible.core import events as ev
from indelible.drive.clock import SystemClock
from indelible.errors import IndelibleError, JournalDamaged
from indelible.runtime.runstore import RunStore
from indelible.runtime.verify import verify
from indelible.stores.base import Write, inbox_of
from indelible.stores.memory import MemoryStore
from tests.unit.simple_agents import Memory, agent_of


def asking(run: ind.Run[Memory]) -> None:
    run.finish([run.ask(question) for question in ("who?", "when?")])


def of_kind(store: RunStore, kind: type[Any]) -> list[Any]:
    return [event for _, event in store.events("r") if isinstance(event, kind)]


def test_a_message_is_taken_once_and_the_first_answer_holds(store: RunStore) -> None:
    """An answer given twice, by two people or by a click made twice, is no second answer."""
    agent = agent_of(asking)
    first = agent.run("o", store=store, run_id="r")
    for answer in ("bob", "eve"):
        store.answer("r", answer, wait=first.wait)
    second = agent.run("o", store=store, run_id="r")
    assert second.question == "when?"
    assert [event.refused for event in of_kind(store, ev.InboxRead)] == [1]
    assert agent.run("o", store=store, run_id="r").wait == second.wait
    store.answer("r", "now")
    assert agent.run("o", store=store, run_id="r").result == ["bob", "now"]
    assert [event.inbox_seq for event in of_kind(store, ev.WaitAnswered)] == [1, 3]
    assert len(of_kind(store, ev.InboxRead)) == 1


def test_a_settlement_settles_one_doubt_and_not_the_next_one_of_the_same_deed(store: RunStore) -> None:
    """A person looked once, and said that the mail had not gone out. Of the second try nobody has said anything."""
    tries: list[int] = []

    @ind.action(effect="irreversible")
    def send() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise TimeoutError

    agent = agent_of(lambda run: run.finish(send()))
    assert agent.run("o", store=store, run_id="r").kind == "doubt"
    store.settle("r", "send", happened=False)
    assert agent.run("o", store=store, run_id="r").kind == "doubt"
    assert agent.run("o", store=store, run_id="r").kind == "doubt"
    assert len(tries) == 2


class Racing(MemoryStore):
    """Another sender is always a little faster, as long as there are senders."""

    def __init__(self) -> None:
        super().__init__(SystemClock().now)
        self.others: list[RunStore] = []

    def append(self, writes: Sequence[Write]) -> list[IndelibleError | None]:
        if writes[0].run_id == inbox_of("r") and self.others:
            self.others.pop().answer("r", "the faster one")
        return super().append(writes)


def test_a_message_that_lost_the_race_for_its_place_is_sent_again() -> None:
    """Two people write to a run in the same moment: both messages are there."""
    store = Racing()
    with RunStore(store, SystemClock()) as runs:
        agent_of(asking).run("o", store=runs, run_id="r")
        store.others = [runs, runs]
        runs.answer("r", "the slower one")
        assert store.others == []
        agent_of(asking).run("o", store=runs, run_id="r")
        assert [event.inbox_seq for event in of_kind(runs, ev.WaitAnswered)] == [1]
        assert [event.refused for event in of_kind(runs, ev.InboxRead)] == [2]


def damage(store: RunStore, at: int) -> None:
    """Cut the end off one message, as power loss in its write may."""
    memory = store.store
    assert isinstance(memory, MemoryStore)
    batches = memory._journals[inbox_of("r")].batches
    batches[at] = batches[at]._replace(data=batches[at].data[:-3])


def test_a_torn_end_of_an_inbox_is_cut_off_with_a_notice(store: RunStore) -> None:
    """B89: the run opens and goes on asking; who said it last says it again, behind what was torn."""
    agent = agent_of(asking)
    agent.run("o", store=store, run_id="r")
    store.answer("r", "bob")
    agent.run("o", store=store, run_id="r")
    store.answer("r", "torn")
    damage(store, -1)
    assert "r/inbox" in store.recover("r").notices[0]
    assert "said again" in store.recover("r").notices[0]
    with store.run("r", agent) as run:
        assert run.outcome.question == "when?"
        assert [warning for warning in run._holding.warnings if "said again" in warning]
    found = verify(store, "r")
    assert (found.ok, found.messages, "said again" in found.inbox_torn) == (True, 1, True)
    store.answer("r", "now")
    assert agent.run("o", store=store, run_id="r").result == ["bob", "now"]
    assert [event.inbox_seq for event in of_kind(store, ev.WaitAnswered)] == [1, 3]
    assert (verify(store, "r").inbox_torn, store.recover("r").notices) == ("", [])


def test_a_settlement_is_posted_behind_a_torn_first_message(store: RunStore) -> None:
    """B89: also if there is nothing but the torn message."""

    @ind.action(effect="irreversible")
    def send() -> str:
        raise TimeoutError

    agent = agent_of(lambda run: run.finish(send()))
    agent.run("o", store=store, run_id="r")
    store.settle("r", "send", happened=False)
    damage(store, -1)
    store.settle("r", "send", happened=True, result="id-7")
    assert agent.run("o", store=store, run_id="r").result == "id-7"


def test_damage_in_the_middle_of_an_inbox_stops_with_its_position(store: RunStore) -> None:
    """B89: what was said before the last message is not passed over."""
    agent = agent_of(asking)
    first = agent.run("o", store=store, run_id="r")
    for answer in ("bob", "eve"):
        store.answer("r", answer, wait=first.wait)
    damage(store, 0)
    with pytest.raises(JournalDamaged, match="'r/inbox': the batch of events 1 to 1"):
        agent.run("o", store=store, run_id="r")
    with pytest.raises(JournalDamaged, match="'r/inbox': the batch of events 1 to 1"):
        store.answer("r", "again")
    assert "events 1 to 1" in store.recover("r").notices[0]
    assert "events 1 to 1" in verify(store, "r").faults[0]
