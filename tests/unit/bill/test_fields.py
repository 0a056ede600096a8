"""Fields that are rewritten again and again, and the fix that is named for each."""

from __future__ import annotations

from typing import Any

import pytest

from indelible.bill.course import Course, Loop
from indelible.bill.fields import LARGE_BYTES, REWRITES, hot


def rewritten(path: str, values: list[Any], start: dict[str, Any] | None = None) -> Course:
    loops = tuple(Loop((), ({"op": "replace", "path": path, "value": value},)) for value in values)
    return Course("r", "k", {"messages": [], "notes": {}} if start is None else start, loops, ())


def fix(path: str, values: list[Any], start: dict[str, Any] | None = None) -> str:
    (found,) = hot([rewritten(path, values, start)])
    return found.fix


def test_the_sentence_names_the_field_its_size_and_how_often_it_was_rewritten() -> None:
    # 40 lists; the last one is 40 × 514 bytes with quotes and commas, and two brackets: 40 × 515 + 1
    values = [["x" * 512] * (n + 1) for n in range(40)]
    (found,) = hot([rewritten("/messages", values)])
    assert (found.bytes_now, found.rewrites) == (40 * 515 + 1, 40)
    assert found.bytes_rewritten == sum((n + 1) * 515 + 1 for n in range(40))
    assert str(found) == (
        "`state.messages` is 20.12 KB and was rewritten 40 times: make it a `Log`, which writes only what is added"
    )


@pytest.mark.parametrize(
    ("path", "values", "expected"),
    [
        ("/messages", [["a" * 2000] * n for n in range(1, 9)], "make it a `Log`, which"),
        ("/messages", [["a" * 2000, str(n)] for n in range(9)], "make it a `Queue` if"),
        ("/messages", [{"a": "b" * 2000, "n": n} for n in range(9)], "make it a `Map`"),
        ("/messages", ["a" * 2000 * n for n in range(1, 9)], "make it a `Log` of the pieces"),
        ("/messages", [str(n) * 2000 for n in range(9)], "keep the parts that change in a `Map`"),
        ("/notes/a~1b", [str(n) * 2000 for n in range(9)], "give the parts of it that change entries of their own"),
        ("/messages.summary", [str(n) * 2000 for n in range(9)], "compact the `Log` less often"),
    ],
)
def test_the_fix_fits_what_the_field_holds(path: str, values: list[Any], expected: str) -> None:
    assert fix(path, values).startswith(expected)


def test_an_entry_of_a_map_is_spelled_as_in_code() -> None:
    (found,) = hot([rewritten("/notes/a~1b", [str(n) * 2000 for n in range(9)])])
    assert found.path == "state.notes['a/b']"


def test_the_first_write_of_an_entry_is_no_rewrite() -> None:
    (found,) = hot([rewritten("/notes/a", [str(n) * 2000 for n in range(REWRITES + 1)])])
    assert found.rewrites == REWRITES
    assert not hot([rewritten("/notes/a", [str(n) * 2000 for n in range(REWRITES)])])


def test_what_is_small_or_seldom_or_appended_is_not_named() -> None:
    assert not hot([rewritten("/messages", ["a" * (LARGE_BYTES - 3)] * 40)])
    assert hot([rewritten("/messages", ["a" * (LARGE_BYTES - 2)] * 40)])
    assert not hot([rewritten("/messages", ["a" * 4000] * (REWRITES - 1))])
    assert not hot([rewritten("/messages/-", ["a" * 4000] * 40)])
    removed = Course("r", "k", {"a": 1}, (Loop((), ({"op": "remove", "path": "/a"},)),), ())
    assert not hot([removed])


def test_a_field_that_is_a_small_part_of_all_is_not_named() -> None:
    loops = tuple(
        Loop((), ({"op": "replace", "path": "/messages", "value": "a" * 1100},
                  {"op": "add", "path": "/log/-", "value": "b" * 40_000}))
        for _ in range(9)
    )  # fmt: skip
    assert not hot([Course("r", "k", {"messages": "", "log": []}, loops, ())])


def test_the_costliest_comes_first() -> None:
    small, large = rewritten("/a", ["x" * 2000] * 9, {"a": ""}), rewritten("/b", ["x" * 9000] * 9, {"b": ""})
    assert [found.path for found in hot([small, large])] == ["state.b", "state.a"]
