"""Bad input on the command line gets a clear error and an exit code, and loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import indelible
from indelible.cli.main import main
from tests.unit import cli_stage
from tests.unit.cli_stage import Stage

stage = cli_stage.stage
AGENT = "agent.py:worker"

# What is typed, the exit code, and what the two lines must hold.
MISUSE: list[tuple[list[str], str, str]] = [
    (["run", AGENT, ""], "the objective is empty", 'indelible run agent.py:worker "Find three suppliers"'),
    (["run", AGENT, " \n"], "the objective is empty", "indelible run"),
    (["run", AGENT, "\udc80x"], "the objective is not valid text", "LC_ALL=C.UTF-8"),
    (["run"], "there is no objective", "indelible run"),
    (["run", AGENT], "there is no objective", "indelible run"),
    (["run", AGENT, "a", "b"], "3 arguments", "indelible run"),
    (["run", "agent", "a"], "'agent' names no agent file", "indelible run AGENT.py:name"),
    (["run", "agnet.py:worker", "a"], "there is no file agnet.py", "agent.py"),
    (["run", "no/such.py:worker", "a"], "there is no file no/such.py", "ls no"),
    (["run", "agent.py:workr", "a"], "agent.py has no workr; agents there: worker, other", "agent.py:worker"),
    (["run", "agent.py:number", "a"], "number in agent.py is no agent but a int", "agent.py:worker"),
    (["run", "agent.py", "a"], "agent.py holds 2 agents: worker, other", "agent.py:worker"),
    (["run", "empty.py", "a"], "empty.py defines no agent", "@indelible.agent"),
    (["run", "sub/agent.py:worker", "a"], "is the name of another module", "mv sub/agent.py agent_agent.py"),
    (["run", AGENT, "a", "--run-id", "../x"], "run id '../x' looks like a path", "--run-id suppliers"),
    (["run", AGENT, "a", "--run-id", "a\x1b[2J"], "holds control characters", "--run-id suppliers"),
    (["run", AGENT, "a", "--store", "mongodb://x/y"], "mongodb is not known", "agent.db"),
    (["run", AGENT, "b", "--run-id", "done"], "run 'done' pursues 'a', not 'b'", "indelible resume done"),
    (["run", "agent.py:other", "a", "--run-id", "done"], "belongs to agent 'worker', not to 'another'", "--run-id"),
    (["run", AGENT, "--run-id", "new"], "there is no run 'new'", "indelible ls --store"),
    (["resume", "asks"], "belongs to agent 'worker'; where is its code?", "indelible resume asks AGENT.py:worker"),
    (["resume"], "say which run, or --all", "indelible resume RUN"),
    (["resume", "dune", AGENT], "there is no run 'dune'", "indelible resume done"),
    (["show", "ask"], "there is no run 'ask'", "indelible show asks"),
    (["log", "zzz"], "there is no run 'zzz'", "indelible ls --store"),
    (["effects", "../x"], "looks like a path", "run_id="),
    (["answer", "done", "x"], "does not wait for an answer", "indelible show done"),
    (["answer", "asks", "x", "--wait", "w"], "does not wait for 'w'; it waits for: ask:", "indelible show asks"),
    (["answer", "asks", " "], "the answer is empty", "indelible answer asks TEXT"),
    (["answer", "doubtful", "yes"], "a deed in doubt", "indelible settle doubtful send-"),
    (["settle", "doubtful", "send"], "--happened or --did-not-happen", "indelible settle doubtful send --happened"),
    (["settle", "doubtful", "send", "--happened", "--did-not-happen"], "--happened or", "indelible settle"),
    (["settle", "doubtful", "send", "--happened", "--result", "{x"], "--result is not JSON", "--result"),
    (["settle", "doubtful", "send", "--did-not-happen", "--result", "1"], "has no result", "leave --result out"),
    (["settle", "doubtful", "pay", "--happened"], "it is not in doubt; in doubt: send-", "indelible effects doubtful"),
    (["settle", "done", "complete", "--happened"], "it is not in doubt; in doubt: nothing", "indelible effects done"),
    (["settle", "asks", "send-0", "--did-not-happen"], "it is not in doubt", "indelible effects asks"),
    (["verify"], "say which run, or --all", "indelible verify --all"),
    (["verify", "dome"], "there is no run 'dome'", "indelible verify done"),
]


@pytest.fixture
def furnished(stage: Stage) -> Stage:
    """A store with a finished run, one that asks, and one in doubt."""
    (stage.folder / "empty.py").write_text("x = 1\n")
    (stage.folder / "sub").mkdir()
    (stage.folder / "sub" / "agent.py").write_text("x = 1\n")
    stage("run", AGENT, "a", "--run-id", "done")
    stage("run", AGENT, "ask", "--run-id", "asks")
    stage.apart("run", AGENT, "send", "--run-id", "doubtful", DIE_AT="after")
    assert stage("resume", "doubtful", AGENT).code == 3
    return stage


def test_what_cannot_be_right_is_misuse_with_a_way_out(furnished: Stage) -> None:
    before = {run["run"]: run["events"] for run in furnished("ls", "--json").json}
    for words, what, hint in MISUSE:
        said = furnished(*words)
        lines = said.err.splitlines()
        assert (said.code, said.out, len(lines)) == (2, "", 2), (words, said)
        assert [lines[0][:7], lines[1][:7]] == ["error: ", "  try: "], (words, lines)
        assert what in lines[0], (words, lines)
        assert hint in lines[1], (words, lines)
    after = {run["run"]: run["events"] for run in furnished("ls", "--json").json}
    assert {run for run, events in after.items() if before.get(run) != events} <= set(before)
    assert (furnished.folder / "outbox.txt").read_text() == "ann@example.org\n"
    assert furnished("verify", "--all").code == 0


@pytest.mark.parametrize("words", [["nonsense"], ["ls", "--nonsense"], ["show"], ["ls", "--limit", "-1"]])
def test_what_no_command_understands_is_misuse(stage: Stage, words: list[str]) -> None:
    said = stage(*words)
    assert (said.code, said.out) == (2, "")
    assert "Traceback" not in said.err


READERS = ["ls", "show r", "log r", "effects r", "inbox", "verify r", "verify --all", "answer r x", "delete r --yes",
           "settle r a --happened", "resume r agent.py:worker", "run agent.py:worker --run-id r"]  # fmt: skip


@pytest.mark.parametrize("words", READERS)
def test_a_store_that_is_missing_is_named_and_never_made(stage: Stage, words: str) -> None:
    said = stage(*words.split(), "--store", "missing.db")
    assert said.code == 1
    assert f"error: store='{stage.folder}/missing.db': there is no such file" in said.err
    assert not (stage.folder / "missing.db").exists()


def test_a_store_in_a_missing_directory_is_refused_before_the_run_is_announced(stage: Stage) -> None:
    """B110"""
    said = stage("run", AGENT, "a", "--store", "no/such/agent.db")
    assert (said.code, said.out) == (1, "")
    assert len(said.err.splitlines()) == 2
    assert f"there is no directory {stage.folder}/no/such" in said.err
    assert f"try: mkdir -p {stage.folder}/no/such" in said.err


READ_ONLY = """
import os, sys
from indelible.cli.main import main
words = sys.argv[1:]
for each in words:  # imports what it needs, while this user may still read it
    main(each.replace("/new.db", "/no/new.db").split())
