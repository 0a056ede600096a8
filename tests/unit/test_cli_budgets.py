"""A run's budget from the command line: given, shown, answered, and refused where it cannot be one."""

from __future__ import annotations

import pytest

from tests.unit import cli_stage
from tests.unit.cli_stage import Stage

stage = cli_stage.stage
AGENT = "agent.py:worker"


@pytest.fixture
def parked(stage: Stage) -> Stage:
    """A run that waits for a larger budget after three of its five calls."""
    assert stage("run", AGENT, "a b c d e", "--run-id", "r", "--budget", "0.03").code == 3
    return stage


def test_a_run_waits_for_a_larger_budget_and_says_with_which_command(parked: Stage) -> None:
    again = parked("run", AGENT, "a b c d e", "--run-id", "r", "--budget", "0.03")
    assert again.code == 3
    assert "$0.03 of the budget of $0.03 is spent" in again.out
    assert "  answer:  indelible answer r --budget USD\n" in again.out
    item = parked("inbox", "--json").json[0]
    assert (item["kind"], item["command"]) == ("budget", "indelible answer r --budget USD")
    assert item["details"]["action"] == "complete"
    assert "answer: indelible answer r --budget USD" in parked("inbox").out
    assert parked("answer", "r", "--budget", "0.04").code == 0
    assert "answered, not taken in yet" in parked("show", "r").out
    assert parked("resume", "r", AGENT).code == 3, "enough for one more call"
    assert parked("answer", "r", "--budget", "1").code == 0
    assert parked("run", AGENT, "a b c d e", "--run-id", "r", "--budget", "0.03").code == 0, "a person's word stands"


def test_what_is_spent_is_listed_and_shown(parked: Stage) -> None:
    listed = parked("ls").out
    assert "SPENT" in listed
    assert "$0.0300 of $0.03" in listed
    assert "over budget" in listed
    assert (parked("ls", "--json").json[0]["spent_usd"], parked("ls", "--json").json[0]["budget_usd"]) == (0.03, 0.03)
    assert "budget: $0.0300 of $0.03 spent\n" in parked("show", "r").out
    assert parked("show", "r", "--json").json["budget_usd"] == 0.03
    assert "$0.03, says the caller" in parked("log", "r").out


def test_a_resume_takes_another_budget(parked: Stage) -> None:
    assert parked("resume", "r", AGENT, "--budget", "0.05").code == 0
    assert parked("show", "r", "--json").json["budget_usd"] == 0.05


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
@pytest.mark.parametrize("words", [("run", AGENT, "a"), ("resume", "r", AGENT), ("answer", "r")])
def test_what_is_no_budget_is_misuse(parked: Stage, words: tuple[str, ...], value: str) -> None:
    refused = parked(*words, "--budget", value)
    assert refused.code == 2
    assert "a finite number of US dollars above 0" in refused.err
    assert len(parked("ls", "--json").json) == 1


def test_what_is_no_answer_is_misuse_with_the_one_that_is(parked: Stage) -> None:
    for words in (("answer", "r", "0.5"), ("answer", "r", "yes"), ("answer", "r", "--budget", "0.03")):
        refused = parked(*words)
        assert refused.code == 2
        assert "try: indelible answer r --budget 0.06" in refused.err
    for rest in ((), ("yes", "--budget", "1")):
        assert "indelible answer r TEXT | --budget USD" in parked("answer", "r", *rest).err
    assert parked("resume", "--all", AGENT, "--budget", "1").code == 2
    parked("run", AGENT, "ask", "--run-id", "q")
    wrong = parked("answer", "q", "--budget", "1")
    assert (wrong.code, "try: indelible answer q TEXT" in wrong.err) == (2, True)
    parked("run", AGENT, "a", "--run-id", "done")
    over = parked("answer", "done", "--budget", "1")
    assert (over.code, "does not wait for a budget" in over.err) == (2, True)
