"""Runs from the command line: started, resumed, stopped, killed, answered, settled."""

from __future__ import annotations

import pytest

from tests.unit import cli_stage
from tests.unit.cli_stage import Stage

stage = cli_stage.stage
AGENT = "agent.py:worker"
READERS = ("ls", "show r", "log r", "effects r", "inbox", "verify r", "verify --all")


def test_a_run_is_started_and_its_result_is_all_that_standard_output_holds(stage: Stage) -> None:
    done = stage("run", AGENT, "a b", "--run-id", "r")
    assert (done.code, done.out) == (0, "2 done\n")
    assert "run r accepted: a b" in done.err
    assert "cycle 2: 0 waiting, 2 done, 2 calls made, 0 from the journal, $0.0200" in done.err


def test_without_an_id_one_is_made_and_said(stage: Stage) -> None:
    done = stage("run", AGENT, "a")
    (run,) = stage("ls", "--json").json
    assert run["run"].startswith("worker-")
    assert f"run {run['run']} accepted" in done.err


def test_a_finished_run_is_not_run_again(stage: Stage) -> None:
    stage("run", AGENT, "a", "--run-id", "r")
    again = stage("run", AGENT, "a", "--run-id", "r")
    assert (again.code, again.out) == (0, "1 done\n")
    assert stage("show", "r", "--json").json["usage"]["calls"] == 1


def test_a_run_id_alone_resumes(stage: Stage) -> None:
    stage("run", AGENT, "ask", "--run-id", "r")
    stage("answer", "r", "Acme")
    assert stage("run", AGENT, "--run-id", "r").out == "1 done\n"


def test_one_agent_in_a_file_needs_no_name(stage: Stage) -> None:
    (stage.folder / "single.py").write_text((stage.folder / "agent.py").read_text().replace("other = ", "_ = len, "))
    assert stage("run", "single.py", "a", "--run-id", "r").code == 0


def test_a_question_parks_and_its_answer_is_used(stage: Stage) -> None:
    asked = stage("run", AGENT, "ask b", "--run-id", "r")
    assert asked.code == 3
    assert "run r waits for a person: Which supplier?" in asked.out
    assert "answer:  indelible answer r TEXT" in asked.out
    (item,) = stage("inbox", "--json").json
    assert (item["run"], item["kind"], item["question"]) == ("r", "ask", "Which supplier?")
    assert "indelible answer r TEXT" in stage("inbox").out

    said = stage("answer", "r", "Acme [red]")
    assert (said.code, said.out) == (0, "answered; go on: indelible resume r AGENT.py:worker\n")
    assert "said: Acme [red], not taken in yet" in stage("inbox").out
    assert "answered, not taken in yet" in stage("show", "r").out
    twice = stage("answer", "r", "Bolt")
    assert twice.code == 2
    assert "answered already (Acme [red])" in twice.err

    done = stage("resume", "r", AGENT)
    assert (done.code, done.out) == (0, "2 done\n")
    assert stage("show", "r", "--json").json["state"]["notes"]["items"] == ["Acme [red]", "about b"]
    assert "nothing waits" in stage("inbox").err


@pytest.mark.parametrize(("said", "tasks_failed"), [("Yes", 0), ("no", 1)])
def test_an_approval_is_asked_for(stage: Stage, said: str, tasks_failed: int) -> None:
    parked = stage("run", AGENT, "pay", "--run-id", "r")
    assert parked.code == 3
    assert "answer:  indelible answer r yes | no" in parked.out
    assert stage("ls", "--json").json[0]["is"] == "wants approval"
    maybe = stage("answer", "r", "maybe")
    assert (maybe.code, "indelible answer r yes|no" in maybe.err) == (2, True)
    assert stage("answer", "r", said).code == 0
    stage("resume", "r", AGENT)
    assert len(stage("show", "r", "--json").json["state"]["tasks"]["failed"]) == tasks_failed


def test_a_failing_task_is_given_up_and_stays_listed(stage: Stage) -> None:
    """B22: what failed for good is shown as failed, in every view."""
    done = stage("run", AGENT, "fail b", "--run-id", "r")
    assert done.code == 0
    assert "cycle 1: attempt 1 rolled back: ValueError: [bold]no\\e[2J luck" in done.err
    assert "cycle 1: given up: ValueError" in done.err
    shown = stage("show", "r")
    assert "tasks: 0 waiting, 1 done, 1 failed" in shown.out
    assert "[failed after 2 tries] fail: ValueError: [bold]no\\e[2J luck" in shown.out


