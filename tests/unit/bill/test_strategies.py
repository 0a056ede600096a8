"""Every strategy against bytes counted by hand.

Owns: one trace of three loops, and what each way of keeping it comes to.
Invariant: each expected figure is in `made_traces`, or is a sum beside it.
"""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from indelible.bill import strategies
from indelible.bill.costs import Footprint, Sizes
from indelible.bill.course import Course, Encoded, Loop
from indelible.bill.document import apply
from indelible.bill.strategies import encode, raw_bytes, states
from indelible.bill.traces import read
from indelible.core import events as ev

from .made_traces import DUMPS, HELLO, write


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return read(write(tmp_path / "demo__hello.jsonl", HELLO))


def under(strategy: str, course: Course) -> Encoded:
    return next(each for each in encode(course) if each.strategy == strategy)


def many(count: int, decisions: tuple[int, ...] = ()) -> Course:
    """Loops that each append a digit."""
    loops = tuple(
        Loop((), ({"op": "add", "path": "/memory/-", "value": 7},), decision=n in decisions)
        for n in range(1, count + 1)
    )
    return Course("many", "made", {"memory": []}, loops, ())


def test_each_strategy_is_there_once_and_in_order(course: Course) -> None:
    assert tuple(each.strategy for each in encode(course)) == strategies.STRATEGIES
    assert all(each.cpu_s >= 0 for each in encode(course))


def test_full_json(course: Course) -> None:
    found = under(strategies.JSON, course)
    assert found.footprint == Footprint.overwriting(DUMPS)
    assert found.footprint.kept == Sizes.of([49])
    assert found.saved == (1, 2, 3)


def test_compressed_json(course: Course) -> None:
    texts = [
        '{"memory":["ab","cd"]}',
        '{"memory":["ab","cd","é"],"queue":[1]}',
        '{"memory":["ab","cd","é",{"x":1}],"queue":[1,2]}',
    ]
    assert tuple(len(text.encode()) for text in texts) == DUMPS
    zipped = [len(gzip.compress(text.encode(), 6)) for text in texts]
    assert under(strategies.GZIP, course).footprint == Footprint.overwriting(zipped)
    squeezed = [len(zstandard.compress(text.encode(), 3)) for text in texts]
    assert under(strategies.ZSTD, course).footprint == Footprint.overwriting(squeezed)


def test_json_now_and_then() -> None:
    """The last state is dumped in any case: 12 loops are saved after 5, 10 and 12, and after 10 and 12."""
    size = {n: len('{"memory":[]}') + n + n - 1 for n in range(1, 13)}
    found = under(strategies.EVERY_5, many(12))
    assert (found.saved, found.footprint) == ((5, 10, 12), Footprint.overwriting([size[5], size[10], size[12]]))
    found = under(strategies.EVERY_10, many(12))
    assert (found.saved, found.footprint) == ((10, 12), Footprint.overwriting([size[10], size[12]]))
    found = under(strategies.DECISIONS, many(12, decisions=(2, 3)))
    assert (found.saved, found.footprint) == ((2, 3, 12), Footprint.overwriting([size[2], size[3], size[12]]))
    assert under(strategies.EVERY_5, many(10)).saved == (5, 10)


def test_json_patch(course: Course) -> None:
    """Lines: the first state; then for each loop its operations."""
    lines = [
        '{"memory":[]}',
        '[{"op":"add","path":"/memory/-","value":"ab"},{"op":"add","path":"/memory/-","value":"cd"}]',
        '[{"op":"add","path":"/memory/-","value":"é"},{"op":"add","path":"/queue","value":[1]}]',
        '[{"op":"add","path":"/memory/-","value":{"x":1}},{"op":"replace","path":"/queue","value":[1,2]}]',
    ]
    found = under(strategies.PATCH, course)
    assert found.footprint == Footprint.appending(len(line.encode()) + 1 for line in lines)
    assert found.saved == (1, 2, 3)
    assert found.in_one.kept == Sizes.of([sum(len(line.encode()) + 1 for line in lines)])


def test_content_addressed(course: Course) -> None:
    """Items are "ab", "cd", "é", 1, {"x":1} and 2, of 4, 4, 4, 1, 7 and 1 bytes, each kept once. In a manifest each is
    a digest of 32 characters in quotes: {"memory":[…]} is 13 bytes around them, and ,"queue":[] 11 more."""
    found = under(strategies.CHUNKS, course)
    manifests = [13 + 2 * 34 + 1, 13 + 3 * 34 + 2 + 11 + 34, 13 + 4 * 34 + 3 + 11 + 2 * 34 + 1]
    assert found.footprint == Footprint(
        writes=Sizes.of([4, 4, 4, 1, 7, 1, *manifests]),
        kept=Sizes.of([4, 4, 4, 1, 7, 1, manifests[2]]),
        replaced=Sizes.of(manifests[:2]),
    )


