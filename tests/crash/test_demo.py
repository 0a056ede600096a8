"""The demonstration demonstrates: its table holds, and each of its lines can fail."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from indelible.agents.corpus import Corpus
from indelible.cli import demo, main
from indelible.cli.demo_durable import Durable, told
from indelible.cli.demo_evidence import Result
from indelible.cli.demo_killing import BETWEEN, HELD, IN_CALL, Moment, Runner, choose
from indelible.cli.demo_naive import load
from indelible.cli.demo_process import DemoFailed
from indelible.cli.demo_room import Room, read_calls
from indelible.core.codec import unpack
from indelible.errors import JournalDamaged
from tests.crash.demo_children import FAULT
from tests.tidy.tree import ROOT

OBJECTIVE = "How do tides and currents move the harbour's water?"
WORDS = ["tide", "current", "harbour", "water", "moon", "wave", "shore", "ship", "anchor", "storm", "river", "channel"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few pages, so that a process is quick to start."""
    folder = tmp_path_factory.mktemp("corpus")
    for at, word in enumerate(WORDS):
        near = [WORDS[(at + step) % len(WORDS)] for step in (1, 2, 3, 5)]
        lines = [f"The {word} of the harbour moves with the {other} when the water is high." for other in near]
        lines += [f"Nobody knows which {word} and {other} the currents bring to the open shore." for other in near]
        (folder / f"{word}.txt").write_text("\n\n".join(lines))
    return folder