sys.stderr.write("-----")
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
print([main(each.split()) for each in words])
"""


def test_in_a_read_only_directory_readers_work_and_writers_say_why(stage: Stage) -> None:
    """B110: a run is refused before it is announced; readers need no permission to write."""
    stage("run", AGENT, "ask", "--run-id", "r")
    home = Path("/tmp") / f"indelible-read-only-{os.getpid()}"
    home.mkdir()
    try:
        for path in [*stage.folder.glob("agent.*")]:
            (home / path.name).write_bytes(path.read_bytes())
            (home / path.name).chmod(0o444)
        home.chmod(0o555)
        reads = ["ls", "show r", "log r", "effects r", "inbox", "verify r"]
        words = [f"{read} --store {home}/agent.db" for read in reads]
        words += [f"run {home}/agent.py:worker a --store {home}/new.db"]
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, *words], capture_output=True, text=True, timeout=60, check=False, cwd=home
        )
    finally:
        home.chmod(0o755)
        for path in home.iterdir():
            path.unlink()
        home.rmdir()
    assert done.stdout.splitlines()[-1] == "[0, 0, 0, 0, 0, 0, 1]", (done.stdout, done.stderr)
    assert f"store='{home}/new.db': {home} may not be written by this user" in done.stderr
    assert "accepted" not in done.stderr.partition("-----")[2]


@pytest.mark.parametrize("words", ["ls", "run agent.py:worker a", "inbox"])
def test_a_file_that_is_no_store_is_left_alone(stage: Stage, words: str) -> None:
    (stage.folder / "notes.db").write_bytes(b"these are my notes, not a database\n" * 50)
    said = stage(*words.split(), "--store", "notes.db")
    assert said.code in (1, 2)
    assert f"{stage.folder}/notes.db" in said.err
    assert len(said.err.splitlines()) == 2
    assert (stage.folder / "notes.db").read_bytes().startswith(b"these are my notes")


@pytest.mark.parametrize("words", ["ls", "show r", "resume r agent.py:worker", "run agent.py:worker a"])
def test_a_store_of_a_newer_format_is_refused(stage: Stage, words: str) -> None:
    stage("run", AGENT, "a", "--run-id", "r")
    with apsw.Connection("agent.db") as con:
        con.pragma("user_version", 99)
    con.close()
    said = stage(*words.split())
    assert said.code == 1
    assert "[format-too-new]" in said.err
    assert "pip install" in said.err


def test_a_second_process_is_refused_and_told_who_holds_the_run(stage: Stage) -> None:
    """B102: while a live process holds the run nothing is done, and it says who and since when."""
    sys.path.insert(0, str(stage.folder))
    from indelible.cli.loading import load

    agent = load(AGENT)
    with indelible.open("agent.db") as store, store.run("r", agent, "a b"):
        (listed,) = stage("ls", "--json").json
        assert (listed["is"], listed["live"]) == ("running", True)
        for words in (["run", AGENT, "a b", "--run-id", "r"], ["resume", "r", AGENT]):
            said = stage(*words)
            assert (said.code, said.out) == (1, "")
            assert f"run 'r' is held by process {os.getpid()} on host" in said.err
            assert "it took the run up at 20" in said.err
        for words in (["settle", "r", "send", "--happened"], ["delete", "r", "--yes"]):
            assert "[run-busy]" in stage(*words).err
        for words in (["show", "r"], ["log", "r"], ["effects", "r"], ["inbox"], ["verify", "r"]):
            assert stage(*words).code == 0
    assert stage("resume", "r", AGENT).code == 0
    assert stage("show", "r", "--json").json["usage"]["calls"] == 2


def test_a_value_that_cannot_be_stored_is_named_and_the_run_goes_on_later(stage: Stage) -> None:
    said = stage("run", AGENT, "socket", "--run-id", "r")
    assert said.code == 1
    assert "state.seen" in said.err
    assert "[not-storable]" in said.err
    assert stage("ls", "--json").json[0]["is"] == "interrupted"


def test_a_file_that_does_not_import_shows_where(stage: Stage) -> None:
    (stage.folder / "broken.py").write_text("def f():\n    import no_such_module\nf()\n")
    said = stage("run", "broken.py:x", "a")
    assert said.code == 1
    assert f'File "{stage.folder}/broken.py", line 3, in <module>' in said.err
    assert f'File "{stage.folder}/broken.py", line 2, in f\n    import no_such_module' in said.err
    assert said.err.endswith(
        "error: broken.py could not be imported: ModuleNotFoundError: No module named 'no_such_module'\n"
    )
    assert "indelible/cli" not in said.err
    assert not (stage.folder / "agent.db").exists()


def test_a_syntax_error_shows_its_line(stage: Stage) -> None:
    (stage.folder / "broken.py").write_text("x = 1\nif:\n")
    said = stage("run", "broken.py:x", "a")
    assert said.code == 1
    assert f'File "{stage.folder}/broken.py", line 2\n    if:' in said.err


def test_a_file_that_exits_when_imported_does_not_end_the_command(stage: Stage) -> None:
    (stage.folder / "broken.py").write_text("raise SystemExit(0)\n")
    said = stage("run", "broken.py:x", "a")
    assert (said.code, "could not be imported: SystemExit: 0" in said.err) == (1, True)


def test_an_exit_inside_a_cycle_is_no_success(stage: Stage) -> None:
    said = stage("run", AGENT, "leave", "--run-id", "r")
    assert said.code == 1
    assert "error: run r was left: SystemExit: out of here" in said.err
    assert "agent.py" in said.err
    assert stage("ls", "--json").json[0]["is"] == "interrupted"


def test_debug_shows_the_traceback_of_an_error_of_ours(stage: Stage) -> None:
    assert "Traceback" not in stage("show", "r", "--store", "missing.db").err
    assert "Traceback" in stage("show", "r", "--store", "missing.db", "--debug").err


def test_a_reader_that_goes_away_is_no_error(stage: Stage) -> None:
    stage("run", AGENT, " ".join("abcdefgh" * 40), "--run-id", "r")
    program = f"{sys.executable} -m indelible log r --json"
    done = subprocess.run(
        ["sh", "-c", f"{program} | head -1 >/dev/null"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_exit_codes_stand_in_the_help(stage: Stage) -> None:
    for words in (["--help"], ["run", "--help"], ["resume", "-h"]):
        said = stage(*words)
        assert said.code == 0
        for part in ("3 parked", "4 the run failed", "130 stopped by Ctrl-C", "143"):
            assert part in " ".join(said.out.split())


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"indelible {indelible.__version__}\n"


def test_signal_handlers_are_put_back(stage: Stage) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    stage("run", AGENT, "a")
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
