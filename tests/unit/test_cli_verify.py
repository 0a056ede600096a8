"""`indelible verify` finds what was damaged, and says where; the other readers go on as far as they can."""

from __future__ import annotations

import pytest

import apsw  # isort: skip
from indelible.core import snapshots
from indelible.runtime.runstore import open_runs
from tests.unit import cli_stage
from tests.unit.cli_stage import Stage

stage = cli_stage.stage
AGENT = "agent.py:worker"
TASKS = "a b c d e f"


def alter(statement: str, *values: object) -> None:
    """Change the store behind everybody's back."""
    con = apsw.Connection("agent.db")
    con.execute(statement, values)
    assert con.changes() == 1
    con.close()


def batches() -> list[tuple[int, int, bytes]]:
    """What is stored, in order."""
    con = apsw.Connection("agent.db")
    rows = list(con.execute("SELECT after_seq, last_seq, data FROM batches ORDER BY last_seq"))
    con.close()
    return rows


@pytest.fixture
def run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A finished run with two snapshots."""
    monkeypatch.setattr(snapshots, "FIRST_AFTER_BYTES", 1)
    monkeypatch.setattr(snapshots, "GROWTH", 0.0)
    assert stage("run", AGENT, TASKS, "--run-id", "r").code == 0
    return stage


def test_a_sound_run_verifies_from_its_first_event_and_by_each_snapshot(run: Stage) -> None:
    (report,) = run("verify", "--all", "--json").json
    stored = batches()
    assert report["ok"]
    assert report["events"] == stored[-1][1]
    assert report["batches"] == len(stored)
    assert report["stored_bytes"] == sum(len(data) for _, _, data in stored)
    assert len(report["snapshots"]) == 2
    assert "ok     r:" in run("verify", "r").out


@pytest.mark.parametrize("at", [0, 3, 10, 17, 18, -1])
def test_every_flipped_byte_in_the_middle_is_found_at_its_place(run: Stage, at: int) -> None:
    after, last, data = batches()[3]
    flipped = bytearray(data)
    flipped[at] ^= 0x10
    alter("UPDATE batches SET data = ? WHERE last_seq = ?", bytes(flipped), last)
    found = run("verify", "r", "--json")
    assert found.code == 1
    (report,) = found.json
    assert report["faults"][0].startswith(f"after event {after}: ")
    assert report["events"] == after
    assert any("is readable and lies behind the damage" in fault for fault in report["faults"])
    assert [event["seq"] for event in run("log", "r", "--json").json] == list(range(1, after + 1))
    told = run("log", "r")
    assert (told.code, at == 0 or "try: indelible verify r" in told.err) == (1, True)
    for words in ("ls", "show r", "inbox"):
        assert run(*words.split()).code == 0, "a snapshot behind the damage carries it"


def test_a_batch_that_is_missing_is_found(run: Stage) -> None:
    after, last, _ = batches()[2]
    alter("DELETE FROM batches WHERE last_seq = ?", last)
    (report,) = run("verify", "r", "--json").json
    assert report["faults"][0].startswith(f"after event {after}: ")


def test_a_torn_tail_is_told_apart_from_damage(stage: Stage) -> None:
    """B29: the last batch is cut off with a notice at the next resume, and kept aside."""
    stage("run", AGENT, "a ask", "--run-id", "r")
    after, last, data = batches()[-1]
    alter("UPDATE batches SET data = ? WHERE last_seq = ?", data[:-3], last)
    torn = stage("verify", "r")
    assert torn.code == 0
    assert f"torn tail after event {after}:" in torn.out
    assert f"up to event {last}, does not verify; a resume cuts it off" in stage("log", "r").err
    for words in ("ls", "show r", "effects r", "inbox"):
        assert stage(*words.split()).code == 0
    resumed = stage("resume", "r", AGENT)
    assert resumed.code == 3
    assert "it is cut off and kept aside" in resumed.err
    (report,) = stage("verify", "r", "--json").json
    assert (report["ok"], report["torn"], report["kept_aside"]) == (True, "", 1)


def test_a_snapshot_that_does_not_verify_is_found(run: Stage) -> None:
    seq = run("verify", "r", "--json").json[0]["snapshots"][0]
    alter("UPDATE snapshots SET data = substr(data, 1, 40) WHERE seq = ?", seq)
    found = run("verify", "r")
    assert found.code == 1
    assert f"the snapshot at event {seq} does not verify; a resume passes it over" in found.out
    assert run("show", "r").code == 0


def test_a_snapshot_that_verifies_but_lies_is_found(run: Stage) -> None:
    seq = run("verify", "r", "--json").json[0]["snapshots"][0]
    con = apsw.Connection("agent.db")
    data = con.execute("SELECT data FROM snapshots WHERE seq = ?", (seq,)).get
    con.close()
    record = snapshots.decode(data, "r", seq)
    record.usage.usd += 1
    alter("UPDATE snapshots SET data = ? WHERE seq = ?", snapshots.encode(record), seq)
    found = run("verify", "r")
    assert found.code == 1
    assert f"at event {seq}: the snapshot at event {seq} differs from the fold of the journal" in found.out


def test_a_damaged_inbox_is_found(stage: Stage) -> None:
    """B89: the last message is cut off with a notice; damage before it is a fault."""
    stage("run", AGENT, "ask", "--run-id", "r")
    stage("answer", "r", "Acme")
    alter("UPDATE batches SET data = substr(data, 1, 20) WHERE no = (SELECT no FROM runs WHERE run_id = 'r/inbox')")
    found = stage("verify", "r")
    assert (found.code, "must be said again" in found.out) == (0, True)
    assert "must be said again" in stage("resume", "r", AGENT).err
    assert stage("answer", "r", "Acme").code == 0
    assert stage("resume", "r", AGENT).code == 0


def test_a_damaged_inbox_behind_which_more_was_said_is_a_fault(stage: Stage) -> None:
    stage("run", AGENT, "ask", "--run-id", "r")
    with open_runs("agent.db") as runs:
        for _ in range(2):
            runs.answer("r", "Acme")
    alter("UPDATE batches SET data = substr(data, 1, 20) WHERE last_seq = 1 AND no = "
          "(SELECT no FROM runs WHERE run_id = 'r/inbox')")  # fmt: skip
    found = stage("verify", "r")
    assert found.code == 1
    assert "inbox: run 'r/inbox': the batch of events 1 to 1" in found.out
    listed = stage("inbox")
    assert (listed.code, "indelible verify r" in listed.err) == (1, True)
    assert stage("ls").code == 0


def test_one_faulty_run_does_not_hide_the_others(run: Stage) -> None:
    last = batches()[1][1]
    run("run", AGENT, "a", "--run-id", "s")
    alter("UPDATE batches SET data = x'00' WHERE last_seq = ? AND no = (SELECT no FROM runs WHERE run_id = 'r')", last)
    found = run("verify", "--all")
    assert found.code == 1
    assert "FAULTY r" in found.out
    assert "ok     s" in found.out
    assert "2 runs, 1 with faults" in found.out
