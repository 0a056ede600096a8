"""What comes from outside is shown, and does nothing to the terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indelible.cli import screen
from indelible.cli.options import command
from tests.unit import cli_stage
from tests.unit.cli_stage import Stage

stage = cli_stage.stage
NASTY = "\x1b[31mred\x1b]0;title\x07 [bold]x[/bold] [/] \u202etxt.exe \r\x9b2J <img src=x onerror=alert(1)>"
HARMFUL = ("\x1b", "\x07", "\r", "\x9b", "\u202e")
VIEWS = ("ls", "show r", "log r", "effects r", "inbox", "verify r")


@given(st.text(st.characters(codec=None)))
def test_safe_text_is_one_line_that_can_be_printed(text: str) -> None:
    """B126"""
    shown = screen.safe(text)
    shown.encode("utf-8")
    assert len(shown.splitlines()) <= 1
    assert not any(ord(ch) < 32 or 127 <= ord(ch) < 160 or 0xD800 <= ord(ch) < 0xE000 for ch in shown)


def test_ordinary_text_of_any_script_is_left_alone() -> None:
    for text in ("plain [text]", "größer 東京 عربى", "👩\u200d👩\u200d👧", "back\\slash"):
        assert screen.safe(text) == text
    assert screen.safe("a\nb\tc\x1b\x00\u202e\udc80") == "a\\nb\\tc\\e\\x00\\u202e\\udc80"
    assert screen.safe("abcdef", 4) == "abc…"
    assert screen.safe_block("a\n\tb\x1b") == "a\n    b\\e"


@pytest.mark.parametrize("task", ["ask", "send"])
def test_nothing_in_a_run_acts_on_the_terminal(stage: Stage, task: str) -> None:
    """B126: escapes and markup in objective, question, task, error and result are shown as text."""
    (stage.folder / "nasty.py").write_text(
        f"import indelible as ind\nNASTY = {NASTY!r}\n"
        "class S(ind.State):\n    q: ind.Queue[str]\n    log: ind.Log[str]\n    m: ind.Map[str, str]\n    s: str = ''\n"
        "@ind.action(effect='irreversible')\ndef send(text: str, *, key: str) -> str:\n    raise OSError(NASTY)\n"
        "@ind.agent(state=S)\ndef nasty(run):\n"
        "    task = run.state.q.take()\n"
        "    if run.state.s:\n"
        f"        {'run.ask(NASTY)' if task == 'ask' else 'send(NASTY)'}\n"
        "    run.state.s = NASTY\n    run.state.log.append(NASTY)\n    run.state.m[NASTY] = NASTY\n"
        "@nasty.start\ndef start(run): run.state.q.extend([NASTY] * 3)\n"
    )
    shown = [stage("run", "nasty.py", NASTY, "--run-id", "r")]
    assert shown[0].code == 3
    shown += [stage(*view.split(), *json_) for view in VIEWS for json_ in ([], ["--json"])]
    shown += [stage("run", "nasty.py", NASTY + "!", "--run-id", "r"), stage("answer", "r", "x", "--wait", NASTY)]
    text = "".join(result.out + result.err for result in shown)
    assert not [ch for ch in HARMFUL if ch in text]
    assert "\\e[31mred\\e]0;title\\x07 [bold]x[/bold] [/] \\u202etxt.exe \\r\\x9b2J <img" in text


def on_a_terminal(stage: Stage, *words: str, **env: str) -> tuple[int, str]:
    """A command's exit code and what it writes to a terminal of 200 columns."""
    parent, child = pty.openpty()
    environment = {**os.environ, "COLUMNS": "200", "TERM": "xterm", **env}
    process = subprocess.Popen(
        [sys.executable, "-m", "indelible", *words], stdout=child, stderr=child, stdin=child, cwd=stage.folder,
        env=environment,
    )  # fmt: skip
    os.close(child)
    written = b""
    try:
        while chunk := os.read(parent, 65536):
            written += chunk
    except OSError:
        pass  # Linux ends a terminal whose other side has closed with EIO
    os.close(parent)
    return process.wait(timeout=60), written.decode("utf-8", "replace")