def test_content_addressed_forgets_what_is_gone() -> None:
    """An object's entries are items too: {"a":1,"b":1} is one item, and what is removed leaves the manifest."""
    patches: tuple[dict[str, Any], ...] = (
        {"op": "add", "path": "/m", "value": {"a": 1, "b": 1}},
        {"op": "remove", "path": "/m/a"},
        {"op": "remove", "path": "/m"},
    )
    course = Course("c", "made", {}, tuple(Loop((), (patch,)) for patch in patches), ())
    digest = 34
    manifests = [len('{"m":{"a":,"b":}}') + 2 * digest, len('{"m":{"b":}}') + digest, len("{}")]
    assert under(strategies.CHUNKS, course).footprint.writes == Sizes.of([1, *manifests])


def test_the_journal_plain_and_compressed(course: Course) -> None:
    records = [record for loop in course.loops for record in loop.records]
    assert len(records) == 2 + 4 + 3 + 3
    plain = under(strategies.PLAIN, course)
    assert plain.footprint == Footprint.appending(len(record) for record in records)
    assert plain.saved == (1, 2, 3)
    squeezed = [len(zstandard.compress(record, 3)) for record in records]
    assert under(strategies.COMPRESSED, course).footprint == Footprint.appending(squeezed)


def test_an_event_by_hand() -> None:
    """{"e": "cycle.entered", "at": 1.5, "cycle": 1, "attempt": 1} as MessagePack: a head of 1; e 2 + 14; at 3 + 9;
    cycle 6 + 1; attempt 8 + 1."""
    record = ev.encode([ev.CycleEntered(1.5, 1, 1)])[1:]
    assert len(record) == 45
    course = Course("c", "made", {}, (Loop((record,), ()),), ())
    assert under(strategies.PLAIN, course).footprint == Footprint.appending([45])


def test_ours_is_what_was_written() -> None:
    """Of four snapshots the newest two are kept."""
    course = Course("c", "made", {"memory": []}, many(2).loops, (100, 50, 60), (10, 20, 30, 40), sealing_s=0.5)
    found = under(strategies.OURS, course)
    assert found.footprint == Footprint(
        writes=Sizes.of([100, 50, 60, 10, 20, 30, 40]),
        kept=Sizes.of([100, 50, 60, 30, 40]),
        replaced=Sizes.of([10, 20]),
    )
    assert (found.saved, found.cpu_s, found.appends) == ((1, 2), 0.5, True)


def test_a_course_without_a_loop() -> None:
    empty = Course("c", "made", {"a": 1}, (), ())
    assert {each.strategy: each.footprint.writes.total for each in encode(empty)} == {
        **dict.fromkeys(strategies.STRATEGIES, 0), strategies.PATCH: len('{"a":1}\n')
    }  # fmt: skip
    assert all(each.in_one.writes.total == each.in_one.kept.total for each in encode(empty))


def test_progress_is_told_loop_by_loop(course: Course) -> None:
    told: list[tuple[int, int]] = []
    encode(course, lambda done, of: told.append((done, of)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_raw_bytes_are_each_value_once(course: Course) -> None:
    """ "ab" "cd" "é" {"x":1} are 4 + 4 + 4 + 7, and [1] [1,2] are 3 + 5."""
    assert raw_bytes(course) == 27


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
lines = st.lists(
    st.tuples(st.integers(0, 2), values, st.dictionaries(st.sampled_from(["queue", "é/~", "x"]), values, max_size=2)),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=60, deadline=None, database=None)
@given(lines)
def test_every_dump_is_the_state_as_json_dumps_has_it(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, Any, dict[str, Any]]]
) -> None:
    """The states are made once more, without a patch: the memory so far, and each field as it was set last."""
    path = tmp_path_factory.mktemp("made") / "t.jsonl"
    course = read(write(path, [
        {"step": n, "loop": n, "kind": "other", "content": content, "set": sets}
        for n, (_, content, sets) in enumerate(steps)
    ]))  # fmt: skip
    assert course.notices == ()
    expected: dict[str, Any] = {"memory": []}
    sizes = []
    given_start = copy.deepcopy(course.start)
    for (_, content, sets), (_, loop, state) in zip(steps, states(course), strict=True):
        before = copy.deepcopy(expected)
        expected["memory"].append(content)
        expected.update(sets)
        assert json.dumps(state) == json.dumps(expected)
        apply(before, loop.patch)
        assert before == expected
        sizes.append(
            len(json.dumps(expected, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass"))
        )
    assert course.start == given_start
    assert under(strategies.JSON, course).footprint == Footprint.overwriting(sizes)