def test_a_run_that_fails_has_its_own_exit_code(stage: Stage) -> None:
    (stage.folder / "failing.py").write_text(
        "import indelible as ind\nclass S(ind.State): ...\n"
        "@ind.agent(state=S, attempts=1)\ndef broken(run): raise ValueError('all is lost')\n"
    )
    failed = stage("run", "failing.py", "try", "--run-id", "r")
    assert failed.code == 4
    assert "run r has failed: ValueError: all is lost (at failing.py:4 in broken)\n  see: indelible log r" in failed.err
    assert stage("ls", "--status", "failed", "--json").json[0]["run"] == "r"


def test_waiting_for_a_time_can_be_left_to_later(stage: Stage) -> None:
    parked = stage("run", AGENT, "nap", "--run-id", "r", "--no-wait")
    assert parked.code == 3
    assert "run r waits until 2" in parked.out
    assert stage("ls", "--json").json[0]["is"] == "sleeps"
    assert "nothing waits for a person" in stage("inbox").err
    late = stage("answer", "r", "now")
    assert (late.code, "waits for a time" in late.err) == (2, True)


# Signals


def test_sigterm_ends_the_run_after_its_cycle(stage: Stage) -> None:
    """B101: the cycle under way is finished, the exit code is set, and the run goes on later."""
    stopped = stage.apart("run", AGENT, "a b c", "--run-id", "r", SIGNAL_AT="call")
    assert stopped.code == 143
    assert "stopping after this cycle" in stopped.err
    assert "run r is stopped between two cycles\n  go on:   indelible resume r agent.py:worker" in stopped.out
    assert stage("show", "r", "--json").json["committed"] == 1
    assert stage("resume", "r", AGENT).out == "3 done\n"
    assert stage("show", "r", "--json").json["usage"]["calls"] == 3


def test_ctrl_c_has_its_own_exit_code(stage: Stage) -> None:
    assert stage.apart("run", AGENT, "a b", "--run-id", "r", SIGNAL_AT="call", SIGNAL="SIGINT").code == 130


def test_a_signal_in_the_last_cycle_takes_nothing_from_its_result(stage: Stage) -> None:
    done = stage.apart("run", AGENT, "a", "--run-id", "r", SIGNAL_AT="call")
    assert (done.code, done.out) == (0, "1 done\n")


def test_a_second_signal_in_the_middle_of_a_deed_leaves_it_in_doubt(stage: Stage) -> None:
    """B101: a repeated signal ends the process at once; the deed is in doubt, not repeated."""
    stopped = stage.apart("run", AGENT, "send b", "--run-id", "r", SIGNAL_AT="after", SIGNALS="2")
    assert stopped.code == 143
    assert "stopped at once" in stopped.err
    assert [deed["became"] for deed in stage("effects", "r", "--json").json] == ["in doubt"]
    parked = stage("resume", "r", AGENT)
    assert parked.code == 3
    assert stage("settle", "r", "send", "--happened", "--result", '"sent"').code == 0
    assert stage("resume", "r", AGENT).out == "2 done\n"
    assert (stage.folder / "outbox.txt").read_text() == "ann@example.org\n"


@pytest.mark.parametrize(("agent", "code"), [(AGENT, 143), ("later.py:later", 130)])
def test_a_signal_ends_a_wait_at_once(stage: Stage, agent: str, code: int) -> None:
    """B101: a run that sleeps for an hour stops when it is told to, in a `def` and in an `async def`."""
    stopped = stage.apart("run", agent, "alarm", "--run-id", "r")
    assert stopped.code == code
    assert "run r waits until 2" in stopped.out
    assert stage("ls", "--json").json[0]["is"] == "sleeps"


# Death


@pytest.mark.parametrize("point", ["call", "before", "after", "commit"])
def test_every_command_works_on_what_a_killed_process_leaves(stage: Stage, point: str) -> None:
    """B19, B29: whatever moment it died at, the run is listed, shown, verified and resumed."""
    assert stage.apart("run", AGENT, "a send b", "--run-id", "r", DIE_AT=point).code == 9
    for number, words in enumerate(READERS):
        copy = stage.copy(f"copy{number}.db")
        for json in ([], ["--json"]):
            read = stage(*words.split(), "--store", copy, *json)
            assert read.code == 0, (words, read.err)
            assert json == [] or isinstance(read.json, list | dict)
    (listed,) = stage("ls", "--json").json
    assert (listed["is"], listed["status"]) == ("interrupted", "running")
    assert "interrupted; go on: indelible resume r AGENT.py:worker" in stage("show", "r").out
    assert stage("answer", "r", "x").code == 2

    resumed = stage("resume", "r", AGENT)
    if point in ("before", "after"):
        assert resumed.code == 3
        (item,) = stage("inbox", "--json").json
        assert item["details"]["args"] == {"to": "ann@example.org", "body": "two \x1b[31mlines"}
        happened = "--happened" if point == "after" else "--did-not-happen"
        settled = stage("settle", "r", item["wait"].partition(":")[2], happened)
        assert (settled.code, "go on: indelible resume r AGENT.py:worker" in settled.out) == (0, True)
        assert stage("effects", "r", "--json").json[0]["said"] == {"happened": point == "after", "by": "a person"}
        resumed = stage("resume", "r", AGENT)
    assert (resumed.code, resumed.out) == (0, "3 done\n")
    assert (stage.folder / "outbox.txt").read_text() == "ann@example.org\n"
    assert stage("verify", "--all").code == 0
    assert stage("ls", "--json").json[0]["is"] == "finished"


