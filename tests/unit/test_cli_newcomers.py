"""What a newcomer types, mistypes and reads: each line says what is so, and each hint works."""

from __future__ import annotations

import re
import shlex

import pytest

import indelible as ind
from indelible.cli.loading import load
from indelible.cli.main import main
from indelible.errors import RunMismatch
from indelible.runtime.agents import Agent
from tests.unit import cli_stage
from tests.unit.cli_stage import Stage

stage = cli_stage.stage
AGENT = "agent.py:worker"

CAKE = """
import indelible as ind

class Job(ind.State):
    tasks: ind.Queue[str]

@ind.agent(state=Job, attempts=1)
def baker(run):
    if run.state.tasks:
        if run.state.tasks.take() == "burn":
            raise ValueError("burnt")
    else:
        run.finish("baked")

@baker.start
def start(run):
    run.state.tasks.extend(run.objective.split())
"""


@pytest.fixture
def cake(stage: Stage) -> Stage:
    """A stage with a run that has finished with one of its two tasks given up."""
    (stage.folder / "cake.py").write_text(CAKE)
    done = stage("run", "cake.py:baker", "burn mix", "--run-id", "cake")
    assert (done.code, done.out) == (0, "baked\n")
    assert "run cake is finished, 1 task failed\n  see: indelible show cake\n" in done.err
    return stage


def test_a_finished_run_says_which_of_its_tasks_failed(cake: Stage) -> None:
    assert "finished, 1 task failed" in cake("ls").out
    (run,) = cake("ls", "--json", "--status", "finished").json
    assert (run["is"], run["status"], run["failed_tasks"]) == ("finished, 1 task failed", "finished", 1)
    assert "finished, 1 task failed" in cake("show", "cake").out
    assert "run cake is finished, 1 task failed" in cake("resume", "cake", "cake.py:baker").err


def test_a_retry_of_a_finished_run_says_what_can_be_done(cake: Stage) -> None:
    refused = cake("resume", "cake", "cake.py:baker", "--retry")
    assert refused.code == 2
    assert "run 'cake' is finished, and what is finished is not taken up again" in refused.err
    assert "try: run.state.tasks.retry_failed()   # in the cycle, before run.finish()" in refused.err


def test_the_hint_of_a_mismatch_goes_on_with_the_run(stage: Stage) -> None:
    worker = load(AGENT)
    assert isinstance(worker, Agent)
    worker.run("a", store="agent.db", run_id="r")
    with pytest.raises(RunMismatch) as refused:
        worker.run("b", store="agent.db", run_id="r")
    assert refused.value.hint.startswith("indelible resume r agent.py:worker   #")
    assert stage(*shlex.split(refused.value.hint, comments=True)[1:]).out == "1 done\n"


def test_arguments_of_resume_in_the_wrong_order_are_told(stage: Stage) -> None:
    stage("run", AGENT, "a", "--run-id", "tea1")
    swapped = stage("resume", AGENT, "tea1")
    assert swapped.code == 2
    assert "the run comes first, then the agent's file" in swapped.err
    assert "try: indelible resume tea1 agent.py:worker\n" in swapped.err
    assert "try: indelible resume RUN agent.py:worker   # see: indelible ls" in stage("resume", AGENT).err


def test_a_budget_is_no_yes_and_what_was_answered_is_listed_as_such(stage: Stage) -> None:
    stage("run", AGENT, "a b", "--run-id", "coffee", "--budget", "0.01")
    refused = stage("answer", "coffee", "yes")
    assert refused.code == 2
    assert "waits for its budget: dollars in all, given with --budget, not 'yes'" in refused.err
    assert "try: indelible answer coffee --budget 0.02" in refused.err
    assert stage("ls", "--json").json[0]["is"] == "over budget"
    assert stage("answer", "coffee", "--budget", "1").code == 0
    assert stage("ls", "--json").json[0]["is"] == "answered, resume"
    assert "answered, resume" in stage("ls").out
    assert stage("resume", "coffee", AGENT).code == 0
    assert stage("ls", "--json").json[0]["is"] == "finished"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("prove", AGENT, ""), 'indelible prove agent.py:worker "Find three suppliers"'),
        (("run", AGENT, ""), 'indelible run agent.py:worker "Find three suppliers"'),
        (("run", AGENT, "a", "--run-id", ""), "--run-id suppliers"),
        (("run", AGENT, "Find", "three", "suppliers"), "indelible run agent.py:worker 'Find three suppliers'"),
        (("prove", "Find", "three", "suppliers"), "indelible prove 'Find three suppliers'"),
        (("run", "agnt.py:worker", "a"), "agent.py:worker"),
    ],
)
def test_a_hint_can_be_used_as_it_stands(stage: Stage, words: tuple[str, ...], hint: str) -> None:
    refused = stage(*words)
    assert refused.code == 2
    assert f"  try: {hint}\n" in refused.err


def test_show_tells_how_many_claims_it_leaves_out(stage: Stage) -> None:
    stage("run", AGENT, "ask", "--run-id", "r")
    for _ in range(4):
        stage("resume", "r", AGENT)
    told = stage("show", "r").out.partition("taken up by:\n")[2].splitlines()
    claims = sum(event["event"] == "run.claimed" for event in stage("log", "r", "--json").json)
    assert len(told) == min(claims, 4)
    assert (re.match(r"  … \d+ earlier claims? \(indelible log r\)", told[0]) is not None) == (claims > 3)


def test_the_log_counts_one_call_as_one(stage: Stage) -> None:
    stage("run", AGENT, "ask b", "--run-id", "r")
    stage("answer", "r", "Acme")
    stage("resume", "r", AGENT)
    assert not re.search(r"\b1 (calls|changes)\b", stage("log", "r").out)


def test_a_deed_that_is_being_done_is_under_way_and_not_in_doubt(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []

    class Job(ind.State):
        n: int = 0

    @ind.action(effect="irreversible")
    def look() -> None:
        main(["ls"])
        shown.append(capsys.readouterr().out)

    @ind.agent(state=Job)
    def looking(run: ind.Run[Job]) -> None:
        look()
        run.finish(1)

    assert looking.run("look around", store="agent.db", run_id="r").result == 1
    (line,) = [line for line in shown[0].splitlines() if line.startswith("r ")]
    assert re.search(r"running +looking +0 +under way", line)
