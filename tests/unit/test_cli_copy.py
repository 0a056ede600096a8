"""`indelible copy`, as it is typed."""

from __future__ import annotations

from tests.unit import cli_stage
from tests.unit.cli_stage import Stage

stage = cli_stage.stage
AGENT = "agent.py:worker"


def test_what_has_ended_is_copied_and_what_is_missing_fails_alone(stage: Stage) -> None:
    assert stage("run", AGENT, "a b", "--run-id", "r").code == 0
    done = stage("copy", "agent.db", "b.db", "--json")
    assert done.code == 0
    (told,) = done.json
    assert (told["run_id"], told["became"], told["status"]) == ("r", "copied", "finished")
    assert stage("verify", "r", "--store", "b.db").code == 0
    assert stage("show", "r", "--store", "b.db").code == 0
    again = stage("copy", "agent.db", "b.db", "--run", "nobody", "--run", "r")
    assert again.code == 1
    assert "already there" in again.out
    assert "FAILED nobody" in again.out


def test_there_is_nothing_to_copy_from(stage: Stage) -> None:
    refused = stage("copy", "nowhere.db", "b.db")
    assert refused.code != 0
    assert "there is no such file" in refused.err
    assert stage("copy", "agent.db", "b.db", "--run", "r", "--status", "finished").code == 2
