"""The table of many traces: sums by kind, and what a person sees of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from indelible.bill.strategies import JSON, PATCH, STRATEGIES
from indelible.bill.tables import RAW, measure, render, report
from indelible.errors import Misuse

from .made_traces import DUMPS, HELLO, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "demo__one.jsonl", HELLO)
    write(tmp_path / "demo__two.jsonl", HELLO)
    write(tmp_path / "other__one.jsonl", [HELLO[0], b"broken"])
    return tmp_path


def test_the_traces_of_a_kind_are_summed(folder: Path) -> None:
    demo, other = measure([folder])
    assert (demo.name, demo.traces, demo.loops) == ("demo", 2, 6)
    assert (demo.written[RAW], demo.written[JSON]) == (2 * 27, 2 * sum(DUMPS))
    assert (other.name, other.traces, other.loops) == ("other", 1, 1)
    assert other.written[JSON] == len('{"memory":["ab"]}')
    assert other.notices == [f"{folder / 'other__one.jsonl'}:2: this is no JSON; the line is passed over"]
    assert set(demo.written) == {RAW, *STRATEGIES}
    assert demo.cpu_s[PATCH] > 0


def test_a_loop_can_be_a_step(folder: Path) -> None:
    assert measure([folder / "demo__one.jsonl"], per="step")[0].loops == 4


def test_progress_names_the_trace(folder: Path) -> None:
    told: list[tuple[str, int, int]] = []
    measure([folder / "demo__one.jsonl"], lambda path, done, of: told.append((path.name, done, of)))
    assert told == [("demo__one.jsonl", done, 3) for done in (1, 2, 3)]


def test_the_table_has_a_column_a_kind_and_a_line_a_strategy(folder: Path) -> None:
    lines = render(measure([folder])).splitlines()
    assert lines[0].split() == ["demo", "other", "CPU", "s"]
    assert lines[3].split() == ["raw", "54", "4"]
    assert [line[:26].strip() for line in lines[4:15]] == list(STRATEGIES)
    assert [line[:26].strip() for line in lines[15:]] == ["of that, snapshots", "as a share of raw"]


def test_the_report_has_both_tables_and_every_notice(folder: Path) -> None:
    shown = report([folder])
    assert "full JSON + gzip" in shown
    assert "other__one.jsonl:2: this is no JSON" in shown
    assert shown.count("as stored, window 512 KB") == 2
    assert report([folder], per="step") != shown


def test_no_trace_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="no trace"):
        measure([tmp_path])
    with pytest.raises(Misuse, match=r"nowhere\.jsonl cannot be read"):
        report([tmp_path / "nowhere.jsonl"])
