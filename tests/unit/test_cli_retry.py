"""A failed run from the command line: how it is told, how it is retried, and that looking at it changes nothing."""

from __future__ import annotations

import pytest

from tests.unit import cli_stage
from tests.unit.cli_stage import Stage

stage = cli_stage.stage

AGENT = "flaky.py:flaky"
FLAKY = """
import os
import indelible as ind

class Job(ind.State):
    tasks: ind.Queue[str]

@ind.action(effect="irreversible")
def send(to: str) -> str:
    with open("outbox.txt", "a") as out:
        print(to, file=out)
    return "sent"

@ind.agent(state=Job, attempts=1, on_failure="fail")
def flaky(run):
    send(run.state.tasks.take())
    if os.environ.get("DIE") == "cycle":
        os._exit(9)
    if not os.path.exists("up"):
        raise ConnectionError("the model is out of reach")
    run.finish("done")

@flaky.start
def start(run):
    run.state.tasks.append(run.objective)
"""


@pytest.fixture
def failed(stage: Stage) -> Stage:
    """A stage with a failed run of one deed."""
    (stage.folder / "flaky.py").write_text(FLAKY)
    assert stage("run", AGENT, "ann", "--run-id", "r").code == 4
    return stage


def events(stage: Stage) -> int:
    count: int = stage("ls", "--json").json[0]["events"]
    return count


def test_a_failed_run_says_how_to_try_again_and_that_command_works(failed: Stage) -> None:
    again = failed("run", AGENT, "ann", "--run-id", "r")
    assert again.code == 4
    assert "  try again: indelible resume r flaky.py:flaky --retry\n" in again.err
    assert "try again: indelible resume r AGENT.py:flaky --retry" in failed("show", "r").out
    (failed.folder / "up").touch()
    done = failed("resume", "r", AGENT, "--retry")
    assert (done.code, done.out) == (0, "done\n")
    assert "run r is tried again: ann" in done.err
    assert "resumed" not in done.err
    assert (failed.folder / "outbox.txt").read_text() == "ann\n"
    assert [deed["became"] for deed in failed("effects", "r", "--json").json] == ["done"]
    assert "1 failed task tried again" in failed("log", "r").out


def test_run_retries_too_with_the_same_id(failed: Stage) -> None:
    (failed.folder / "up").touch()
    assert failed("run", AGENT, "ann", "--retry").code == 2
    assert failed("run", AGENT, "ann", "--run-id", "r", "--retry").out == "done\n"


def test_a_retry_that_dies_goes_on_by_a_resume(failed: Stage) -> None:
    assert failed.apart("resume", "r", AGENT, "--retry", DIE="cycle").code == 9
    refused = failed("resume", "r", AGENT, "--retry")
    assert (refused.code, "run 'r' has not failed; it simply goes on [misuse]" in refused.err) == (2, True)
    assert f"  try: indelible resume r {AGENT}   # without retry\n" in refused.err
    (failed.folder / "up").touch()
    assert failed("resume", "r", AGENT).out == "done\n"
    assert (failed.folder / "outbox.txt").read_text() == "ann\n"


def test_looking_at_a_run_that_has_ended_writes_nothing_and_needs_no_file(failed: Stage) -> None:
    before = events(failed)
    for words in (("resume", "r", AGENT), ("resume", "r"), ("run", AGENT, "ann", "--run-id", "r")):
        said = failed(*words)
        assert (said.code, "run r has failed: ConnectionError" in said.err, "resumed" in said.err) == (4, True, False)
    (failed.folder / "up").touch()
    failed("resume", "r", AGENT, "--retry")
    after = events(failed)
    assert after > before
    for words in (("resume", "r", AGENT), ("resume", "r")):
        said = failed(*words)
        assert (said.code, said.out, said.err) == (0, "done\n", "run r is finished\n")
    assert failed("run", AGENT, "bob", "--run-id", "r").code == 2
    assert events(failed) == after
    refused = failed("resume", "r", AGENT, "--retry")
    assert (refused.code, "is finished; there is nothing to retry" in refused.err) == (2, True)
    assert events(failed) == after


def test_the_inbox_lists_what_a_failed_run_has_left_in_the_world(failed: Stage) -> None:
    (item,) = failed("inbox", "--json").json
    assert (item["run"], item["kind"], item["details"]["args"]) == ("r", "orphaned", {"to": "ann"})
    assert "  see: indelible effects r\n" in failed("inbox").out
    (failed.folder / "up").touch()
    failed("resume", "r", AGENT, "--retry")
    assert failed("inbox", "--json").json == []


def test_all_are_not_retried_at_once(failed: Stage) -> None:
    said = failed("resume", "--all", "flaky.py", "--retry")
    assert (said.code, "one by one" in said.err) == (2, True)
