"""`indelible export`, `import` and `archive`, as they are typed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit import cli_stage
from tests.unit.cli_stage import Stage

stage = cli_stage.stage
AGENT = "agent.py:worker"


@pytest.fixture
def run(stage: Stage) -> Stage:
    """A finished run."""
    assert stage("run", AGENT, "a b", "--run-id", "r").code == 0
    return stage


def test_a_run_goes_into_one_file_and_out_of_it(run: Stage) -> None:
    """B109: 0600. Nothing stands beside the file."""
    done = run("export", "r", "-o", "r.indelible", "--json")
    assert (done.code, done.json["became"]) == (0, "copied")
    assert sorted(name for name in os.listdir() if name.startswith("r.")) == ["r.indelible"]
    assert os.stat("r.indelible").st_mode & 0o777 == 0o600
    assert run("export", "r", "-o", "r.indelible").out.startswith("r: already there")
    assert run("import", "r.indelible", "--store", "other.db").code == 0
    here, there = (run("log", "r", "--store", store, "--json").json for store in ("agent.db", "other.db"))
    assert here == there
    assert run("verify", "r", "--store", "other.db").code == 0


def test_a_file_is_never_written_over(run: Stage) -> None:
    assert run("run", AGENT, "c", "--run-id", "s").code == 0
    assert run("export", "r", "-o", "r.indelible").code == 0
    before = Path("r.indelible").read_bytes()
    refused = run("export", "s", "-o", "r.indelible")
    assert refused.code == 2
    assert "holds something else" in refused.err
    Path("notes.txt").write_text("mine")
    assert run("export", "s", "-o", "notes.txt").code != 0
    assert (Path("notes.txt").read_text(), Path("r.indelible").read_bytes()) == ("mine", before)


def test_a_run_that_has_not_ended_is_in_one_place(stage: Stage) -> None:
    assert stage("submit", AGENT, "a b", "--run-id", "r").code == 0
    refused = stage("export", "r", "-o", "r.indelible")
    assert refused.code == 2
    assert "--move" in refused.err
    assert not os.path.exists("r.indelible")
    assert stage("export", "r", "-o", "r.indelible", "--move").code == 0
    gone = stage("resume", "r", AGENT)
    assert gone.code != 0
    assert "was moved to" in gone.err
    assert stage("import", "r.indelible", "--store", "other.db").code == 0
    assert stage("resume", "r", AGENT, "--store", "other.db").code == 0
    assert stage("resume", "r", AGENT, "--store", "r.indelible").code != 0


def test_a_damaged_file_is_refused_or_whole(run: Stage) -> None:
    """B89 B121: cut off or flipped anywhere, what is imported is what was exported, or nothing is."""
    assert run("export", "r", "-o", "r.indelible").code == 0
    whole = Path("r.indelible").read_bytes()
    expected = run("log", "r", "--json").json
    refused = 0
    for at in range(17, len(whole), len(whole) // 60):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :]):
            Path("bad.indelible").write_bytes(damaged)
            done = run("import", "bad.indelible", "--store", f"try-{at}-{len(damaged)}.db")
            if done.code != 0:
                assert "Traceback" not in done.err
                refused += 1
            else:
                assert run("log", "r", "--store", f"try-{at}-{len(damaged)}.db", "--json").json == expected
    assert refused > 30


def test_what_was_archived_is_read_from_there(run: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("submit", AGENT, "c", "--run-id", "going").code == 0
    shown = run("archive", "--to", f"file://{run.folder}/archive", "--older-than", "0s")
    assert shown.code == 0
    assert "nothing was changed; to do it: indelible archive" in shown.out
    assert run("show", "r").code == 0
    done = run("archive", "--to", f"file://{run.folder}/archive", "--older-than", "0s", "--yes", "--json")
    assert (done.code, done.json["archived"], done.json["failed"]) == (0, 1, [])
    assert [entry["run"] for entry in run("ls", "--json").json] == ["going"]
    assert run("show", "r").code != 0
    monkeypatch.setenv("INDELIBLE_ARCHIVE", f"file://{run.folder}/archive")
    for command in ("show", "log", "effects", "bill", "verify"):
        read = run(command, "r")
        assert read.code == 0, (command, read.err)
        assert "is read from the archive" in read.err
    assert run("show", "nobody").code != 0
    again = run("archive", "--to", f"file://{run.folder}/archive", "--older-than", "0s", "--yes", "--json")
    assert again.json["archived"] == 0


def test_a_run_that_cannot_be_brought_is_not_deleted(run: Stage) -> None:
    """B70: the other store has had a run of that id, and deleted it."""
    assert run("copy", "agent.db", "b.db").code == 0
    assert run("delete", "r", "--store", "b.db", "--yes").code == 0
    done = run("archive", "--to", "b.db", "--run", "r", "--yes")
    assert done.code == 1
    assert "was deleted from" in done.out
    assert run("verify", "r").code == 0
    assert run("archive", "--to", "b.db").code == 2