@pytest.fixture(autouse=True)
def children(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes find the tests, and warnings are errors in them, too."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
    monkeypatch.setenv("PYTHONWARNINGS", "error")


def settings(corpus: Path, **changed: object) -> demo.Settings:
    whole = demo.Settings(OBJECTIVE, kills=4, model="scripted", corpus=str(corpus))
    return replace(whole, **changed)  # type: ignore[arg-type]


def demonstrate(wanted: demo.Settings, folder: Path) -> Result:
    return demo.demonstrate(wanted, folder, lambda _: None, lambda _: None)


def broken(result: Result) -> set[str]:
    return {line.what.strip() for line in result.lines if line.ok is False}


@pytest.mark.parametrize("seed", [1, 2])
def test_every_line_holds(seed: int, corpus: Path, tmp_path: Path) -> None:
    """B01, B02: killed in a model call, between two, and behind the delivery; the report is the same, sent once."""
    result = demonstrate(settings(corpus, seed=seed), tmp_path)
    assert broken(result) == set()
    assert [kill.where for kill in result.course.kills].count(HELD) == 1
    assert len(result.course.kills) == 4
    assert result.course.processes == 5


def test_a_checkpoint_breaks_what_the_journal_keeps(kept: Result, corpus: Path, tmp_path: Path) -> None:
    """B01: the same kills; without them the naive agent does the same as the researcher, from the same calls."""
    result = demonstrate(settings(corpus, seed=2, naive=True, kills=6), tmp_path)
    assert broken(result) == {"deliveries in the Maildir", "repeated though answered"}
    state = load(result.reference.room)
    assert state is not None
    assert state["report"] == unpack(told(kept.reference.room).record.result)
    assert len(result.reference.calls) == len(kept.reference.calls)


@pytest.fixture(scope="module")
def kept(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A demonstration whose evidence is tampered with, in copies."""
    return demonstrate(settings(corpus, seed=5), tmp_path_factory.mktemp("kept"))


def _lose_mail(room: Room) -> None:
    room.mails()[0].unlink()


def _add_mail(room: Room) -> None:
    mail = room.mails()[0]
    shutil.copy(mail, mail.with_name("another"))


def _change_mail(room: Room) -> None:
    mail = room.mails()[0]
    mail.write_bytes(mail.read_bytes().replace(b"quotes from", b"quotes, or so, from"))


def _other_mail(room: Room) -> None:
    mail = room.mails()[0]
    mail.write_bytes(mail.read_bytes().replace(b"Message-ID: <", b"Message-ID: <0"))


def _pay_again(room: Room) -> None:
    first, last = (json.loads(room.calls.read_text().splitlines()[at]) for at in (0, -1))
    with room.calls.open("a") as file:
        file.write(json.dumps([last[0], first[1], "began", 0.0]) + "\n")


def _lose_calls(room: Room) -> None:
    room.calls.write_text("\n".join(room.calls.read_text().splitlines()[:-2]) + "\n")


@pytest.mark.parametrize(
    ("tamper", "failing"),
    [
        (_lose_mail, {"deliveries in the Maildir", "with its Message-ID",
                      "mails with the run's report"}),
        (_add_mail, {"deliveries in the Maildir", "with its Message-ID"}),
        (_change_mail, {"mails with the run's report"}),
        (_other_mail, {"with its Message-ID"}),
        (_pay_again, {"model calls made", "repeated though durable"}),
        (_lose_calls, {"model calls made"}),
    ],
)  # fmt: skip
def test_the_evidence_can_fail(
    tamper: Callable[[Room], None], failing: set[str], kept: Result, corpus: Path, tmp_path: Path
) -> None:
    room = Room(tmp_path / "killed")
    shutil.copytree(kept.course.room.path, room.path)
    # The state names the Maildir it was made with; as for the two runs of a demonstration, that is no difference.
    assert broken(again(kept, room, corpus)) <= {"final state and report"}
    tamper(room)
    assert broken(again(kept, room, corpus)) - {"final state and report"} == failing


def again(kept: Result, room: Room, corpus: Path) -> Result:
    course = replace(kept.course, room=room, calls=read_calls(room))
    return Result(Durable().evidence(course, kept.reference, 4, Corpus.folder(corpus), True), course, kept.reference)


def test_kills_that_were_not_made_are_missed(kept: Result, corpus: Path) -> None:
    assert kept.ok
    course = replace(kept.course, kills=kept.course.kills[:-1])
    lines = Durable().evidence(course, kept.reference, 4, Corpus.folder(corpus), True)
    assert {"killed with SIGKILL", "delivered, not recorded"} <= broken(Result(lines, course, kept.reference))


@pytest.mark.parametrize(
    ("fault", "failing"),
    [
        ("probe", {"deliveries in the Maildir", "it found the mail"}),
        ("twice", {"repeated though durable"}),
        ("moody", {"final state and report"}),
    ],
)
def test_an_agent_that_breaks_a_promise_is_found_out(
    fault: str, failing: set[str], corpus: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv(FAULT, fault)
    wanted = settings(corpus, kills=2, module="tests.crash.demo_children")
    assert demo.show(wanted, tmp_path / "kept", as_json=True) == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["ok"]
    assert failing <= {line["what"].strip() for line in told["lines"] if line["ok"] is False}


def test_the_moments_come_from_the_seed() -> None:
    for seed in range(200):
        kills = 1 + seed % 12
        moments = choose(seed, kills, 6)
        assert moments == choose(seed, kills, 6)
        assert len(moments) == kills
        assert [moment.where for moment in moments].count(HELD) == 1
        assert moments[-1].where == HELD
        numbers = [moment.call for moment in moments[:-1]]
        assert numbers == sorted(numbers)
        assert set(numbers) <= set(range(1, 7))
        for one, other in pairwise(moments):
            assert one.where == IN_CALL or one.call != other.call
    assert {moment.where for seed in range(20) for moment in choose(seed, 5, 18)} == {IN_CALL, BETWEEN, HELD}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopping_the_demo_leaves_nothing_running(number: int, code: int, tmp_path: Path) -> None:
    """The process that is to be killed does not outlive the one that would kill it."""
    folder = tmp_path / "kept"
    words = [sys.executable, "-m", "indelible", "demo", "--model", "scripted", "--keep", str(folder)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stderr is not None
        for line in parent.stderr:
            if line.startswith("kill 1"):
                parent.send_signal(number)
                break
        err = parent.stderr.read()
    assert parent.returncode == code
    assert "nothing is left running" in err
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(folder) not in running


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "nonsense"], "names no model"),
        (["--model", "scripted", "qqqq zzzz"], "has a word in common"),
        (["--model", "scripted", " "], "the objective is empty"),
        (["--model", "scripted", "--keep", str(ROOT)], "not empty"),
        (["--model", "scripted", "--kills", "0"], "--kills"),
    ],
)
def test_bad_input_is_told_at_once(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["demo", *words]) == 2
    assert said in capsys.readouterr().err


def test_weights_that_are_missing_are_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main.main(["demo", "--model", "local"]) == 1
    assert "indelible model fetch" in capsys.readouterr().err


def test_a_process_that_ends_in_an_error_ends_the_demo(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(DemoFailed, match="code 1"):
        demonstrate(settings(corpus, module="indelible.no_such_module", kills=1), tmp_path)


def test_a_kill_before_the_delivery_is_told_from_one_behind_it(kept: Result, corpus: Path, tmp_path: Path) -> None:
    """B01: both leave the deed in doubt. The probe finds nothing, then the mail; there is one in the end."""
    room = Room(tmp_path)
    given = {"objective": OBJECTIVE, "model": "scripted", "corpus": str(corpus)}
    # A call that is never made: the process comes as far as the delivery, and is killed there.
    moments = [Moment(BETWEEN, call=99, events=1), Moment(HELD)]
    course = Runner(Durable(), room, given, lambda _: None, lambda _: None).run(moments, [0.0])
    lines = Durable().evidence(course, kept.reference, 2, Corpus.folder(corpus), True)
    assert broken(Result(lines, course, kept.reference)) == set()
    assert [(kill.where, kill.standing.unrecorded, kill.mails) for kill in course.kills] == [
        (BETWEEN, True, 0),
        (HELD, True, 1),
    ]
    assert {line.what: line.found for line in lines}["doubts settled by probe"] == "2"


def test_damage_in_the_journal_is_not_passed_over(kept: Result, corpus: Path, tmp_path: Path) -> None:
    room = Room(tmp_path / "killed")
    shutil.copytree(kept.course.room.path, room.path)
    connection = apsw.Connection(room.store)
    at, data = next(connection.execute("select at, data from batches order by at limit 1 offset 9"))
    half = len(data) // 2
    connection.execute("update batches set data = ? where at = ?", (data[:half] + b"\0\0" + data[half + 2 :], at))
    connection.close()
    with pytest.raises(JournalDamaged):
        again(kept, room, corpus)
