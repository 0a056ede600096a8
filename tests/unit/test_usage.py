"""What a call used: read from the answers of model services, checked, priced or unknown, and counted once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion
from openai.types.completion_usage import PromptTokensDetails
from openai.types.responses import ResponseUsage
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

import indelible as ind
from indelible.core.record import Usage
from indelible.core.usage import Answer, answer_of
from indelible.errors import Misuse
from indelible.runtime.pricing import price_of
from indelible.runtime.runstore import RunStore

CHAT = {"id": "chatcmpl-1", "object": "chat.completion", "model": "gpt-4.1-mini-2025-04-14",
        "usage": {"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200}}  # fmt: skip
RESPONSE = {"id": "resp_1", "object": "response", "model": "gpt-4.1",
            "usage": {"input_tokens": 1000, "output_tokens": 200, "total_tokens": 1200,
                      "input_tokens_details": {"cached_tokens": 600}}}  # fmt: skip
MESSAGE = {"id": "msg_1", "type": "message", "model": "claude-sonnet-4-5-20250929",
           "usage": {"input_tokens": 100, "output_tokens": 200, "cache_creation_input_tokens": 300,
                     "cache_read_input_tokens": 600}}  # fmt: skip


class State(ind.State):
    """Nothing but a place."""

    seen: ind.Log[str]


@dataclass
class Odd:
    """A result with a trap where an answer has its model."""

    text: str

    @property
    def model(self) -> str:
        raise RuntimeError("no")


def objects(value: Any) -> Any:
    """The same with attributes in place of keys."""
    return SimpleNamespace(**{k: objects(v) for k, v in value.items()}) if isinstance(value, dict) else value


def chat(**details: Any) -> ChatCompletion:
    usage = CompletionUsage(prompt_tokens=1000, completion_tokens=200, total_tokens=1200,
                            prompt_tokens_details=PromptTokensDetails(**details))  # fmt: skip
    return ChatCompletion(id="c", choices=[], created=0, model="gpt-4.1-mini", object="chat.completion", usage=usage)


def used(store: RunStore, *bodies: Any) -> Usage:
    """What a run has used that calls one action after another, each with one of these bodies."""
    actions = [ind.action(name=f"a{n}")(body) for n, body in enumerate(bodies)]

    @ind.agent(state=State, name="used", backoff_s=0)
    def agent(run: ind.Run[State]) -> None:
        for action in actions:
            action()
        run.finish()

    assert agent.run("o", store=store, run_id="r").status == "finished"
    return store.recover("r").record.usage


@pytest.fixture
def store() -> Iterator[RunStore]:
    with ind.open("memory:") as opened:
        yield opened


# -- the shapes of answers --------------------------------------------------------------------------------------------

SHAPES: list[tuple[Any, tuple[int, int], str, dict[str, int]]] = [
    (CHAT, (1000, 200), "openai", {}),
    (chat(cached_tokens=600, audio_tokens=10), (1000, 200), "openai",
     {"cache_read_tokens": 600, "input_audio_tokens": 10}),
    (RESPONSE, (1000, 200), "openai", {"cache_read_tokens": 600}),
    (MESSAGE, (1000, 200), "anthropic", {"cache_read_tokens": 600, "cache_write_tokens": 300}),
    ({**MESSAGE, "usage": {"input_tokens": 7, "output_tokens": 2}}, (7, 2), "anthropic", {}),
    ({"model": "claude-opus-4", "usage": {"input_tokens": 7, "output_tokens": 2}}, (7, 2), "anthropic", {}),
    ({**MESSAGE, "usage": {**MESSAGE["usage"], "cache_creation": {"ephemeral_1h_input_tokens": 300},  # type: ignore[dict-item]
                           "server_tool_use": {"web_search_requests": 3}}}, (1000, 200), "anthropic",
     {"cache_read_tokens": 600, "cache_write_tokens": 300, "cache_write_1h_tokens": 300, "web_searches": 3}),
    ({"model": "text-embedding-3-small", "usage": {"prompt_tokens": 8, "total_tokens": 8}}, (8, 0), "openai", {}),
    (SimpleNamespace(model="gpt-4.1", usage=ResponseUsage(
        input_tokens=5, output_tokens=6, total_tokens=11, output_tokens_details=OutputTokensDetails(reasoning_tokens=4),
        input_tokens_details=InputTokensDetails(cached_tokens=2, cache_write_tokens=0))),
     (5, 6), "openai", {"cache_read_tokens": 2}),
]  # fmt: skip


@pytest.mark.parametrize("as_object", [False, True])
@pytest.mark.parametrize(("value", "tokens", "maker", "parts"), SHAPES)
def test_answers_of_model_services_are_read(
    value: Any, tokens: tuple[int, int], maker: str, parts: dict[str, int], as_object: bool
) -> None:
    found = answer_of(objects(value) if as_object else value)
    assert found is not None
    assert ((found.tokens_in, found.tokens_out), found.maker, dict(found.parts)) == (tokens, maker, parts)


@pytest.mark.parametrize(
    "value",
    [
        {"model": "m", "total_usage": {"prompt_tokens": 1}, "total_cost_usd": 4.0},
        {"model": "m", "usage": {"total_tokens": 9000}},
        {"model": "m", "session": {"usage": {"input_tokens": 9000}}},
        SimpleNamespace(model="m", usage=lambda: {"input_tokens": 9000}),
        {"usage": 3}, {"usage": None}, "text", 5, None, [CHAT], object(),
    ],
)  # fmt: skip
def test_running_totals_and_other_things_are_not_read(value: object) -> None:
    """B114: the total of a session or a stream is not what one answer used."""
    assert answer_of(value) is None


@pytest.mark.parametrize("bad", [-1, True, float("nan"), 1.5, "12", [1]])
@pytest.mark.parametrize("name", ["input_tokens", "output_tokens", "cache_read_input_tokens"])
def test_numbers_of_tokens_that_cannot_be_are_refused(name: str, bad: object) -> None:
    with pytest.raises(Misuse, match="expected a whole number from 0 up"):
        answer_of({**MESSAGE, "usage": {**MESSAGE["usage"], name: bad}})  # type: ignore[dict-item]


# -- prices -----------------------------------------------------------------------------------------------------------


def priced(value: Any, provider: str = "") -> float | None:
    found = answer_of(value)
    assert found is not None
    return price_of(found, provider)


def test_a_known_model_is_priced_with_what_came_from_a_cache() -> None:
    assert priced(CHAT) == pytest.approx(1000 * 0.4e-6 + 200 * 1.6e-6)
    assert priced(RESPONSE) == pytest.approx(400 * 2e-6 + 600 * 0.5e-6 + 200 * 8e-6)
    assert priced(MESSAGE) == pytest.approx(100 * 3e-6 + 300 * 3.75e-6 + 600 * 0.3e-6 + 200 * 15e-6)


@pytest.mark.parametrize(
    ("value", "provider"),
    [
        ({**CHAT, "model": "llama-3.3-70b-local"}, ""),
        ({"usage": CHAT["usage"]}, ""),
        (CHAT, "http://127.0.0.1:8000/v1"),
        (CHAT, "no-such-provider"),
        ({**CHAT, "usage": {"prompt_tokens": 0, "completion_tokens": 0}}, ""),
        ({**CHAT, "service_tier": "a-tier-without-a-price"}, ""),
    ],
)
def test_what_is_not_in_the_price_list_has_no_price(value: Any, provider: str) -> None:
    assert priced(value, provider) is None


def test_a_provider_may_be_named_or_given_by_its_url() -> None:
    groq = {**CHAT, "model": "llama-3.3-70b-versatile"}
    named = priced(groq, "groq")
    assert named is not None
    assert named == priced(groq, "https://api.groq.com/openai/v1/")


def test_without_the_price_list_every_price_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert priced(CHAT) is None


# -- reporting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"tokens_in": -1}, {"tokens_in": 1.5}, {"tokens_out": True}, {"tokens_out": "4"}, {"usd": -0.01},
        {"usd": float("nan")}, {"usd": float("inf")}, {"usd": True}, {"usd": "0.1"}, {"usd": Decimal("sNaN")},
        {"usd": 1.0, "currency": "EUR"}, {"usd": 1.0, "currency": None}, {"model": 3}, {"provider": None},
        {"usd": 10**400},
    ],
)  # fmt: skip
def test_what_cannot_be_a_use_is_refused_and_nothing_of_it_recorded(store: RunStore, given: dict[str, Any]) -> None:
    def wrong() -> str:
        with pytest.raises(Misuse) as refused:
            ind.usage(**given)
        assert refused.value.hint
        return "done"

    assert used(store, wrong) == Usage(calls=1)


def test_a_response_is_reported_or_refused(store: RunStore) -> None:
    def explicit() -> str:
        with pytest.raises(Misuse, match="cannot be read from a dict"):
            ind.usage({"text": "no usage here"})
        with pytest.raises(Misuse, match="a response and numbers"):
            ind.usage(CHAT, tokens_in=3)
        ind.usage(MESSAGE, usd=Decimal("0.5"))
        ind.usage(tokens_in=10, usd=0.25, currency="usd")
        return "text"

    assert used(store, explicit) == Usage(calls=1, tokens_in=1010, tokens_out=200, usd=0.75)


def test_an_answer_without_usage_is_counted_and_its_price_is_not_known(store: RunStore) -> None:
    assert used(store, lambda: ind.usage({"model": "m", "usage": None})) == Usage(calls=1, unpriced=1)


def test_tokens_with_a_model_and_a_provider_are_priced(store: RunStore) -> None:
    def known() -> None:
        ind.usage(tokens_in=1000, tokens_out=200, model="gpt-4.1-mini", provider="openai")

    def unknown() -> None:
        ind.usage(tokens_in=1000, tokens_out=200, model="gpt-4.1-mini")

    found = used(store, known, unknown)
    assert found.usd == pytest.approx(0.00072)
    assert (found.unpriced, found.tokens_in) == (1, 2000)


def test_a_returned_answer_is_read_unless_the_action_has_reported(store: RunStore) -> None:
    def silent() -> dict[str, Any]:
        return CHAT

    def spoke() -> dict[str, Any]:
        ind.usage(CHAT, usd=1.0)
        return CHAT

    found = used(store, silent, spoke)
    assert found == Usage(calls=2, tokens_in=2000, tokens_out=400, usd=1.0 + 1000 * 0.4e-6 + 200 * 1.6e-6)


def test_a_returned_answer_whose_numbers_cannot_be_is_kept_and_its_price_unknown(store: RunStore) -> None:
    """The call has been paid for: its result is not given up because of a number beside it."""
    found = used(store, lambda: {**CHAT, "usage": {"prompt_tokens": -5}})
    assert found == Usage(calls=1, unpriced=1)


def test_a_result_that_cannot_be_asked_is_kept(store: RunStore) -> None:
    def odd() -> Odd:
        return Odd("kept")

    assert used(store, odd) == Usage(calls=1)


def test_reports_of_one_answer_do_not_add_up(store: RunStore) -> None:
    """B114: a stream reports its running total with every event; the last one is what was used."""

    def streamed() -> str:
        for total in (1, 50, 200):
            ind.usage({**MESSAGE, "usage": {"input_tokens": 100, "output_tokens": total}}, usd=0.01 * total)
        ind.usage({**MESSAGE, "id": "msg_2"}, usd=1.0)
        return "text"

    assert used(store, streamed) == Usage(calls=1, tokens_in=1100, tokens_out=400, usd=3.0)


@pytest.mark.parametrize("how", ["hands on", "copies", "reports again"])
@pytest.mark.parametrize("fails", [False, True])
def test_an_answer_is_counted_in_the_action_that_got_it(store: RunStore, how: str, fails: bool) -> None:
    """B113: an action that hands on the answer of an inner one has not bought it, live or from the journal."""
    failing = [True] if fails else []

    @ind.action
    def inner() -> dict[str, Any]:
        return CHAT

    @ind.action
    def outer() -> dict[str, Any]:
        found = inner()
        if failing:
            failing.pop()
            raise ConnectionError("later")
        if how == "reports again":
            ind.usage(found)
        return dict(found) if how == "copies" else found

    @ind.agent(state=State, name="nested", backoff_s=0)
    def agent(run: ind.Run[State]) -> None:
        outer()
        run.finish()

    assert agent.run("o", store=store, run_id="r").status == "finished"
    usage = store.recover("r").record.usage
    assert usage.tokens_in == 1000
    assert usage.usd == pytest.approx(0.00072)
    assert (usage.calls, usage.recalled) == ((3, 1) if fails else (2, 0))


@pytest.mark.parametrize("by_name", [False, True])
def test_an_answer_that_was_there_before_is_not_counted_again(store: RunStore, by_name: bool) -> None:
    """B113: an action that returns what it was given has not bought it."""

    @ind.action
    def ask() -> dict[str, Any]:
        return CHAT

    @ind.action
    def judge(answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "good": True}

    @ind.agent(state=State, name="judging")
    def agent(run: ind.Run[State]) -> None:
        answer = ask()
        judge(answer=answer) if by_name else judge(answer)
        run.finish()

    agent.run("o", store=store, run_id="r")
    usage = store.recover("r").record.usage
    assert (usage.calls, usage.tokens_in) == (2, 1000)


def test_a_number_of_tokens_that_is_beyond_all_sense_is_refused_before_it_is_recorded(store: RunStore) -> None:
    """B33: it could not be written down, and a result that was paid for would go with it."""

    def absurd() -> str:
        with pytest.raises(Misuse, match="expected a whole number from 0 up to 1,000,000,000,000,000"):
            ind.usage(tokens_in=2**70, usd=0.1)
        ind.usage(usd=0.1)
        return "kept"

    found = used(store, absurd, lambda: {**CHAT, "usage": {"prompt_tokens": 2**70}})
    assert found == Usage(calls=2, usd=0.1, unpriced=1)


def test_outside_a_run_it_is_checked_and_does_nothing() -> None:
    ind.usage(CHAT)
    with pytest.raises(Misuse):
        ind.usage(usd=-1.0)


def test_an_answer_is_known_by_what_it_says() -> None:
    assert answer_of(CHAT) == answer_of(objects(CHAT)) == Answer(
        "gpt-4.1-mini-2025-04-14", 1000, 200, "openai", "chatcmpl-1"
    )  # fmt: skip
