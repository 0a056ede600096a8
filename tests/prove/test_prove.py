"""A proof holds for agents that are right, names what is wrong with those that are not, and can itself fail.

Proofs are small here; `make prove` makes long ones.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import indelible as ind
from indelible.cli.main import main
from indelible.core import events as ev
from indelible.core import perform
from indelible.core.actions import Effect, Found, OnDoubt, Probed, Verdict, decide
from indelible.core.record import Record
from indelible.core.requests import Append
from indelible.errors import Misuse
from indelible.testing import prove, prove_limits
from indelible.testing.checkers import Journal
from indelible.testing.prove import Proof, Size, crash_everywhere
from indelible.testing.prove_evidence import Case, Life
from indelible.testing.prove_judge import Usual, judge
from tests.tidy.tree import ROOT

HERE = Path(__file__).parent
SMALL = Size(singles=40, doubles=16, kills=12, random=1)
SIMULATED = Size(singles=90, doubles=0, kills=0, random=0)
REAL = Size(singles=0, doubles=0, kills=None, random=0)
EXAMPLES = {
    "examples/sync_tool_agent.py": "Compare tea",
    "examples/async_gather_agent.py": "rain wind",
    "examples/payments_agent.py": "A-1 A-2",
    "tests/prove/right_agents/patient.py": "A-1",
    "tests/prove/right_agents/sockets.py": "A-1 A-2",
}
WRONG = {
    "bare_deed": "payments: 3 entries where the uninterrupted run made 2, and no action was being performed: "
    "a deed is done outside an @action",
    "global_state": "after a restart the result differs ('about B' instead of 'about A\\nabout B'): "
    "something is remembered outside State",
    "harmful_repeat": "`pay` is declared repeatable, but calling it again changed the world: "
    'declare it effect="irreversible" or "idempotent"',
}


def command(*words: str) -> tuple[int, str, str]:
    """A command's exit code, and what it wrote."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = main(list(words))
    return code, out.getvalue(), err.getvalue()


def sentences(proof: Proof) -> list[str]:
    return [finding.sentence for finding in proof.findings]


