"""`indelible bill` on runs and traces: what it tells, and what it refuses.

Invariant: what is not known is told, and no figure stands in for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from indelible.cli import bill_economics
from indelible.cli.main import main
from tests.unit import cli_stage
from tests.unit.bill.made_traces import DUMPS, HELLO, write
from tests.unit.cli_stage import Result, Stage

stage = cli_stage.stage
AGENT = "agent.py:worker"


@pytest.fixture
def hello(stage: Stage) -> Stage:
    """A stage with a trace of three loops, which cost $0.25, $0.50 and $0."""
    write(stage.folder / "demo__hello.jsonl", HELLO)
    return stage


@pytest.fixture
def run(stage: Stage) -> Stage:
    """A run of three cycles: two paid answers of $0.01, and a mail."""
    assert stage("run", AGENT, "tea send milk", "--run-id", "r").code == 0
    return stage


def row(text: str, name: str) -> list[str]:
    """The cells of the first line that begins with a name."""
    line = next(line for line in text.split("\n") if line.startswith(name + "  "))
    return re.split(r" {2,}", line.strip())


def refused(found: Result) -> str:
    assert (found.code, found.out) == (2, "")
    assert "\n  try: " in found.err, "an error says what to do"
    return found.err


def test_a_trace_is_told_as_tables(hello: Stage) -> None:
    found = hello("bill", "--trace", "demo__hello.jsonl", "--storage", "s3-standard", "--runs-per-day", "1000")
    assert found.code == 0
    assert found.out.startswith("demo__hello: 1 run, 3 loops; ")
    # three dumps of which the last one stays
    assert row(found.out, "full JSON")[1:3] == ["3", str(sum(DUMPS))]
    # 30,000 × 3 PUTs are 90 thousand × $0.005, and next to nothing for the bytes
    assert "full JSON                $0.4500\n" in found.out
    assert "s3-standard with 10 crashes a month (assumed)" in found.out
    # the loop under way: (0.25 + 0.50 + 0) / 3
    crash = found.out[found.out.index("one crash") :]
    assert row(crash, "full JSON")[1:] == ["1", "$0.2500", "unknown", "100%", "$5.00", "$5.25", "no"]
    assert row(crash, "journal, batched (ours)")[3:] == ["unknown", "33%", "$1.67", "$1.92", "yes"]
    assert "<- cheapest safe" in found.out
    assert "notice: how long 3 of 3 loops took was not recorded" in found.out


def test_a_run_is_metered_first(run: Stage) -> None:
    found = run("bill", "r", "--storage", "local-disk")
    assert found.code == 0, found.err
    lines = found.out.split("\n")
    assert lines[0].startswith("run r of agent worker: 3 cycles committed, ")
    assert "  calls           3 made, 0 answered from the journal" in lines
    assert "  tokens          6 in, 10 out" in lines
    assert "  money           $0.0200" in lines
    assert re.search(r"on the disk     [\d,]+ bytes and \d+ fsyncs in ", found.out)
    assert row(found.out, "complete")[1:4] == ["repeatable", "2", "0"]
    assert row(found.out, "send")[1:3] == ["irreversible", "1"]
    assert row(found.out, "notes")[1] == "log"


def test_the_json_of_a_run_agrees_with_its_tables_and_with_verify(run: Stage) -> None:
    data = run("bill", "r", "--json").json
    (report,) = run("verify", "r", "--json").json
    assert data["meter"]["stored_bytes"] == report["stored_bytes"]
    assert data["meter"]["calls"]["usd"] == pytest.approx(0.02)
    assert data["physical"]["syncs"] > 0
    ours = next(each for each in data["strategies"] if each["strategy"] == "journal, batched (ours)")
    assert ours["written_bytes"] == report["stored_bytes"] + data["meter"]["snapshot_bytes"]
    assert {storage["name"] for storage in data["storages"]} >= {"local-disk", "s3-standard", "cloudwatch-logs"}
    # the mail is a deed in one of three loops
    assert data["crash"]["journal, batched (ours)"]["share_that_asks_a_person"] == pytest.approx(1 / 3)


def test_all_runs_are_one_bill(run: Stage) -> None:
    assert run("run", AGENT, "a b", "--run-id", "s").code == 0
    found = run("bill", "--all", "--storage", "s3-standard")
    assert found.code == 0, found.err
    assert found.out.startswith("2 runs: 5 cycles committed")
    assert "bytes by kind" in found.out
    kinds = run("bill", "--all", "--storage", "efs", "--json").json["kinds"]
    assert (kinds["worker"]["runs"], kinds["worker"]["loops"]) == (2, 5)
    dumps = kinds["worker"]["written"]["full JSON"]
    assert row(found.out[found.out.index("bytes by kind") :], "full JSON")[1] == f"{dumps:,}"
    assert row(found.out, "runs")[1:] == ["2"]
    assert row(found.out, "loops")[1:] == ["5"]
    assert "worker.complete" in found.out


def test_billing_changes_nothing(run: Stage) -> None:
    before = run("log", "r", "--json").out
    entry = run("ls", "--json").out
    assert run("bill", "r").code == 0
    assert (run("log", "r", "--json").out, run("ls", "--json").out) == (before, entry)


def test_a_resumed_run_costs_what_it_has_cost(stage: Stage) -> None:
    """B113, B114: what was answered from the journal counts as saved, and not again."""
    died = stage.apart("run", AGENT, "tea", "--run-id", "r", DIE_AT="commit")
    assert died.code == 9
    assert stage("resume", "r", AGENT).code == 0
    data = stage("bill", "r", "--json").json
    assert data["meter"]["calls"]["calls"] == 1
    assert data["meter"]["calls"]["usd"] == pytest.approx(0.01)
    assert (data["meter"]["calls"]["recalled"], data["meter"]["calls"]["saved_usd"]) == (1, pytest.approx(0.01))
    assert "saved           $0.0100, 8 tokens and " in stage("bill", "r", "--storage", "efs").out


def test_a_folder_of_traces_has_a_column_for_each_kind(hello: Stage) -> None:
    write(hello.folder / "other__x.jsonl", HELLO[:1])
    found = hello("bill", "--traces", ".", "--storage", "efs")
    assert found.code == 0, found.err
    assert found.out.startswith("traces: 2 runs, 4 loops")
    table = found.out[found.out.index("bytes by kind") :]
    assert row(table, "STRATEGY")[1:] == ["DEMO", "OTHER"]
    assert row(table, "full JSON")[1:] == [str(sum(DUMPS)), str(len('{"memory":["ab"]}'))]


def test_every_formula_is_explained(hello: Stage) -> None:
    found = hello("bill", "--trace", "demo__hello.jsonl", "--storage", "s3-standard", "--explain")
    assert "write requests: 100 runs a day × 30 days × 3 writes = 9 thousand requests × $0.0050 = $0.0450" in found.out
    assert "a month with 10 crashes, on s3-standard" in found.out


def test_ways_to_compress_are_compared(hello: Stage) -> None:
    assert "zstd, one stream" in hello("bill", "--trace", "demo__hello.jsonl", "--compression").out
    rows = hello("bill", "--trace", "demo__hello.jsonl", "--compression", "--json").json["compression"]
    assert rows[0]["name"] == "plain"
    assert rows[0]["stored_bytes"] > 0


@pytest.mark.parametrize("name", ["logs", "snapshots", "developer"])
def test_each_claim_says_when_it_is_true(hello: Stage, name: str) -> None:
    found = hello("bill", "--trace", "demo__hello.jsonl", "--claim", name)
    assert found.code == 0
    assert found.out.startswith('"')
    assert "true" in found.out
    data = hello("bill", "--trace", "demo__hello.jsonl", "--claim", name, "--json").json
    assert data["name"] == name
    assert data["assumed"]["runs_per_day"] == 100
    if name == "snapshots":
        assert {fact["storage"] for fact in data["facts"]} == {"s3-standard", "s3-standard-ia", "s3-express"}


def test_large_numbers_are_told_in_full(hello: Stage) -> None:
    found = hello("bill", "--trace", "demo__hello.jsonl", "--storage", "efs", "--runs-per-day", "1234567", "--explain")
    assert "a month at 1,234,567 runs a day kept 30 days" in found.out
    assert "bytes written: 1,234,567 runs a day × 30 days × " in found.out
    assert not re.search(r"\de[+-]\d", found.out)


def test_pictures_need_matplotlib(hello: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install 'indelible[plot]'" in refused(hello("bill", "--trace", "demo__hello.jsonl", "--plot", "out"))


def test_pictures_are_drawn(hello: Stage) -> None:
    found = hello("bill", "--trace", "demo__hello.jsonl", "--plot", "out", "--storage", "efs,s3-standard")
    assert found.code == 0
    assert sorted(path.name for path in (hello.folder / "out").iterdir()) == [
        "bytes.png", "month-efs.png", "month-s3-standard.png", "storage.png",
    ]  # fmt: skip
    assert "drawn: out/bytes.png" in found.out


def test_a_broken_line_is_named_and_the_rest_is_used(hello: Stage) -> None:
    write(hello.folder / "torn__t.jsonl", [HELLO[0], b'{"step": 1, "lo', HELLO[2]])
    found = hello("bill", "--trace", "torn__t.jsonl")
    assert found.code == 0
    assert found.out.startswith("torn__t: 1 run, 2 loops")
    assert "notice: torn__t.jsonl:2: this is no JSON; the line is passed over" in found.out


def test_unknown_prices_are_unknown(hello: Stage) -> None:
    lines: list[Any] = [{key: value for key, value in line.items() if key != "cost"} for line in HELLO]
    write(hello.folder / "free__t.jsonl", lines)
    found = hello("bill", "--trace", "free__t.jsonl", "--storage", "s3-standard")
    assert found.code == 0
    crash = found.out[found.out.index("one crash") :]
    assert row(crash, "full JSON")[2:6] == ["unknown", "unknown", "100%", "$5.00"]
    assert row(crash, "full JSON")[6] == "$5.00 + unknown"
    assert "notice: the money of 3 of 3 loops is not known" in found.out
    data = hello("bill", "--trace", "free__t.jsonl", "--json").json
    assert data["crash"]["full JSON"]["paid_again_usd"] is None


def test_a_run_without_usage_says_so(stage: Stage) -> None:
    source = (stage.folder / "agent.py").read_text(encoding="utf-8")
    (stage.folder / "agent.py").write_text(re.sub(r"    ind\.usage\(.*\n", "", source), encoding="utf-8")
    assert stage("run", AGENT, "tea", "--run-id", "r").code == 0
    found = stage("bill", "r")
    assert found.code == 0
    assert "  money           none reported" in found.out
    assert "reported what it used" in found.out
    assert "unknown" in row(found.out[found.out.index("one crash") :], "full JSON")


@pytest.mark.parametrize("cost", ["-1", "NaN", "Infinity", '"2"'])
def test_a_cost_that_cannot_be_is_refused_with_its_place(hello: Stage, cost: str) -> None:
    line = json.dumps(HELLO[0]).replace("0.25", cost).encode()
    write(hello.folder / "bad__t.jsonl", [HELLO[1], line])
    assert "bad__t.jsonl:2: `cost` is " in refused(hello("bill", "--trace", "bad__t.jsonl"))


def test_mixed_currencies_are_refused(hello: Stage) -> None:
    write(hello.folder / "bad__t.jsonl", [HELLO[0], {**HELLO[2], "currency": "EUR"}])
    assert "a cost in 'EUR'" in refused(hello("bill", "--trace", "bad__t.jsonl"))
    (hello.folder / "p.toml").write_text('[efs.write_gb]\nvalue = 1\ncurrency = "EUR"\n', encoding="utf-8")
    said = refused(hello("bill", "--trace", "demo__hello.jsonl", "--prices", "p.toml"))
    assert "'EUR', and costs are told in USD: the rate is missing" in said


def test_own_prices_are_laid_over(hello: Stage) -> None:
    (hello.folder / "p.toml").write_text("[s3-standard]\nwrite_request = 10\n", encoding="utf-8")
    found = hello("bill", "--trace", "demo__hello.jsonl", "--prices", "p.toml", "--storage", "s3-standard")
    # 3,000 × 3 PUTs are 9 thousand × $10
    assert "full JSON                $90.00\n" in found.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "say what is to be billed"),
        (["r", "--all"], "say what is to be billed"),
        (["--trace", "demo__hello.jsonl", "--traces", "."], "say what is to be billed"),
        (["--trace", "demo__hello.jsonl", "--storage", "moon"], "no prices for storage 'moon'"),
        (["--trace", "demo__hello.jsonl", "--storage", ","], "--storage names no storage"),
        (["--trace", "demo__hello.jsonl", "--claim", "logs", "--plot", "out"], "a claim is told without --plot"),
        (["--trace", "demo__hello.jsonl", "--prices", "none.toml"], "cannot be read"),
        (["--trace", "demo__hello.jsonl", "--claim", "moon"], "there is no claim 'moon'"),
        (["--trace", "demo__hello.jsonl", "--runs-per-day", "nan"], "--runs-per-day is nan"),
        (["--trace", "demo__hello.jsonl", "--keep", "-1"], "--keep is -1"),
        (["--trace", "demo__hello.jsonl", "--hourly-rate", "-5"], "--hourly-rate is -5"),
        (["--trace", "demo__hello.jsonl", "--minutes-per-crash", "inf"], "--minutes-per-crash is inf"),
        (["--trace", "demo__hello.jsonl", "--crashes-per-month", "-0.1"], "--crashes-per-month is -0.1"),
        (["--trace", "none.jsonl"], "the trace none.jsonl cannot be read"),
        (["--trace", "empty.jsonl"], "empty.jsonl holds no step of a trace"),
        (["--traces", "none"], "none is no folder of traces"),
        (["--traces", "nothing"], "there is no trace (*.jsonl) in nothing"),
    ],
)
def test_what_cannot_be_billed_is_refused(hello: Stage, words: list[str], said: str) -> None:
    (hello.folder / "empty.jsonl").write_text("", encoding="utf-8")
    (hello.folder / "nothing").mkdir()
    assert said in refused(hello("bill", *words))


def test_a_run_that_is_not_there_is_named(run: Stage) -> None:
    found = run("bill", "q")
    assert found.code == 2
    assert "there is no run 'q'" in found.err
    assert "there is no such file" in run("bill", "r", "--store", "none.db").err


def test_a_damaged_run_does_not_stop_the_bill_of_the_others(run: Stage) -> None:
    assert run("run", AGENT, "a b", "--run-id", "s").code == 0
    _damage(run, "s")
    found = run("bill", "--all", "--storage", "efs")
    assert found.code == 0, found.err
    assert found.out.startswith("1 run: 3 cycles committed")
    said = r"run 's': the batch of events \d+ to \d+ does not verify: its digest differs; the run is left out"
    assert re.search(f"notice: {said}", found.out)
    for more in ([], ["--claim", "logs"]):
        assert any(re.search(said, notice) for notice in run("bill", "--all", "--json", *more).json["notices"])
    assert run("bill", "s").code == 1
    _damage(run, "r")
    assert "none of the 2 runs in " in refused(run("bill", "--all"))


def _damage(stage: Stage, run_id: str) -> None:
    """Change a byte of the run's second batch."""
    with contextlib.closing(sqlite3.connect(stage.folder / "agent.db")) as db, db:
        at, data = db.execute(
            "SELECT at, data FROM batches JOIN runs USING (no) WHERE run_id = ? ORDER BY at LIMIT 1 OFFSET 1",
            (run_id,),
        ).fetchone()
        changed = data[:25] + bytes([data[25] ^ 1]) + data[26:]
        db.execute("UPDATE batches SET data = ? WHERE at = ?", (changed, at))