def test_a_death_before_the_run_is_accepted_promises_nothing(stage: Stage) -> None:
    """B09: a run that was never accepted is told from one that is unknown, and was not announced."""
    dead = stage.apart("run", AGENT, "a", "--run-id", "r", DIE_AT="start")
    assert (dead.code, dead.out, dead.err) == (9, "", "")
    assert stage("ls", "--json").json == []
    shown = stage("show", "r")
    assert (shown.code, "was never accepted" in shown.err) == (2, True)
    for words in ("effects r", "log r", "inbox", "verify r", "verify --all"):
        assert stage(*words.split()).code in (0, 2)
    assert stage("run", AGENT, "a", "--run-id", "r").out == "1 done\n"


def test_resume_all_goes_on_with_what_can_and_says_what_cannot(stage: Stage) -> None:
    stage.apart("run", AGENT, "a b", "--run-id", "cut", DIE_AT="commit")
    stage("run", AGENT, "ask", "--run-id", "asks")
    stage("run", AGENT, "ask", "--run-id", "told")
    stage("answer", "told", "Acme")
    stage("run", "agent.py:other", "x", "--run-id", "done")
    nothing = stage("resume", "--all")
    assert nothing.code == 3
    assert "run cut: belongs to agent 'worker'" in nothing.err
    assert "indelible resume cut AGENT.py:worker" in nothing.err
    every = stage("resume", "--all", "agent.py")
    assert every.code == 3
    assert "run asks: waits for a person: Which supplier?" in every.err
    assert every.out == "2 done\n1 done\n"
    stands = {run["run"]: run["is"] for run in stage("ls", "--json").json}
    assert stands == {"asks": "asks", "cut": "finished", "told": "finished", "done": "finished"}


def test_a_listing_puts_first_what_needs_someone(stage: Stage) -> None:
    """B19: crashed runs come first."""
    stage.apart("run", AGENT, "a", "--run-id", "cut", DIE_AT="call")
    stage("run", AGENT, "ask", "--run-id", "asks")
    stage("run", AGENT, "a", "--run-id", "done")
    assert [run["run"] for run in stage("ls", "--json").json] == ["cut", "asks", "done"]
    cut = stage("ls", "--limit", "1")
    assert ("cut" in cut.out, "done" in cut.out, "2 more" in cut.err) == (True, False, True)


def test_a_store_that_is_not_the_default_stands_in_every_command_shown(stage: Stage) -> None:
    parked = stage("run", AGENT, "ask", "--run-id", "it's", "--store", "my store.db")
    assert """answer:  indelible answer --store 'my store.db' 'it'"'"'s' TEXT""" in parked.out
    assert "indelible answer --store 'my store.db'" in stage("inbox", "--store", "my store.db").out


def test_the_environment_names_the_store(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INDELIBLE_STORE", "elsewhere.db")
    assert "indelible answer r TEXT" in stage("run", AGENT, "ask", "--run-id", "r").out
    assert (stage.folder / "elsewhere.db").stat().st_mode & 0o777 == 0o600


def test_deleting_asks_first(stage: Stage) -> None:
    stage("run", AGENT, "a", "--run-id", "r")
    asked = stage.apart("delete", "r")
    assert (asked.code, "indelible delete r --yes" in asked.err) == (2, True)
    assert stage("delete", "r", "--yes").code == 0
    assert stage("ls", "--json").json == []
    assert stage("show", "r").code == 2


def test_a_log_can_be_cut_to_a_part(stage: Stage) -> None:
    stage("run", AGENT, "a b", "--run-id", "r")
    every = stage("log", "r", "--json").json
    assert [event["seq"] for event in every] == list(range(1, len(every) + 1))
    assert [event["seq"] for event in stage("log", "r", "--json", "--limit", "2").json] == [len(every) - 1, len(every)]
    assert [event["seq"] for event in stage("log", "r", "--json", "--seq", "3", "--limit", "2").json] == [3, 4]
    assert "action.completed" in stage("log", "r").out
    assert "$0.0100" in stage("log", "r").out
