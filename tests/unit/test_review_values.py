"""Values a cycle is given: each in its place, none from another cycle, none that ends the journal."""

from __future__ import annotations

import pytest

import indelible as ind
from indelible.core import events as ev
from indelible.core.codec import pack
from indelible.core.inbox import inbox_of
from indelible.core.journal import Journal, Reader, read_all
from indelible.errors import Misuse
from indelible.runtime.runstore import RunStore
from indelible.stores.base import Write
from tests.unit.simple_agents import Memory, agent_of

HALF = "caf\ud83d"


def late_answer(store: RunStore, wait: str, value: str) -> None:
    """An answer by someone who had looked before the question was answered by another."""
    reader = Reader(inbox_of("r"))
    list(read_all(reader, store.store.read(inbox_of("r"))))
    journal = Journal(reader.chain, reader.seq)
    journal.append(ev.Answer(0.0, wait, pack(value), "bob"))
    assert store.store.append([Write(inbox_of("r"), 0, journal.seal().batch)]) == [None]


def test_a_late_answer_to_one_cycles_question_is_none_to_the_next_ones(store: RunStore) -> None:
    """B11: two cycles ask the same question; bob's answer to the first comes when the second is asked."""

    def body(run: ind.Run[Memory]) -> None:
        run.state.notes.append(run.ask("May the next order be paid?"))
        if len(run.state.notes) == 2:
            run.finish(list(run.state.notes))

    agent = agent_of(body)
    agent.run("o", store=store, run_id="r")
    wait = store.answer("r", "yes", by="ada").wait
    assert agent.run("o", store=store, run_id="r").kind == "ask"
    late_answer(store, wait, "yes, by bob")
    assert agent.run("o", store=store, run_id="r").kind == "ask"
    store.answer("r", "no")
    assert agent.run("o", store=store, run_id="r").result == ["yes", "no"]


def test_random_numbers_of_an_action_are_not_those_of_its_cycle(store: RunStore) -> None:
    """On re-entry the action is not called: what it drew must not shift what the cycle draws."""
    drawn: list[tuple[float, float]] = []
    runs: list[ind.Run[Memory]] = []

    @ind.action
    def pick() -> float:
        return runs[-1].random.random()

    def body(run: ind.Run[Memory]) -> None:
        runs.append(run)
        drawn.append((pick(), run.random.random()))
        run.ask("go on?")
        run.finish()

    agent = agent_of(body)
    agent.run("o", store=store, run_id="r")
    store.answer("r", "yes")
    agent.run("o", store=store, run_id="r")
    assert drawn[0] == drawn[1]


def test_half_a_character_from_a_model_does_not_end_the_journal(store: RunStore) -> None:
    """B39: a question, a probe's reason, a model's name and a person's name are for people to read."""

    def probe() -> object:
        return ind.unknown(HALF)

    @ind.action(effect="irreversible", probe=probe)
    def send() -> None:
        raise TimeoutError

    @ind.action
    def complete() -> str:
        ind.usage(tokens_in=1, model=HALF)
        return HALF

    def body(run: ind.Run[Memory]) -> None:
        answer = run.ask(HALF)
        send()
        run.finish([answer, complete()])

    agent = agent_of(body)
    assert agent.run("o", store=store, run_id="r").question == "caf?"
    store.answer("r", HALF, by=HALF)
    assert "(caf?)" in agent.run("o", store=store, run_id="r").question
    store.settle("r", "send", happened=True, by=HALF)
    assert agent.run("o", store=store, run_id="r").result == [HALF, HALF]


def test_half_a_character_in_a_business_key_is_refused_before_the_deed(store: RunStore) -> None:
    sent: list[str] = []

    @ind.action(effect="irreversible", key=lambda text: text)
    def send(text: str) -> None:
        sent.append(text)

    def body(run: ind.Run[Memory]) -> None:
        send(HALF)

    with pytest.raises(Misuse, match="half of a character pair"):
        agent_of(body).run("o", store=store, run_id="r")
    assert sent == []