def test_of_a_run_without_a_cycle_what_it_wrote_and_paid_is_told(stage: Stage) -> None:
    """It may have cost money all the same; there is only nothing to compare strategies on."""
    assert stage.apart("run", AGENT, "tea", "--run-id", "r", DIE_AT="call").code == 9
    told = stage("bill", "r")
    assert told.code == 0
    assert "0 cycles committed" in told.out
    assert "no cycle was committed" in told.out + told.err
    found = stage("bill", "r", "--json").json
    assert found["meter"]["events"] > 0
    assert any("no cycle was committed" in notice for notice in found["notices"])
    assert "there is no loop to bill" in refused(stage("bill", "r", "--claim", "logs"))


def test_an_empty_store_has_no_bill(run: Stage) -> None:
    run("delete", "r", "--yes")
    assert "there is no run in" in refused(run("bill", "--all"))


def test_what_a_file_holds_does_not_act_on_the_terminal(hello: Stage) -> None:
    bad = "x\x1b[2J__t.jsonl"
    write(hello.folder / bad, [*HELLO, b"no"])
    assert "\x1b" not in hello("bill", "--trace", bad).out


def test_a_terminal_sees_a_line_of_progress(hello: Stage) -> None:
    """The line is drawn over itself and wiped; the tables follow it."""
    ours, theirs = pty.openpty()
    code = "from indelible.cli import bill, main; bill._REDRAW_S = 0; raise SystemExit(main.main())"
    done = subprocess.run([sys.executable, "-c", code, "bill", "--trace", "demo__hello.jsonl"], stdout=subprocess.PIPE,
                          stderr=theirs, check=False, timeout=60)  # fmt: skip
    os.close(theirs)
    seen = os.read(ours, 65536).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "encoding demo__hello: loop 3 of 3" in seen
    assert seen.endswith("\r\x1b[K")


