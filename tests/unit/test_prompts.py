"""What the researcher makes of a model's answers: sense where there is sense, tasks of its own where there is none."""

from __future__ import annotations

import json

import pytest

from indelible.agents.corpus import Corpus, Quote, verify_quote
from indelible.agents.models import ScriptedModel
from indelible.agents.prompts import (
    KINDS,
    Ask,
    Note,
    asking,
    follow_up,
    investigate,
    keep_new,
    messages,
    plan,
    rank,
    summarise,
    take_note,
    write_report,
)

OBJECTIVE = "How do herons catch fish?"
HERONS = Corpus(
    {
        "herons.txt": "Herons catch fish in shallow water. A hunting heron stands still for minutes and then strikes."
        "\n\n"
        "The neck of a heron has a special vertebra that lets it strike fast at passing fish.",
        "water.txt": "Shallow water is warm and full of small fish, which is where herons like to hunt them.\n\n"
        'The "current" in a river carries fish towards the heron that waits for them.',
    },
    origin="a test",
)

NONSENSE = [
    "",
    "   ",
    "I am a language model.",
    "{",
    '{"what": ',
    "}{",
    "[]",
    "null",
    '{"what": null, "how": 3, "when": ["x"], "question": {}}',
    '{"what": "", "how": "?", "when": " ", "question": "the of and"}',
    '{"question": "' + "fish " * 60 + '"}',
    '{"question": "What is fish and fish and fish and fish?", "what": "What is the heron of the?"}',
    '{"question": "\\ud800\\u0000"}',
    "[" * 50_000,
    '{"a":' * 9_000 + "}",
]


def saying(reply: str) -> Ask:
    return lambda kind, text: reply


@pytest.mark.parametrize("reply", NONSENSE)
def test_nonsense_leads_to_tasks_made_by_code_and_to_no_crash(reply: str) -> None:
    tasks = plan(saying(reply), HERONS, OBJECTIVE)
    assert 1 <= len(tasks) <= 3
    assert tasks[0] == OBJECTIVE
    quotes = investigate(HERONS, tasks[0])
    assert quotes
    assert len(follow_up(saying(reply), HERONS, OBJECTIVE, quotes, tasks)) <= 2
    assert isinstance(take_note(saying(reply), tasks[0], quotes), str)
    assert isinstance(summarise(saying(reply), OBJECTIVE, [Note(tasks[0], "", tuple(quotes))]), str)


def test_good_answers_are_kept() -> None:
    reply = json.dumps(
        {
            "what": "What do herons eat in water?",
            "how": "How does a heron strike at fish?",
            "when": "When do herons hunt?",
        }
    )
    assert plan(saying(f"Sure! {reply}"), HERONS, OBJECTIVE) == [
        "What do herons eat in water?",
        "How does a heron strike at fish?",
        "When do herons hunt?",
    ]
    quotes = [quote for quote in investigate(HERONS, OBJECTIVE) if "neck" not in quote.text]
    asked = saying('{"question": "Why is the neck vertebra of a heron special?"}')
    assert follow_up(asked, HERONS, OBJECTIVE, quotes, [OBJECTIVE]) == ["Why is the neck vertebra of a heron special?"]


def test_a_model_that_says_the_same_for_ever_adds_no_task_twice() -> None:
    ask = saying('{"question": "How does a heron strike at fish?"}')
    known = plan(ask, HERONS, OBJECTIVE)
    for _ in range(20):
        known += follow_up(ask, HERONS, OBJECTIVE, investigate(HERONS, OBJECTIVE), known)
    assert len({task.lower() for task in known}) == len(known) < 8


def test_the_same_question_in_other_words_is_not_new() -> None:
    known = ["How does a heron strike at fish?"]
    assert keep_new(["What is a heron's striking at a fish?", "how does A heron strike at fish"], known, limit=5) == []
    assert keep_new(["Where do otters sleep?"], known, limit=5, about="herons and fish") == []
    assert keep_new(["Where do herons sleep?"], known, limit=0) == []


def test_quotes_verify_and_known_ones_are_not_found_again() -> None:
    first = investigate(HERONS, OBJECTIVE, limit=2)
    assert all(verify_quote(HERONS, quote) for quote in first)
    again = investigate(HERONS, OBJECTIVE, [quote.text for quote in first], limit=2)
    assert not {quote.text for quote in first} & {quote.text for quote in again}
    assert investigate(HERONS, "quantum chromodynamics") == []


def test_words_that_the_quotes_do_not_bear_out_are_dropped() -> None:
    quotes = [Quote("herons.txt", 0, "Herons catch fish in shallow water.")]
    assert take_note(saying("Herons catch fish in shallow water. And then"), OBJECTIVE, quotes) == (
        "Herons catch fish in shallow water."
    )
    assert take_note(saying("Herons call `heron.catch_fish()` in water."), OBJECTIVE, quotes) == ""
    assert take_note(saying("Penguins build enormous cathedrals near fish."), OBJECTIVE, quotes) == ""
    assert take_note(saying("Herons catch fish in shallow"), OBJECTIVE, quotes) == ""


def test_without_quotes_the_model_is_not_asked() -> None:
    def refuse(kind: str, text: str) -> str:
        raise AssertionError(kind)

    assert take_note(refuse, OBJECTIVE, []) == ""
    assert follow_up(refuse, HERONS, OBJECTIVE, [], []) == []
    assert summarise(refuse, OBJECTIVE, [Note(OBJECTIVE, "", ())]) == ""


def test_tasks_near_the_objective_and_not_yet_covered_come_sooner() -> None:
    tasks = ["How do herons catch fish?", "What is water?", "How deep do herons catch fish?"]
    before = rank(OBJECTIVE, tasks, [])
    assert before[0] > before[1]
    after = rank(OBJECTIVE, tasks, [Note(tasks[0], "", ())])
    assert after[2] > after[0]
    assert rank(OBJECTIVE, [], []) == []


def test_the_report_tells_apart_what_was_checked_and_what_a_model_wrote() -> None:
    quote = Quote("herons.txt", 0, "Herons catch fish\nin shallow water.")
    notes = [Note("Where do herons fish?", "In water.", (quote,)), Note("Why?", "", ())]
    report = write_report(OBJECTIVE, "They wait.", notes, model="scripted", origin="a test")
    assert '"Herons catch fish in shallow water."\n      [herons.txt, at 0]' in report
    assert "The model's note: In water." in report
    assert "written by the model scripted, not verified" in report
    assert "Nothing was found for:\n  - Why?" in report
    assert write_report("", "", [], model="scripted", origin="a test").endswith("break aside.\n") is False


@pytest.mark.parametrize("objective", ["x", "🎉", "\ud800 odd", "a\0b", "find " * 5000, "\n"])
def test_any_objective_can_be_planned_and_asked(objective: str) -> None:
    ask = asking(ScriptedModel())
    tasks = plan(ask, HERONS, objective)
    assert tasks
    for kind in KINDS:
        assert messages(kind, objective)[-1]["content"] == objective
    assert plan(ask, HERONS, objective) == tasks
