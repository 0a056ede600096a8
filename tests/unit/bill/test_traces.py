"""Traces: what is read from a good line, and what is said of a bad one."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from indelible.bill.compression import with_window
from indelible.bill.traces import read
from indelible.core import events as ev
from indelible.core.codec import pack
from indelible.core.journal import STREAM, Journal, Reader, seed
from indelible.errors import Misuse

from .made_traces import HELLO, write

LINE: dict[str, Any] = {"step": 0, "loop": 1, "kind": "llm", "content": "a", "cost": 0.5}


def test_a_trace_is_read_loop_by_loop(tmp_path: Path) -> None:
    course = read(write(tmp_path / "demo__hello.jsonl", HELLO))
    assert (course.name, course.kind, course.start) == ("demo__hello", "demo", {"memory": []})
    assert [loop.patch for loop in course.loops] == [
        (
            {"op": "add", "path": "/memory/-", "value": "ab"},
            {"op": "add", "path": "/memory/-", "value": "cd"},
        ),
        (
            {"op": "add", "path": "/memory/-", "value": "é"},
            {"op": "add", "path": "/queue", "value": [1]},
        ),
        (
            {"op": "add", "path": "/memory/-", "value": {"x": 1}},
            {"op": "replace", "path": "/queue", "value": [1, 2]},
        ),
    ]
    assert [loop.usd for loop in course.loops] == [0.25, 0.5, 0.0]
    assert [loop.tokens for loop in course.loops] == [7, 5, 0]
    assert [loop.decision for loop in course.loops] == [False, True, False]
    assert [loop.took_s for loop in course.loops] == [None] * 3
    assert course.notices == ()


def test_every_line_can_be_a_loop(tmp_path: Path) -> None:
    course = read(write(tmp_path / "t.jsonl", HELLO), per="step")
    assert [len(loop.patch) for loop in course.loops] == [1, 1, 2, 2]
    assert [loop.usd for loop in course.loops] == [0.25, 0.0, 0.5, 0.0]
    with pytest.raises(Misuse, match="per loop or per step"):
        read(tmp_path / "t.jsonl", per="day")


def test_the_records_are_the_events_of_a_run(tmp_path: Path) -> None:
    course = read(write(tmp_path / "t.jsonl", HELLO))
    told = [[type(event) for record in loop.records for event in ev.decode(b"\x91" + record, "")]
            for loop in course.loops]  # fmt: skip
    loop = [ev.CycleEntered, ev.ActionCompleted, ev.CycleCommitted]
    assert told == [[ev.RunStarted, ev.RunClaimed, *loop[:2], *loop[1:]], loop, loop]
    completed = ev.decode(b"\x91" + course.loops[0].records[3], "")[0]
    assert isinstance(completed, ev.ActionCompleted)
    assert completed.result == pack("ab")
    assert completed.usage == pack({"tokens_in": 7, "tokens_out": 0, "usd": 0.25, "model": ""})
    committed = ev.decode(b"\x91" + course.loops[1].records[2], "")[0]
    assert isinstance(committed, ev.CycleCommitted)
    assert committed.changes == pack([["memory", "append", ["é"]], ["queue", "set", [1]]])
    # The run's acceptance and its claim; then each model call, and each commit.
    assert len(course.batches) == 2 + 3 + 3
    assert course.snapshots == ()


def test_the_same_trace_comes_to_the_same_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", HELLO)
    first, second = read(path), read(path)
    assert (first.batches, first.loops) == (second.batches, second.loops)


def test_without_actions_each_content_is_in_the_journal_once(tmp_path: Path) -> None:
    marked = [{**LINE, "content": "UNMISTAKABLE"}]
    path = write(tmp_path / "t.jsonl", marked)
    for actions, times in ((True, 2), (False, 1)):
        records = b"".join(record for loop in read(path, actions=actions).loops for record in loop.records)
        assert records.count(b"UNMISTAKABLE") == times


def test_a_long_trace_gets_snapshots_as_a_run_does(tmp_path: Path) -> None:
    """Of 1.2 MB in digits no two of which are alike half remains: the first is due after 256 KB, the next by growth."""
    noise = [Random(n).randbytes(30_000).hex() for n in range(20)]
    course = read(write(tmp_path / "t.jsonl", [{**LINE, "loop": n, "content": text} for n, text in enumerate(noise)]))
    assert course.snapshots
    assert sum(course.snapshots) <= 3 * sum(course.batches)


BROKEN = [
    (b'{"step": 0, "loop": 1, "ki', "this is no JSON"),
    (b'\xff{"step": 0}', "this is no JSON"),
    (b"[1, 2]", "this is no JSON object"),
    (b"[" * 100_000, "this is no JSON"),
    ({**LINE, "step": "0"}, "`step` is a text, not a whole number"),
    ({**LINE, "loop": -1}, "`loop` is -1, not a whole number"),
    ({**LINE, "loop": True}, "`loop` is true, not a whole number"),
    ({key: value for key, value in LINE.items() if key != "loop"}, "`loop` is missing"),
    ({**LINE, "kind": "chat"}, "`kind` is a text, not one of llm, tool, other"),
    ({key: value for key, value in LINE.items() if key != "content"}, "`content` is missing"),
    ({**LINE, "set": ["queue"]}, "`set` is no JSON object"),
    ({**LINE, "set": {"memory": 1}}, "`set` is no JSON object, or one with a field 'memory'"),
    ({**LINE, "dp": 1}, "`dp` is 1, not true or false"),
    ({**LINE, "tokens": {"in": 1.5}}, "`tokens` are not whole numbers"),
    ({**LINE, "tokens": -3}, "`tokens` are not whole numbers"),
]


@pytest.mark.parametrize(("line", "why"), BROKEN, ids=[str(n) for n in range(len(BROKEN))])
def test_a_broken_line_is_named_and_the_rest_is_used(tmp_path: Path, line: Any, why: str) -> None:
    path = write(tmp_path / "t.jsonl", [LINE, line, b"", {**LINE, "step": 2, "loop": 2, "content": "b"}])
    course = read(path)
    assert [loop.patch[0]["value"] for loop in course.loops] == ["a", "b"]
    assert len(course.notices) == 1
    assert course.notices[0].startswith(f"{path}:2: {why}")
    assert course.notices[0].endswith("; the line is passed over")


@pytest.mark.parametrize("cost", [b"-0.1", b"NaN", b"Infinity", b"1e999", b'"0.1"', b"true", b"[]", b"1" * 400])
def test_a_cost_that_cannot_be_is_an_error_with_its_line(tmp_path: Path, cost: bytes) -> None:
    bad = b'{"step": 1, "loop": 1, "kind": "llm", "content": "a", "cost": ' + cost + b"}"
    path = write(tmp_path / "t.jsonl", [LINE, bad])
    with pytest.raises(Misuse, match=r"t\.jsonl:2: `cost` is .*, not a number of US dollars") as raised:
        read(path)
    assert len(str(raised.value)) < 400


def test_another_currency_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", [{**LINE, "currency": "USD"}, {**LINE, "currency": "EUR"}])
    with pytest.raises(Misuse, match=r"t\.jsonl:2: a cost in 'EUR'; costs are added up in US dollars"):
        read(path)


def test_a_missing_cost_is_unknown_and_no_zero(tmp_path: Path) -> None:
    """B113: what has no known price makes its loop unknown; a tool that tells of no price is free."""
    free = {key: value for key, value in LINE.items() if key != "cost"}
    lines = [
        LINE,
        {**free, "kind": "tool"},
        {**free, "loop": 2},
        {**LINE, "loop": 2},
        {**LINE, "loop": 3, "cost": None},
    ]
    assert [loop.usd for loop in read(write(tmp_path / "t.jsonl", lines)).loops] == [0.5, None, None]


@pytest.mark.parametrize("lines", [[], [b"not a trace"], [b"", b"  "]])
def test_a_file_without_a_step_is_refused(tmp_path: Path, lines: list[Any]) -> None:
    with pytest.raises(Misuse, match="holds no step of a trace"):
        read(write(tmp_path / "t.jsonl", lines))


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"nowhere\.jsonl cannot be read: No such file"):
        read(tmp_path / "nowhere.jsonl")


def test_a_step_that_is_told_again_counts_once(tmp_path: Path) -> None:
    """B113: a trace that was written on after a resume holds lines twice; what they cost was paid once."""
    course = read(write(tmp_path / "t.jsonl", [*HELLO, HELLO[3], HELLO[2]]))
    assert [loop.usd for loop in course.loops] == [0.25, 0.5, 0.0]
    assert [notice.partition(":")[2] for notice in course.notices] == [
        "5: step 3 stands on line 4 already; the line is passed over",
        "6: step 2 stands on line 3 already; the line is passed over",
    ]
    # the same step with another content is another call, which was paid for
    course = read(write(tmp_path / "t.jsonl", [*HELLO, {**HELLO[3], "content": "again", "cost": 1}]))
    assert course.loops[-1].usd == 1.0
    assert course.notices[0].endswith("t.jsonl:5: step 3 stands on line 4 too, with something else; both are used")


def test_more_tokens_than_anybody_can_mean_are_no_tokens(tmp_path: Path) -> None:
    course = read(write(tmp_path / "t.jsonl", [HELLO[0], {**HELLO[3], "tokens": 2**70}]))
    assert len(course.loops) == 1
    assert "`tokens` are not whole numbers from 0 to 1e+15" in course.notices[0]


@pytest.mark.parametrize(("first", "end"), [(b"\xef\xbb\xbf", b"\n"), (b"", b"\r\n"), (b"", b"\n\n")])
def test_marks_and_line_ends_of_other_systems_change_nothing(tmp_path: Path, first: bytes, end: bytes) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(first + end.join(json.dumps(line).encode() for line in HELLO))
    course = read(path)
    assert (len(course.loops), course.notices) == (3, ())


def test_half_a_character_pair_and_a_large_number_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"step": 0, "loop": 0, "kind": "other", "content": ["\\ud800", 123456789012345678901234567890]}')
    course = read(path)
    assert course.loops[0].patch[0]["value"] == ["\ud800", 123456789012345678901234567890]
    assert course.notices == ()


def test_batches_can_be_read_whatever_the_parameters() -> None:
    """A reader need not know the parameters that a stream was written with."""
    for parameters in (STREAM, with_window(8192), with_window(1 << 20)):
        journal, reader = Journal(seed("r"), parameters=parameters), Reader("r")
        for n in range(3):
            journal.append(ev.InboxRead(float(n), n))
            assert [event.at for event in reader.open(journal.seal().batch).events] == [float(n)]
            journal.landed()