def test_on_80_columns_each_name_stands_on_a_line(hello: Stage) -> None:
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "indelible", "bill", "--trace", "demo__hello.jsonl"]
    env = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    done = subprocess.Popen(words, stdout=theirs, stderr=subprocess.DEVNULL, env=env)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while data := os.read(ours, 65536):
            seen += data
    os.close(ours)
    assert done.wait(60) == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", seen.decode()).replace("\r", "")
    tables = text[text.index("storage, dollars") : text.index("one crash")]
    assert tables.count("\njournal, batched (ours)  $") == 4
    for name in ("LOCAL-DISK", "S3-STANDARD-IA", "AZURE-BLOB-HOT", "CLOUDWATCH-LOGS"):
        assert name in tables
    assert max(len(line) for line in tables.split("\n")) <= 80


def test_help_names_what_can_be_asked(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bill", "--help"]) == 0
    text = capsys.readouterr().out
    for option in ("--trace", "--traces", "--all", "--runs-per-day", "--keep", "--storage", "--prices", "--hourly-rate",
                   "--minutes-per-crash", "--crashes-per-month", "--explain", "--compression", "--claim", "--plot",
                   "--json"):  # fmt: skip
        assert option in text
    assert Path.cwd() == stage.folder


def test_the_simulation_of_economic_durability_as_json_and_as_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bill_economics, "STEPS", 2_000)
    assert main(["bill", "--economics", "--json", "--plot", str(tmp_path / "out")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["rows"]) == 60
    assert max(row["to_best"] for row in told["rows"]) <= 1.1
    assert (tmp_path / "out" / "economics.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--usd-per-hour", "nan"], "nan dollars"), (["--usd-per-hour", "0"], "0.0 dollars"), (["r"], "takes no run")],
)
def test_a_simulation_that_cannot_be(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bill", "--economics", *words]) == 2
    assert said in capsys.readouterr().err