def test_on_a_terminal_progress_is_live_and_markup_is_text(stage: Stage) -> None:
    """B126"""
    code, written = on_a_terminal(stage, "run", "agent.py:worker", "fail [red]b", "--run-id", "r")
    assert code == 0
    assert "run r accepted: fail [red]b" in written
    assert "worker · run r · cycle" in written
    assert "ValueError: [bold]no\\e[2J luck" in written
    assert written.rstrip().endswith("1 done")
    assert written.rfind("\x1b[?25h") > written.rfind("\x1b[?25l") > -1, "the cursor is shown again"
    code, written = on_a_terminal(stage, "ls")
    assert (code, "fail [red]b" in written) == (0, True)


def test_a_stop_on_a_terminal_is_said_and_gives_the_cursor_back(stage: Stage) -> None:
    """B101"""
    stop = {"SIGNAL_AT": "call", "SIGNALS": "2", "SIGNAL": "SIGINT"}
    code, written = on_a_terminal(stage, "run", "agent.py:worker", "a", "--run-id", "r", **stop)
    assert code == 130
    assert "stopped at once" in written
    assert written.rfind("\x1b[?25h") > written.rfind("\x1b[?25l")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_no_terminal_encoding_ends_the_program(stage: Stage, encoding: str) -> None:
    stage("run", "agent.py:worker", "東京 größer", "--run-id", "r")
    for view in VIEWS:
        assert stage.apart(*view.split(), PYTHONIOENCODING=encoding).code == 0
    done = stage.apart("run", "agent.py:worker", "東京 x", "--run-id", "s", PYTHONIOENCODING=encoding)
    assert (done.code, done.out) == (0, "2 done\n")


def test_half_a_character_in_the_state_is_shown(stage: Stage) -> None:
    (stage.folder / "half.py").write_text(
        "import indelible as ind\nclass S(ind.State):\n    s: str = ''\n    f: float = 0.0\n    b: bytes = b''\n"
        "@ind.agent(state=S)\ndef half(run):\n    run.state.s = 'x\\udc80'\n    run.state.f = float('nan')\n"
        "    run.state.b = b'\\x00'\n    run.finish('y\\udc80')\n"
    )
    done = stage("run", "half.py", "go", "--run-id", "r")
    assert (done.code, done.out) == (0, "y\\udc80\n")
    assert "s = x\\udc80" in stage("show", "r").out.replace('{"$text": "x\\\\udc80"}', "x\\udc80")
    assert stage("show", "r", "--json").json["state"] == {
        "s": {"$text": "x\\udc80"}, "f": {"$float": "nan"}, "b": {"$bytes": "AA=="}
    }  # fmt: skip
    assert stage("log", "r").code == 0


def test_a_table_elsewhere_than_on_a_terminal_is_never_cut() -> None:
    out = io.StringIO()
    screen.table(("a", "b"), [("x" * 300, 1), ("y", "z\n")], out)
    assert out.getvalue().splitlines()[1] == "x" * 300 + "  1"
    assert out.getvalue().splitlines()[2] == "y".ljust(300) + "  z\\n"


def test_times_out_of_range_are_shown_as_numbers() -> None:
    assert screen.moment(1e300) == "1e+300"
    assert screen.iso(1e300) is None
    assert (screen.moment(0), screen.iso(0)) == ("-", None)
    assert [screen.ago(s) for s in (-1, 59, 60, 7200, 200000)] == [
        "0 s ago",
        "59 s ago",
        "1 min ago",
        "2 h ago",
        "2 d ago",
    ]


def test_commands_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INDELIBLE_STORE", raising=False)
    assert command("show", "r", store="agent.db") == "indelible show r"
    assert command("show", "a b", store="x y.db") == "indelible show --store 'x y.db' 'a b'"
    assert command("answer", "-x", "TEXT", store="agent.db") == "indelible answer -- -x TEXT"


def test_json_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    screen.dump({"x": NASTY})
    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out) == {"x": NASTY}
