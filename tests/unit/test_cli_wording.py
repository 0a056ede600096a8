"""What the command line says to somebody who types something else than what was meant."""

from __future__ import annotations

import io
import re

import pytest

from indelible.cli import screen
from indelible.cli.options import command
from tests.unit import cli_stage
from tests.unit.cli_stage import Stage

stage = cli_stage.stage
AGENT = "agent.py:worker"

TYPED = {
    f"run|Find it|{AGENT}": ("the agent comes first", f'indelible run {AGENT} "Find it"'),
    f"prove|Find it|{AGENT}": ("the agent comes first", f'indelible prove {AGENT} "Find it"'),
    "run|a|b": ("'a' names no agent file", 'indelible run AGENT.py:name "b"'),
    f"run|{AGENT}": ("there is no objective", f'indelible run {AGENT} "'),
    "run": ("there is no objective", 'indelible run "'),
    f"prove|{AGENT}": ("there is no objective", f'indelible prove {AGENT} "'),
    "run|empty.py|x": ("empty.py is empty", "@indelible.agent(state=...)   # above the cycle function"),
    "run|bare.py|x": ("bare.py defines no agent", "@indelible.agent(state=...)   # above the cycle function"),
    "answer|suplier|x": ("there is no run 'suplier'", "indelible answer supplier TEXT"),
    "settle|suplier|x|--happened": ("there is no run 'suplier'", "indelible settle supplier ACTION --happened |"),
    f"run|{AGENT}|b|--run-id|supplier": ("pursues 'ask'", f"indelible resume supplier {AGENT}"),
    "demo|--keep|kept": ("is there already", "--keep kept-2"),
}


@pytest.mark.parametrize("words", TYPED)
def test_what_was_typed_is_answered_with_what_to_type(stage: Stage, words: str) -> None:
    (stage.folder / "empty.py").write_text("\n")
    (stage.folder / "bare.py").write_text("import indelible\n")
    (stage.folder / "kept").mkdir()
    (stage.folder / "kept" / "a").touch()
    stage("run", AGENT, "ask", "--run-id", "supplier")
    said = stage(*words.split("|"))
    what, hint = TYPED[words]
    assert said.code == 2
    assert what in said.err
    assert f"  try: {hint}" in said.err


RUNS = {
    "runs.py": 'print(agent.run("x", run_id="q"))',
    "awaits.py": 'import asyncio\nasyncio.run(later.run("x", run_id="q"))',
    "loops.py": 'with ind.open("agent.db") as store, store.run("q", agent, "x") as run: ...',
}


@pytest.mark.parametrize("file", RUNS)
@pytest.mark.parametrize("words", ["run {} x", "prove {} x", "resume q {}", "resume --all {}"])
def test_a_file_that_runs_its_agent_when_it_is_imported_is_refused_before_it_does(
    stage: Stage, file: str, words: str
) -> None:
    (stage.folder / file).write_text(
        "import indelible as ind\nclass S(ind.State):\n    n: int = 0\n"
        "@ind.agent(state=S)\ndef agent(run): run.finish(1)\n"
        "@ind.agent(state=S)\nasync def later(run): run.finish(1)\n" + RUNS[file]
    )
    stage("run", "agent.py:other", "x", "--run-id", "done")
    stage("run", AGENT, "ask", "--run-id", "q")
    before = stage("ls", "--json").json
    said = stage(*words.format(file + (":agent" if words != "resume --all {}" else "")).split())
    assert (said.code, said.out) == (2, "")
    assert f"{file} starts a run whenever it is imported" in said.err
    assert 'if __name__ == "__main__":' in said.err
    assert stage("ls", "--json").json == before


def test_a_store_that_is_not_there_is_named_with_those_that_are(stage: Stage) -> None:
    assert "indelible run AGENT.py:name OBJECTIVE --store PATH" in stage("ls").err
    stage("run", AGENT, "a", "--store", "sales.db")
    said = stage("ls")
    assert said.code == 1
    assert f"store='{stage.folder}/agent.db': there is no such file" in said.err
    assert "  try: --store sales.db\n" in said.err


def test_resuming_all_says_of_each_run_how_it_went_and_fails_if_one_did(stage: Stage) -> None:
    (stage.folder / "weak.py").write_text(
        "import os\nimport indelible as ind\nclass S(ind.State): ...\n"
        "@ind.agent(state=S, attempts=1)\ndef weak(run):\n    run.ask('?')\n    raise ValueError('no luck')\n"
        "@ind.agent(state=S, attempts=1)\ndef odd(run):\n    run.ask('?')\n    raise ind.errors.NotStorable('odd')\n"
    )
    for name in ("weak", "odd"):
        stage("run", f"weak.py:{name}", "x", "--run-id", name)
        stage("answer", name, "x")
    said = stage("resume", "--all", "weak.py")
    assert said.code != 0
    assert "run weak has failed: ValueError: no luck" in said.err
    assert "run odd could not be resumed:\nerror: odd [not-storable]" in said.err
    assert "try again: indelible resume weak weak.py:weak --retry" in said.err


def test_a_state_is_shown_for_people(stage: Stage) -> None:
    (stage.folder / "shown.py").write_text(
        "import indelible as ind\nclass S(ind.State):\n    big: dict[str, str] = {}\n    small: dict[str, int] = {}\n"
        "@ind.action\ndef fails(): raise ValueError\n"
        "@ind.agent(state=S)\ndef shown(run):\n"
        "    run.state.big = {f'a longer key {n}': 'and its value' for n in range(60)}\n"
        "    run.state.small = {'a': 1}\n"
        "    try: fails()\n    except ValueError: pass\n    run.finish()\n"
    )
    stage("run", "shown.py", "x", "--run-id", "r")
    said = stage("show", "r").out
    assert "\n1 cycle committed\ncalls: 1 made, 0 from the journal" in said
    assert 'small = {"a": 1}\n' in said
    assert 'big = {\n  "a longer key 0": "and its value",\n' in said
    assert "… 22 more lines (--json)" in said


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [("became", "action", "cycle", "intended", "args", "key", "note"),
                                     ("seq", "time", "cycle", "event", "took", "usd", "what")])  # fmt: skip
def test_an_id_can_be_copied_from_a_table_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    row = {"became": "in doubt", "time": "2026-01-01 10:00:00", "intended": "2026-01-01 10:00:00", "cycle": 1,
           "action": "send_the_mail-0123456789abcdef", "what": "send_the_mail-0123456789abcdef -> some words more",
           "event": "action.completed", "args": '{"to": "ann@example.org"}', "key": "0123456789abcdef" * 2,
           "note": "it ended with TimeoutError"}  # fmt: skip
    out = Terminal()
    screen.table(columns, [tuple(row.get(name, "-") for name in columns)], out)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert "send_the_mail-0123456789abcdef" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_options_stand_before_an_id_that_looks_like_one() -> None:
    assert command("resume", "-x", "a.py:b", "--retry", store="agent.db") == "indelible resume --retry -- -x a.py:b"
