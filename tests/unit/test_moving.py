"""Runs that are copied and moved between stores: never in two places at once, and resumed by the same call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import indelible as ind
from indelible.core import events as ev
from indelible.core import snapshots
from indelible.core.inbox import inbox_of
from indelible.core.journal import Batch
from indelible.errors import JournalDamaged, Misuse, RunBusy, RunMismatch, RunMoved, UnknownRun
from indelible.runtime.labels import about_of
from indelible.runtime.moving import transfer
from indelible.runtime.runstore import RunStore
from indelible.runtime.surveys import survey
from indelible.runtime.verify import verify
from indelible.stores.base import Query, Store
from tests.unit.moved_runs import DEEDS, Dying, deed, goes_on, mover, try_to_work, two_files
from tests.unit.simple_agents import Death, Memory, agent_of, kinds

Pair = tuple[RunStore, RunStore]


@pytest.fixture(params=["memory", "sqlite"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """Two stores of one kind."""
    DEEDS.clear()
    a, b = two_files(tmp_path) if request.param == "sqlite" else (ind.open("memory:"), ind.open("memory:"))
    with a, b:
        if request.param == "memory":
            a.store.url, b.store.url = "memory:a", "memory:b"
        yield a, b


def carry(source: RunStore, target: RunStore, run_id: str = "r") -> str:
    return transfer(source.store, target.store, run_id, source.clock).became


def content(runs: RunStore, run_id: str = "r") -> Any:
    """Everything that both stores must hold alike."""
    found = survey(runs.store, run_id)
    inbox = [tuple(batch) for batch in runs.store.read(inbox_of(run_id))]
    return found.head, found.digest, found.fold, inbox


def label_status(runs: RunStore, run_id: str = "r") -> str:
    (entry,) = runs.store.list_runs(Query(run_ids=(run_id,))).runs
    return entry.label.status if entry.label else ""


def test_an_ended_run_is_copied_and_both_stay(pair: Pair) -> None:
    a, b = pair
    mover("x", "y").run("go", store=a, run_id="r")
    before = content(a)
    assert carry(a, b) == "copied"
    assert content(a) == content(b) == before
    assert label_status(b) == "finished"
    assert verify(b, "r").ok
    assert carry(a, b) == "already there"
    outcome = mover().run(store=b, run_id="r")
    assert (outcome.status, outcome.result, DEEDS) == ("finished", 2, ["x", "y"])


def test_a_parked_run_is_moved_with_its_waits_and_goes_on_there(pair: Pair) -> None:
    """B26 B50: the id and everything said stay; it goes on in one place only."""
    a, b = pair
    mover("x", "ask", "y").run("go", store=a, run_id="r")
    a.answer("r", "blue")
    assert carry(a, b) == "moved"
    assert (label_status(a), label_status(b)) == ("moved", "parked")
    assert kinds(b)[-2:] == ["run.moved", "run.arrived"]
    assert kinds(a) == kinds(b)[:-1]
    (entry,) = a.store.list_runs(Query(run_ids=("r",))).runs
    assert about_of(entry.label).moved_to == b.url
    for act in (
        lambda: mover().run(store=a, run_id="r"),
        lambda: mover().run(store=a, run_id="r", retry=True),
        lambda: a.answer("r", "red"),
        lambda: a.settle("r", "deed", happened=True),
    ):
        with pytest.raises(RunMoved, match="was moved to") as caught:
            act()
        assert b.url in caught.value.hint
        assert "indelible copy" in caught.value.hint
    assert not list(a.store.read(inbox_of("r"), 1))
    outcome = mover().run(store=b, run_id="r")
    assert (outcome.status, outcome.result, DEEDS) == ("finished", 3, ["x", "blue", "y"])
    assert carry(a, b) == "already there"


def test_it_moves_back_and_forth(pair: Pair) -> None:
    """B13: the way back is an extension of the same history, not an older state under the same id."""
    a, b = pair
    mover("ask", "ask", "ask").run("go", store=a, run_id="r")
    here, there = a, b
    for answer in ("1", "2", "3"):
        assert carry(here, there) == "moved"
        assert not goes_on(here)
        there.answer("r", answer)
        outcome = mover().run(store=there, run_id="r")
        here, there = there, here
    assert (outcome.status, DEEDS) == ("finished", ["1", "2", "3"])
    assert carry(here, there) == "copied", "it has ended: the other store gets what it lacks"
    assert content(a) == content(b)
    assert kinds(a).count("run.moved") == kinds(a).count("run.arrived") == 3
    assert verify(a, "r").ok
    assert verify(b, "r").ok


def test_an_interrupted_run_with_a_deed_in_doubt_is_moved_as_it_is(pair: Pair) -> None:
    a, b = pair

    @ind.action(effect="irreversible")
    def dies(what: str) -> str:
        raise Death

    def body(run: ind.Run[Memory]) -> None:
        run.finish(dies(run.state.tasks.take()))

    agent = agent_of(body, name="mover")
    with pytest.raises(Death):
        agent.run("go", store=a, run_id="r")
    assert carry(a, b) == "moved"
    assert agent.run(store=b, run_id="r").kind == "doubt"
    b.settle("r", "dies", happened=True, result="by hand")
    assert agent.run(store=b, run_id="r").result == "by hand"


def test_a_failed_run_is_copied_and_each_copy_may_be_retried(pair: Pair) -> None:
    """B81: the retries of both copies are two histories, and neither is mixed into the other."""
    a, b = pair
    mover("bad").run("go", store=a, run_id="r")
    assert carry(a, b) == "copied"
    assert mover().run(store=a, run_id="r", retry=True).status == "failed"
    assert carry(a, b) == "copied", "the copy was a beginning of it"
    assert content(a) == content(b)
    assert carry(b, a) == "already there"
    mover().run(store=a, run_id="r", retry=True)
    mover().run(store=b, run_id="r", retry=True)
    before = content(b)
    with pytest.raises(RunMismatch, match="another run of the id 'r'"):
        carry(a, b)
    assert content(b) == before


def test_a_live_owner_keeps_its_run(pair: Pair) -> None:
    a, b = pair
    mover("ask", "x").run("go", store=a, run_id="r")
    with a.run("r", mover()):
        with pytest.raises(RunBusy):
            carry(a, b)
        assert kinds(a).count("run.moved") == 0
        assert not list(b.store.read("r"))


def test_another_run_of_that_id_is_left_alone(pair: Pair) -> None:
    """B11 B50."""
    a, b = pair
    mover("ask").run("go", store=a, run_id="r")
    mover("ask").run("elsewhere", store=b, run_id="r")
    before = content(a), content(b)
    with pytest.raises(RunMismatch):
        carry(a, b)
    assert (content(a), content(b)) == before
    assert goes_on(a)
    assert goes_on(b)


def test_what_was_deleted_there_does_not_come_back(pair: Pair) -> None:
    """B69."""
    a, b = pair
    mover("ask").run("go", store=a, run_id="r")
    mover("x").run("go", store=b, run_id="r")
    b.delete("r")
    with pytest.raises(UnknownRun, match="was deleted from"):
        carry(a, b)
    assert goes_on(a)
    assert kinds(a).count("run.moved") == 0


def test_an_interrupted_move_is_finished_into_its_destination_only(pair: Pair) -> None:
    a, b = pair
    mover("ask").run("go", store=a, run_id="r")
    other = ind.open("memory:")
    with other, pytest.raises(Death):
        transfer(a.store, Dying(b.store, at=_appends_first(a, b)), "r", a.clock)
    assert not goes_on(a)
    assert not goes_on(b)
    with pytest.raises(RunMoved) as caught:
        mover().run(store=b, run_id="r")
    assert "not all of it has arrived" in caught.value.what
    assert f"indelible copy {a.url}" in caught.value.hint
    with ind.open("memory:") as third:
        third.store.url = "memory:third"
        with pytest.raises(RunMoved) as moved:
            carry(a, third)
        assert b.url in moved.value.hint
        assert not list(third.store.read("r"))
        with pytest.raises(RunMoved):
            carry(b, third)
    assert carry(a, b) == "moved"
    assert goes_on(b)


def _appends_first(a: RunStore, b: RunStore) -> int:
    """At which call of the target its first batch is written, found by counting."""
    calls: list[str] = []

    class Watched(Dying):
        def _call(self, name: str, *args: object) -> object:
            calls.append(name)
            if name == "append":
                raise Death
            return super()._call(name, *args)

    copy = ind.open("memory:")
    with copy:
        for run_id in ("w",):
            mover("ask").run("go", store=copy, run_id=run_id)
        with ind.open("memory:") as empty:
            empty.store.url = "memory:empty"
            with pytest.raises(Death):
                transfer(copy.store, Watched(empty.store), "w", a.clock)
    return len(calls)


STORIES: dict[str, Callable[[RunStore, RunStore], None]] = {
    "parked": lambda a, b: _play(a, "x", "ask", "y"),
    "finished": lambda a, b: _play(a, "x", "y"),
    "failed": lambda a, b: _play(a, "x", "bad"),
    "moved here and back": lambda a, b: _back_and_forth(a, b),
    "beginning at a snapshot": lambda a, b: _pruned(a),
}


def _play(runs: RunStore, *tasks: str) -> None:
    if mover(*tasks).run("go", store=runs, run_id="r").kind == "ask":
        runs.answer("r", "blue")


def _back_and_forth(a: RunStore, b: RunStore) -> None:
    _play(b, "ask", "ask", "y")
    carry(b, a)
    mover().run(store=a, run_id="r")


def _pruned(runs: RunStore) -> None:
    _play(runs, "x", "ask", "ask")
    mover().run(store=runs, run_id="r")
    opened = [batch.after_seq for batch in runs.store.read("r") if batch.data[1] == 1]
    begin_at(runs.store, opened[-1])  # where a stream begins, as it does behind each snapshot


def begin_at(store: Store, seq: int, run_id: str = "r") -> None:
    """Let the journal begin at a snapshot, as `prune` does."""
    store.put_snapshot(run_id, seq, snapshots.encode(survey(store, run_id, upto=seq).record), begins=True)


@pytest.mark.parametrize("after", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("story", STORIES)
def test_killed_at_every_call_of_either_store(story: str, after: bool, tmp_path: Path) -> None:
    """B13 B25 B50: at most one store lets the run go on at any moment, and the same call finishes what was begun."""
    died = 0
    for at in range(1, 500):
        DEEDS.clear()
        with ExitStack() as stack:
            a, b = (stack.enter_context(ind.open("memory:")) for _ in range(2))
            a.store.url, b.store.url = "memory:a", "memory:b"
            STORIES[story](a, b)
            lived, whole = goes_on(a), content(a)
            source = Dying(a.store, at=at, after=after)
            target = Dying(b.store, source, at=at, after=after)
            try:
                transfer(source, target, "r", a.clock)
            except Death:
                died += 1
                alive = [goes_on(a), goes_on(b)]
                assert sum(alive) <= lived, f"after call {at}"
                assert [try_to_work(a), try_to_work(b)] == alive
                finished = transfer(a.store, b.store, "r", a.clock).became
                assert finished in (("moved", "already there") if lived else ("copied", "already there"))
            else:
                assert at > source.count[0]
            assert [goes_on(a), goes_on(b)] == [False, lived]
            assert content(b)[0] >= whole[0]
            assert list(b.store.read(inbox_of("r"))) == list(a.store.read(inbox_of("r")))
            if story != "beginning at a snapshot":
                assert kinds(b)[: len(kinds(a))] == kinds(a)
                assert verify(b, "r").ok
            if lived:
                outcome = mover().run(store=b, run_id="r")
                for _ in range(3):
                    if outcome.kind == "ask":
                        b.answer("r", "again")
                        outcome = mover().run(store=b, run_id="r")
                assert outcome.status == "finished"
                assert len(DEEDS) == b.recover("r").record.doc["count"][1]
            if at > source.count[0]:
                assert died == at - 1
                return
    raise AssertionError("it never ended")


def test_a_worker_between_the_kill_and_the_resumption(pair: Pair) -> None:
    """B50: it goes on where the run lives, wherever the move was cut off, and the move goes on from there."""
    for at in range(1, 200):
        DEEDS.clear()
        run_id = f"r{at}"
        a, b = pair
        mover("ask", "y").run("go", store=a, run_id=run_id)
        a.answer(run_id, "blue")
        source = Dying(a.store, at=at)
        try:
            transfer(source, Dying(b.store, source, at=at), run_id, a.clock)
        except Death:
            pass
        for runs in (a, b):
            if goes_on(runs, run_id):
                assert mover().run(store=runs, run_id=run_id).status == "finished"
        carry(a, b, run_id)
        if not DEEDS:
            assert mover().run(store=b, run_id=run_id).status == "finished"
        assert DEEDS == ["blue", "y"]
        assert b.recover(run_id).record.status == "finished"
        if source.count[0] < at:
            return
    raise AssertionError("it never ended")


def test_a_torn_end_is_carried_as_it_is(pair: Pair) -> None:
    a, b = pair
    mover("ask").run("go", store=a, run_id="r")
    _tear(a)
    assert carry(a, b) == "moved"
    assert a.events("r")
    assert content(a)[0] == content(b)[0] - 1
    assert verify(b, "r").kept_aside == 1
    b.answer("r", "blue")
    assert mover().run(store=b, run_id="r").status == "finished"

    mover("x").run("go", store=a, run_id="s")
    _tear(a, "s")
    assert carry(a, b, "s") == "copied"
    assert content(a, "s") == content(b, "s")
    assert carry(a, b, "s") == "already there"


def _tear(runs: RunStore, run_id: str = "r") -> None:
    """A last batch of which only the beginning is right."""
    from indelible.stores.base import Write
    from indelible.stores.owner import Owner, enter, leave

    (entry,) = runs.store.list_runs(Query(run_ids=(run_id,))).runs
    last = [*runs.store.read(run_id)][-1]
    torn = Batch(entry.head, entry.head + 2, last.data[:20] + b"torn")
    enter("torn")
    owner = Owner.here("torn")
    epoch = runs.store.claim(run_id, owner, 30.0)
    assert runs.store.append([Write(run_id, epoch, torn)]) == [None]
    runs.store.claim(run_id, owner, 0)
    leave("torn")


def test_a_damaged_run_is_refused_before_anything_is_written(pair: Pair) -> None:
    """B29."""
    a, b = pair
    mover("ask", "x").run("go", store=a, run_id="r")
    _tear(a)
    torn = [*a.store.read("r")][-1]
    from indelible.stores.base import Write

    enter_epoch = a.store.claim("r", "x", 30.0)
    behind = Batch(torn.last_seq, torn.last_seq + 1, torn.data)
    assert a.store.append([Write("r", enter_epoch, behind)]) == [None]
    a.store.claim("r", "x", 0)
    with pytest.raises(JournalDamaged, match="batch of events"):
        carry(a, b)
    assert not list(b.store.read("r"))
    assert b.store.list_runs(Query()).runs == []


def test_a_large_journal_is_carried_in_groups(pair: Pair) -> None:
    a, b = pair
    mover(*(f"task {n}" for n in range(400)), "ask").run("go", store=a, run_id="r")
    told: list[int] = []
    assert transfer(a.store, b.store, "r", a.clock, told.append).became == "moved"
    assert len(told) > 2
    assert verify(b, "r").ok


def test_both_ends_must_differ_and_the_run_must_be_there(pair: Pair, tmp_path: Path) -> None:
    a, b = pair
    with pytest.raises(UnknownRun):
        carry(a, b)
    with pytest.raises(Misuse, match="both the source and the destination"):
        carry(a, a)
    with pytest.raises(Misuse, match="path"):
        carry(a, b, "../etc/passwd")


def test_an_event_of_a_move_is_decoded_by_its_tag() -> None:
    events: list[ev.Event] = [ev.RunMoved(1.0, "x.db", "abc", "1"), ev.RunArrived(2.0, "y.db", "abc", "1")]
    assert ev.decode(ev.encode(events), "here") == events
    assert deed.unrecorded is not None