@pytest.mark.parametrize("file", EXAMPLES)
def test_agents_that_are_right(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B01, B02, B03, B09: deaths, second deaths, errors and SIGKILL; nothing is lost, nothing is done twice."""
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    seen: list[tuple[str, int, int]] = []
    proof = crash_everywhere(f"{ROOT / file}:agent", EXAMPLES[file], size=SMALL, folder=tmp_path,
                             progress=lambda *step: seen.append(step))  # fmt: skip
    assert proof.holds, str(proof)
    assert (proof.repeats, proof.lost) == (0, 0)
    assert min(proof.simulated, proof.doubles, proof.kills, proof.deeds, proof.entries) >= 10
    assert {part for part, _, _ in seen} == {"simulated", "double deaths", "real kills"}
    assert all(done <= of for _, done, of in seen)
    assert not list(tmp_path.iterdir())


def test_the_researcher(tmp_path: Path) -> None:
    """The agent that is shipped, with a model that needs no weights, delivering to a folder of its own."""
    agent = tmp_path / "researcher_here.py"
    agent.write_text(
        "from indelible.agents.researcher import configure\n"
        f"agent = configure({str(HERE / 'corpus')!r}, 'maildir:out/', 'scripted', 'me@example.org')\n"
    )
    proof = crash_everywhere(f"{agent}:agent", "What does the price of tea depend on?", size=SMALL, world=False)
    assert proof.holds, str(proof)
    assert min(proof.simulated, proof.doubles, proof.kills, proof.deeds) >= 10
    assert proof.entries == 0


@pytest.mark.parametrize("name", WRONG)
def test_agents_that_are_wrong(name: str) -> None:
    """Each is caught, with the one sentence that says what to change, and an exit code for CI."""
    code, out, err = command("prove", str(HERE / "wrong_agents" / f"{name}.py"), "A B", "--json", "--seed", "7")
    report = json.loads(out)
    assert code == 5
    assert [finding["sentence"] for finding in report["findings"]] == [WRONG[name]]
    assert report["findings"][0]["cases"] > 1
    assert (report["seed"], report["mode"], report["holds"]) == (7, "quick", False)
    assert set(report["versions"]) == {"indelible", "python", "sqlite"}
    assert (report["repeats"] > 0) == (name != "global_state")
    assert report["simulated"] == report["simulated_of"] > 50
    assert report["kills"] > 0
    assert "simulated: " in err


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("lying", "`pay` is irreversible, and was done 2 times: its probe said that it had not happened, and it had"),
        ("keyless", "`put` is declared idempotent, but calling it again with the same key changed the world: "
         'hand its key to the other side, or declare it effect="irreversible"'),
        ("dicey", "after a restart each entry into the cycle wants another deed than the one it has done: "
         "take times and random values from run.now(), run.random and run.new_id()"),
    ],
)  # fmt: skip
def test_declarations_that_are_not_true(name: str, sentence: str) -> None:
    """What an action says of itself is tried out, not believed."""
    size = SIMULATED if name != "dicey" else SIMULATED._replace(singles=12)
    proof = crash_everywhere(f"{HERE}/wrong_agents/untrue_declarations.py:{name}", "A", size=size)
    assert sentences(proof) == [sentence], str(proof)


@pytest.mark.parametrize("name", WRONG)
def test_real_processes_alone_find_what_is_wrong(name: str) -> None:
    """Each half of a proof can fail by itself."""
    proof = crash_everywhere(f"{HERE}/wrong_agents/{name}.py:agent", "A B", size=REAL)
    assert WRONG[name] in sentences(proof), str(proof)
    assert proof.findings[0].where.startswith("killed at point ")


ENDLESS = "after a restart the run does not come to an end: "


@pytest.mark.parametrize(
    ("name", "size", "why"),
    [
        ("hanging", SIMULATED, "a process was still running after 0.5 s"),
        ("hanging", REAL, "a process was still running after 0.5 s"),
        ("circling", SIMULATED, "a process had done 5,000 operations, and went on"),
        ("circling", REAL, "a process was still running after 0.5 s"),
        ("asking", SIMULATED, "15 processes in a row have committed no cycle"),
        ("asking", REAL._replace(kills=2), "15 processes in a row have committed no cycle"),
    ],
)
def test_an_agent_that_never_finishes(name: str, size: Size, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told, and the proof comes to an end: what is left of that part is not tried."""
    monkeypatch.setattr(prove, "limit_for", lambda took: 60.0 if "0.5 s" not in why else 0.5)
    monkeypatch.setattr(prove_limits, "MAX_IDLE", 15)
    proof = crash_everywhere(f"{HERE}/wrong_agents/endless.py:{name}", "A", size=size)
    assert ENDLESS + why in sentences(proof), str(proof)
    found = next(finding for finding in proof.findings if finding.culprit == "end")
    assert 1 <= found.cases <= prove.ENOUGH_ENDLESS
    assert not [finding for finding in proof.findings if finding.rule in ("lost", "repeated", "library")]


def test_an_agent_that_does_not_finish_by_itself_is_not_proved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("indelible.testing.prove_killed.UNTOUCHED_S", 0.5)
    agent = tmp_path / "for_ever.py"
    agent.write_text("import indelible as ind\n\nclass N(ind.State):\n    n: int = 0\n\n"
                     "@ind.agent(state=N)\ndef agent(run):\n    run.state.n += 1\n")  # fmt: skip
    code, out, err = command("prove", str(agent), "A")
    assert (code, out) == (2, "")
    assert "does not come to an end without any fault: a process was still running after 0.5 s" in err


def test_many_questions_are_not_taken_for_an_endless_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is taken up often and goes on is no endless one."""
    monkeypatch.setattr(prove_limits, "MAX_IDLE", 5)
    agent = tmp_path / "curious.py"
    agent.write_text("import indelible as ind\n\nclass N(ind.State):\n    n: int = 0\n\n"
                     "@ind.agent(state=N)\ndef agent(run):\n    run.ask(f'{run.state.n}?')\n    run.state.n += 1\n"
                     f"    if run.state.n > {prove_limits.MAX_IDLE}:\n        run.finish()\n")  # fmt: skip
    proof = crash_everywhere(f"{agent}:agent", "A", size=Size(singles=2, doubles=0, kills=2, random=0), world=False)
    assert proof.holds, str(proof)


def test_a_call_made_again_in_one_process_is_lost_work() -> None:
    """As after a roll-back that forgets what was paid for, with no death in between."""
    end = Journal([], None, Record("prove", status="finished"))
    usual = Usual(Case("untouched", [Life(journal=end)]))
    once = Life(began=["ask-1"], journal=end)
    again = Life(began=["ask-1", "ask-1"], again=["ask-1"], journal=end)
    undone = Life(began=["ask-1", "undo:ask-1", "ask-1"], again=["ask-1"], journal=end)
    found = [[fact.sentence for fact in judge(Case("x", [life]), usual)] for life in (once, again, undone)]
    assert found == [[], ["lost: `ask` was called again in the same process that had got its result"], []]


def test_a_file_of_the_agent_makes_a_world_another_one(tmp_path: Path) -> None:
    """A case is cut short where the rest is known; what lies in the agent's folder belongs to it."""
    agent = tmp_path / "locking.py"
    agent.write_text(LOCKING)
    proof = crash_everywhere(f"{agent}:agent", "A", size=SIMULATED._replace(singles=None), world=False)
    assert sentences(proof) == ["after a restart the result differs ('locked' instead of 'done'): something is "
                                "remembered outside State"], str(proof)  # fmt: skip
    assert proof.findings[0].where.startswith("simulated: die"), "found by a failed call alone, which plays on"


LOCKING = """
import os
import indelible as ind

class Nothing(ind.State):
    n: int = 0

@ind.action
def look(at: str) -> str:
    return at

@ind.agent(state=Nothing)
def agent(run: ind.Run[Nothing]) -> None:
    look("before")
    if os.path.exists("lock"):  # left by a process that died
        run.finish("locked")
        return
    open("lock", "w").close()
    look("after")
    os.unlink("lock")
    run.finish("done")
"""


def test_the_report_as_a_table() -> None:
    code, out, _ = command("prove", f"{HERE}/wrong_agents/harmful_repeat.py:agent", "A")
    assert code == 5
    assert WRONG["harmful_repeat"] in out
    for row in ("simulated points", "double deaths", "real kills", "repeated", "lost", "verdict"):
        assert f"\n{row} " in out
    assert "--seed 1" in out.splitlines()[-1]


def test_the_command_that_tries_it_again_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option and the whole objective, quoted for a shell."""
    words = ["--full", "--no-world", "--seed", "3", "--answer", "it's so", "--", "agent.py", f'{"tea " * 30}"$x"']
    proof = Proof("agent.py:agent", words[-1], 3, "full", {}, findings=[prove.Finding("lost", "x", "lost", "here")])
    monkeypatch.setattr("indelible.cli.prove._named", lambda reference: f"{reference}:agent")
    monkeypatch.setattr("indelible.cli.prove.crash_everywhere", lambda *_, **__: proof)
    code, out, _ = command("prove", *words)
    assert code == 5
    assert shlex.split(out.splitlines()[-1]) == ["again:", "indelible", "prove", *words]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((), "no objective"),
        (("nowhere.py:agent", "A"), "there is no file"),
        ((f"{HERE}/wrong_agents/bare_deed.py:desk", "A"), "has no desk"),
        ((f"{HERE}/wrong_agents/bare_deed.py", "A", "--no-world"), "fails without any fault"),
    ],
)
def test_misuse(words: tuple[str, ...], what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INDELIBLE_WORLD", raising=False)
    code, out, err = command("prove", *words)
    assert (code, out) == (2, "")
    assert what in err


def test_the_exit_code_is_documented() -> None:
    code, out, _ = command("prove", "--help")
    assert code == 0
    assert "5 a proof found something" in " ".join(out.split())


def test_an_agent_inside_a_function_is_refused() -> None:
    class Nothing(ind.State):
        n: int = 0

    @ind.agent(state=Nothing)
    def inner(run: ind.Run[Nothing]) -> None:
        run.finish()

    with pytest.raises(Misuse, match="stands in no file"):
        crash_everywhere(inner, "x")


def test_the_same_seed_tries_the_same(tmp_path: Path) -> None:
    """A finding that was reported can be found again; another seed tries other points."""
    agent = f"{HERE / 'wrong_agents' / 'harmful_repeat.py'}:agent"
    size = SIMULATED._replace(singles=12)
    one, two, other = (crash_everywhere(agent, "A B", size=size, seed=seed) for seed in (1, 1, 2))
    assert one.findings == two.findings != []
    assert (one.simulated, one.deeds, one.entries) == (two.simulated, two.deeds, two.entries)
    assert [finding.where for finding in other.findings] != [finding.where for finding in one.findings]


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [("leaving", 5, "done outside an @action"), ("resetting", 5, "`pay` is irreversible, and was done 2 times"),
     ("elsewhere", 0, "note: the agent did nothing in the fake world")],
)  # fmt: skip
def test_an_agent_that_slips_away(name: str, code: int, said: str) -> None:
    """B22: an agent that ends its process ends no proof; a reset that is declared clean is tried; what cannot be seen
    is said. It prints when it is imported, which is no answer of the process that is killed."""
    found, out, err = command("prove", f"{HERE}/wrong_agents/slipping.py:{name}", "A")
    assert (found, said in out) == (code, True), out + err


def test_nothing_that_a_killed_process_had_started_is_left() -> None:
    before = _sleepers()
    crash_everywhere(f"{HERE}/wrong_agents/slipping.py:starting", "A", size=REAL)
    assert _sleepers() <= before


def _sleepers() -> set[str]:
    found = subprocess.run(["pgrep", "-f", "^sleep 86399"], capture_output=True, text=True, check=False)
    return set(found.stdout.split())


def test_what_differs_by_itself_is_said_and_not_judged() -> None:
    proof = crash_everywhere(f"{HERE / 'right_agents' / 'patient.py'}:agent", "A", size=SIMULATED._replace(singles=8))
    assert proof.notes == ["state.at differs between two untouched runs, so it cannot be judged"]


# Faults that are planted into the library: a proof that cannot fail would prove nothing.


def buffered(event: ev.Event, durable: bool = False) -> Append:
    """An append that is never durable for what a call returned."""
    return Append(event, durable and not isinstance(event, ev.ActionCompleted))


def calls_again(effect: Effect, found: Found, probed: Probed, on_doubt: OnDoubt) -> Verdict:
    """The decision table without doubt: what has only an intent is called again."""
    if effect is Effect.IRREVERSIBLE and found is Found.INTENT:
        return Verdict.CALL_SAME_KEY
    return decide(effect, found, probed, on_doubt)


def forgets(effect: Effect, found: Found, probed: Probed, on_doubt: OnDoubt) -> Verdict:
    """The decision table without memory for what was paid for."""
    if effect is Effect.REPEATABLE and found is Found.COMPLETION:
        return Verdict.CALL
    return decide(effect, found, probed, on_doubt)


@pytest.mark.parametrize(
    ("name", "planted", "sentence"),
    [
        ("Append", buffered, "lost: the result of `pay` was given to the agent, and is not in the journal"),
        ("decide", calls_again, "`pay` is irreversible, and was done 2 times"),
        ("decide", forgets, "lost: `price` was called again, though its result was in the journal"),
    ],
)
def test_a_fault_of_the_library_is_found(
    name: str, planted: Any, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perform, name, planted)
    size = SIMULATED._replace(singles=None)
    proof = crash_everywhere(f"{ROOT / 'examples/payments_agent.py'}:agent", "A-1", size=size)
    assert sentence in sentences(proof), str(proof)
    assert proof.lost + proof.repeats > 0


# The pytest side


@pytest.fixture
def project(tmp_path: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """A folder with a test file, in which pytest is run with the plugin and nothing else."""

    def run(test: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_mine.py").write_text(test)
        words = [sys.executable, "-m", "pytest", "-q", "-p", "indelible.testing.pytest_plugin", "-p",
                 "no:cacheprovider", "-W", "error", "test_mine.py"]  # fmt: skip
        source = str(Path(ind.__file__).parents[1])
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": source}
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


USERS_TEST = """
import indelible as ind
from indelible.testing.prove import Size

seen = []

class Plan(ind.State):
    tasks: ind.Queue[str]
    notes: ind.Log[str]

@ind.action
def complete(prompt: str) -> str:
    return f"about {prompt}"

@ind.agent(state=Plan)
def mine(run: ind.Run[Plan]) -> None:
    note = complete(run.state.tasks.take())
    seen.append(note)
    run.state.notes.append(note)
    if not run.state.tasks:
        run.finish(len(RESULT))

@mine.start
def start(run: ind.Run[Plan]) -> None:
    run.state.tasks.extend(run.objective.split())

def test_it(crash_everywhere):
    proof = crash_everywhere(mine, "one two", size=Size(singles=40, doubles=4, kills=6, random=1), world=False)
    assert proof.holds, str(proof)
"""


def test_the_fixture(project: Callable[[str], subprocess.CompletedProcess[str]]) -> None:
    """A user's test passes for a right agent; for a wrong one it fails, and shows the sentence."""
    right = project(USERS_TEST.replace("RESULT", "run.state.notes"))
    assert (right.returncode, "1 passed" in right.stdout) == (0, True), right.stdout
    wrong = project(USERS_TEST.replace("RESULT", "seen"))
    assert (wrong.returncode, "1 failed" in wrong.stdout) == (1, True), wrong.stdout
    assert "after a restart the result differs (1 instead of 2): something is remembered outside State" in wrong.stdout


def test_pytest_finds_the_plugin_by_itself() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    assert declared["pytest11"] == {"indelible": "indelible.testing.pytest_plugin"}


def test_the_name_for_tests_without_the_fixture() -> None:
    from indelible import testing

    assert testing.crash_everywhere is crash_everywhere
    with pytest.raises(AttributeError, match="crash_nowhere"):
        _ = testing.crash_nowhere


def test_the_page_says_what_the_report_says() -> None:
    page = (ROOT / "docs" / "proof.md").read_text(encoding="utf-8")
    assert [sentence for sentence in WRONG.values() if sentence not in page] == []
    assert ENDLESS in page


def test_the_plugin_loads_nothing_until_it_is_used() -> None:
    code = "import sys, indelible.testing.pytest_plugin; sys.exit('indelible.testing.prove' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_untouched_run_of_a_slow_agent_is_told_as_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody should wait for ten minutes without a word."""
    monkeypatch.setattr("indelible.testing.prove_killed.BETWEEN_LOOKS_S", 0.0)
    told: list[tuple[str, int, int]] = []
    size = Size(singles=1, doubles=0, kills=0, random=0)
    proof = crash_everywhere(
        str(HERE / "right_agents/sockets.py") + ":agent", "A-1 A-2", size=size,
        progress=lambda *words: told.append(words),
    )  # fmt: skip
    assert proof.holds, str(proof)
    untouched = [(done, of) for part, done, of in told if part == prove.UNTOUCHED]
    assert untouched[0] == (0, 0)
    assert max(done for done, _ in untouched) >= 1
    assert told[-1][0] == "simulated"


@pytest.mark.parametrize(
    ("mode", "tried", "verdict"),
    [
        ("quick", 3, "holds (3 of 365 simulated points: --full tries all)"),
        ("quick", 37, "holds"),
        ("full", 3, "holds"),
    ],
)
def test_a_verdict_from_few_points_says_so(mode: str, tried: int, verdict: str) -> None:
    proof = Proof("agent.py:agent", "A", 1, mode, {}, simulated=tried, simulated_of=365)
    assert dict(proof.rows())["verdict"] == verdict
    assert proof.to_json()["verdict"] == "holds"


def test_without_a_terminal_the_cycles_of_the_untouched_run_are_a_line() -> None:
    from indelible.cli.prove import _progress

    with redirect_stderr(StringIO()) as err, _progress() as progress:
        progress(prove.UNTOUCHED, 1, 0)
        progress("simulated", 1, 7)
    assert err.getvalue() == "untouched run: 1 cycle so far\nsimulated: 1 of 7\n"
