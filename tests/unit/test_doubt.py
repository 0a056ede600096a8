"""Deeds in doubt: probes, people, policies, divergence, undo."""

from __future__ import annotations

from typing import Any

import pytest

import indelible as ind
from indelible.core import events as ev
from indelible.errors import Misuse
from indelible.runtime.runstore import RunStore
from tests.unit.simple_agents import Death, Memory, agent_of


@pytest.mark.parametrize(
    ("answer", "calls", "status"),
    [
        (ind.happened("probed"), 1, "finished"),
        (ind.did_not_happen(), 2, "finished"),
        (ind.unknown("down"), 1, "parked"),
    ],
)
def test_a_deed_in_doubt_is_probed(store: RunStore, answer: Any, calls: int, status: str) -> None:
    """B03: yes, complete; no, run once; cannot tell, stop and ask."""
    done: list[str] = []
    keys: list[str] = []

    def probe(text: str, *, key: str) -> Any:
        keys.append(key)
        return answer

    @ind.action(effect="irreversible", probe=probe)
    def send(text: str, *, key: str = "") -> str:
        done.append(key)
        if len(done) == 1:
            raise Death
        return "called"

    def body(run: ind.Run[Memory]) -> None:
        run.finish(send("x"))

    agent = agent_of(body)
    with pytest.raises(Death):
        agent.run("o", store=store, run_id="r")
    outcome = agent.run("o", store=store, run_id="r")
    assert (len(done), outcome.status) == (calls, status)
    assert {*done, *keys} == {done[0]}
    if status == "parked":
        assert (outcome.kind, "down" in outcome.question) == ("doubt", True)
    else:
        assert outcome.result == ("probed" if calls == 1 else "called")


@pytest.mark.parametrize(("happened", "calls", "result"), [(True, 1, "by hand"), (False, 2, "sent")])
def test_a_person_settles_a_deed_and_the_agent_is_told(
    store: RunStore, happened: bool, calls: int, result: str
) -> None:
    done: list[str] = []
    told: list[str] = []

    @ind.action(effect="irreversible")
    def send(text: str) -> str:
        done.append(text)
        if len(done) == 1:
            raise TimeoutError("no answer")
        return "sent"

    def body(run: ind.Run[Memory]) -> None:
        sent = send("x")
        told.extend(run.notices)
        run.finish(sent)

    agent = agent_of(body)
    assert agent.run("o", store=store, run_id="r").kind == "doubt"
    assert agent.run("o", store=store, run_id="r").kind == "doubt"
    with pytest.raises(Misuse, match="settle r send-"):
        store.answer("r", "yes")
    store.settle("r", "send", happened=happened, result="by hand" if happened else None, by="ada")
    assert agent.run("o", store=store, run_id="r").result == result
    assert len(done) == calls
    assert "ada settled" in told[0]
    with pytest.raises(Misuse, match="it is not in doubt"):
        store.settle("r", "send", happened=True)


def test_an_ambiguous_error_is_no_failure_and_cannot_be_swallowed(store: RunStore) -> None:
    """A time-out proves nothing, and `except Exception` in the agent must not turn it into one."""
    sent: list[str] = []

    @ind.action(effect="irreversible")
    def send(text: str) -> None:
        sent.append(text)
        raise TimeoutError

    def body(run: ind.Run[Memory]) -> None:
        try:
            send("x")
        except Exception:
            run.finish("swallowed")

    assert agent_of(body).run("o", store=store, run_id="r").kind == "doubt"
    assert sent == ["x"]


def test_a_clean_failure_is_one_by_declaration_only(store: RunStore) -> None:
    sent: list[int] = []

    @ind.action(effect="irreversible", fails_cleanly=(ConnectionRefusedError,))
    def send() -> str:
        sent.append(1)
        if len(sent) == 1:
            raise ConnectionRefusedError
        if len(sent) == 2:
            raise ind.DidNotHappen("not yet")
        return "sent"

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        run.finish(send())

    assert agent_of(body).run("o", store=store, run_id="r").result == "sent"
    assert len(sent) == 3


@pytest.mark.parametrize(("policy", "calls"), [("assume_happened", 1), ("assume_not", 2)])
def test_a_policy_decides_where_nobody_shall_be_asked(store: RunStore, policy: Any, calls: int) -> None:
    sent: list[int] = []

    @ind.action(effect="irreversible", on_doubt=policy)
    def send() -> str:
        sent.append(1)
        if len(sent) == 1:
            raise Death
        return "sent"

    def body(run: ind.Run[Memory]) -> None:
        run.finish(send())

    agent = agent_of(body)
    with pytest.raises(Death):
        agent.run("o", store=store, run_id="r")
    assert agent.run("o", store=store, run_id="r").result == (None if calls == 1 else "sent")
    assert len(sent) == calls


def test_a_probe_sees_the_world_and_never_a_recorded_answer(store: RunStore) -> None:
    looks: list[int] = []

    @ind.action
    def look() -> int:
        looks.append(1)
        return len(looks)

    def probe() -> Any:
        return ind.happened(f"seen at look {look()}") if len(looks) else ind.unknown(str(look()))

    @ind.action(effect="irreversible", probe=probe)
    def send() -> str:
        raise Death

    def body(run: ind.Run[Memory]) -> None:
        run.finish(send())

    agent = agent_of(body)
    with pytest.raises(Death):
        agent.run("o", store=store, run_id="r")
    assert agent.run("o", store=store, run_id="r").status == "parked"


