"""`indelible submit` and `indelible worker` as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import indelible as ind
from tests.unit import cli_stage
from tests.unit.cli_stage import Stage

stage = cli_stage.stage


def test_a_submitted_run_is_accepted_durably_and_not_begun(stage: Stage) -> None:
    """B09: the id is printed when the run is there."""
    done = stage("submit", "agent.py:worker", "a send", "--run-id", "r", "--budget", "5")
    assert (done.code, done.out, done.err) == (0, "r\n", "")
    named = stage("submit", "agent.py:worker", "a").out.strip()
    with ind.open("agent.db", readonly=True) as store:
        record = store.recover("r").record
        assert (record.status, record.committed, record.budget) == ("running", 0, 5.0)
        assert {entry.run_id for entry in store.entries()} == {"r", named}
        assert not any(entry.live for entry in store.entries())
    assert not Path("outbox.txt").exists()


def test_a_run_that_is_submitted_again_is_the_same_run(stage: Stage) -> None:
    stage("submit", "agent.py:worker", "a", "--run-id", "r")
    again = stage("submit", "agent.py:worker", "a", "--run-id", "r")
    assert (again.code, again.out, again.err) == (0, "r\n", "run r was accepted before\n")
    other = stage("submit", "agent.py:worker", "b", "--run-id", "r")
    assert (other.code, other.out) == (2, "")
    assert "run-mismatch" in other.err


def test_a_worker_works_on_what_was_submitted_until_nothing_is_left(stage: Stage) -> None:
    for run, objective in (("r1", "a send"), ("r2", "ask"), ("r3", "fail leave")):
        stage("submit", "agent.py:worker", objective, "--run-id", run)
    words = ("worker", "agent.py:worker", "--until-idle", "--poll", "0.01", "--concurrency", "1")
    done = stage(*words)
    said = [line[21:] for line in done.out.splitlines() if line[:1].isdigit()]
    assert said[0].startswith("works on runs of worker in ")
    assert said[1:] == [
        "claimed     r1  (epoch 2)", "finished    r1",
        "claimed     r2  (epoch 2)", "parked      r2  for a person: Which supplier?",
        "claimed     r3  (epoch 2)", "set aside   r3",
    ]  # fmt: skip
    assert "  error: SystemExit: out of here" in done.out.splitlines()
    assert (done.code, done.err) == (1, ""), "a run was set aside"
    assert Path("outbox.txt").read_text() == "ann@example.org\n"
    stage("answer", "r2", "Ann")
    again = stage(*words)
    assert "finished    r2" in again.out
    assert "r1" not in again.out


def test_each_event_is_one_json_object_on_a_line(stage: Stage) -> None:
    for run, objective in (("r1", "a"), ("r2", "socket"), ("r3", "ask")):
        stage("submit", "agent.py:worker", objective, "--run-id", run)
    done = stage("worker", "--agent", "agent.py:worker", "--until-idle", "--poll", "0.01", "--json")
    told = [json.loads(line) for line in done.out.splitlines()]
    assert told[0] | {"at": "", "store": ""} == {
        "at": "", "event": "working", "agents": ["worker"], "store": "", "concurrency": 4
    }  # fmt: skip
    by_run = {run: [one for one in told if one.get("run") == run] for run in ("r1", "r2", "r3")}
    assert [one["event"] for one in by_run["r1"]] == ["claimed", "finished"]
    assert by_run["r1"][0]["epoch"] == 2
    aside = by_run["r2"][1]
    assert (aside["event"], aside["code"], bool(aside["hint"])) == ("set aside", "not-storable", True)
    assert (by_run["r3"][1]["event"], by_run["r3"][1]["waits_for"]) == ("parked", "ask")
    assert all(one["at"] for one in told)


def test_a_file_without_a_name_gives_all_its_agents(stage: Stage) -> None:
    stage("submit", "agent.py:other", "x", "--run-id", "r")
    assert "finished    r" in stage("worker", "agent.py", "--until-idle", "--poll", "0.01").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("worker",), "needs the file of an agent"),
        (("worker", "agent.py", "--store", "memory:"), "nobody can put runs into it"),
        (("worker", "agent.py", "--concurrency", "0"), "--concurrency is from 1 up"),
        (("worker", "agent.py", "--poll", "0"), "--poll above 0"),
        (("worker", "agent.py:nobody"), "has no nobody"),
        (("worker", "agent.py", "--store", "mysql://x/y"), "mysql is not known"),
        (("submit", "agent.py:worker"), "there is no objective"),
        (("submit", "find suppliers"), "whose run is it to be?"),
        (("submit", "agent.py:worker", " "), "the objective is empty"),
        (("submit", "agent.py:worker", "a", "--store", "memory:"), "is gone when this command ends"),
        (("submit", "agent.py:worker", "a", "--run-id", "../r"), "looks like a path"),
    ],
)
def test_what_cannot_be_meant_is_refused(stage: Stage, words: tuple[str, ...], said: str) -> None:
    done = stage(*words)
    assert done.code == 2
    assert said in done.err
    assert "  try: " in done.err