def test_a_probe_that_fails_or_answers_nonsense_leaves_the_doubt(store: RunStore) -> None:
    answers: list[Any] = [RuntimeError("broken"), True]

    def probe() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @ind.action(effect="irreversible", probe=probe)
    def send() -> None:
        raise TimeoutError

    def body(run: ind.Run[Memory]) -> None:
        send()

    agent = agent_of(body)
    assert "RuntimeError: broken" in agent.run("o", store=store, run_id="r").question
    assert agent.run("o", store=store, run_id="r").kind == "doubt"
    store.settle("r", "send", happened=False)
    assert "its probe returned bool" in agent.run("o", store=store, run_id="r").question


def test_code_and_world_that_diverged_are_shown_and_asked_about(store: RunStore) -> None:
    """B15, B17: the agent now wants another mail than the one already sent in this cycle."""
    sent: list[str] = []
    texts = ["first draft", "second draft", "second draft"]

    @ind.action(effect="irreversible")
    def send(text: str) -> str:
        sent.append(text)
        return f"id of {text}"

    def body(run: ind.Run[Memory]) -> None:
        sent_id = send(texts.pop(0))
        if len(texts) == 2:
            raise Death
        run.finish(sent_id)

    agent = agent_of(body)
    with pytest.raises(Death):
        agent.run("o", store=store, run_id="r")
    assert agent.run("o", store=store, run_id="r").kind == "diverged"
    with pytest.raises(Misuse, match=r"recorded\|both"):
        store.answer("r", "maybe")
    store.answer("r", "recorded")
    assert agent.run("o", store=store, run_id="r").result == "id of first draft"
    assert sent == ["first draft"]


def test_a_deed_no_committed_cycle_claims_is_listed_as_orphaned(store: RunStore) -> None:
    deeds = ["send"]

    @ind.action(effect="irreversible")
    def send() -> str:
        return "sent"

    def body(run: ind.Run[Memory]) -> None:
        if deeds:
            deeds.pop()
            send()
            raise Death
        run.finish()

    agent = agent_of(body)
    with pytest.raises(Death):
        agent.run("o", store=store, run_id="r")
    agent.run("o", store=store, run_id="r")
    commit = next(event for _, event in store.events("r") if isinstance(event, ev.CycleCommitted))
    assert [call.partition("-")[0] for call in commit.orphaned] == ["send"]


def test_deeds_are_undone_in_reverse_when_the_cycle_is_given_up(store: RunStore) -> None:
    world: list[str] = []

    def cancel(what: str, result: str, key: str) -> None:
        world.append(f"cancel {what} {result} {bool(key)}")

    @ind.action(effect="irreversible", undo=cancel)
    def book(what: str) -> str:
        world.append(f"book {what}")
        return f"#{what}"

    @ind.action(effect="irreversible")
    def mail() -> None:
        world.append("mail")

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        book("flight")
        book("hotel")
        mail()
        raise ConnectionError("no car")

    agent = agent_of(body, on_failure="fail", attempts=2)
    outcome = agent.run("o", store=store, run_id="r")
    assert (outcome.status, outcome.error.partition(" (at ")[0]) == ("failed", "ConnectionError: no car")
    assert world == ["book flight", "book hotel", "mail", "cancel hotel #hotel True", "cancel flight #flight True"]
    rolled = [event for _, event in store.events("r") if isinstance(event, ev.CycleRolledBack)]
    assert [event.gave_up for event in rolled] == [False, True]
    assert [call.partition("-")[0] for call in rolled[-1].orphaned] == ["mail"]


def test_a_deed_left_in_doubt_can_be_settled_after_the_run_has_ended(store: RunStore) -> None:
    sent: list[str] = []

    @ind.action(effect="irreversible")
    def send() -> None:
        sent.append("x")
        raise Death

    def body(run: ind.Run[Memory]) -> None:
        if not sent:
            send()
        run.finish("done")

    agent = agent_of(body)
    with pytest.raises(Death):
        agent.run("o", store=store, run_id="r")
    assert agent.run("o", store=store, run_id="r").result == "done"
    assert [call.name for call in store.recover("r").record.in_doubt()] == ["send"]
    store.settle("r", "send", happened=True)
    assert agent.run("o", store=store, run_id="r").result == "done"
    assert store.recover("r").record.in_doubt() == []


def test_an_idempotent_deed_without_a_result_is_listed_when_its_cycle_is_given_up(store: RunStore) -> None:
    """Its failure proves nothing: the other side may well have applied it."""

    @ind.action(effect="idempotent")
    def upsert(*, key: str = "") -> None:
        raise TimeoutError

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        upsert()

    agent_of(body, attempts=1, on_failure="fail").run("o", store=store, run_id="r")
    rolled = next(event for _, event in store.events("r") if isinstance(event, ev.CycleRolledBack))
    assert [call.partition("-")[0] for call in rolled.orphaned] == ["upsert"]
