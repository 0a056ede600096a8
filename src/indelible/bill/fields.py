"""Fields of the state that are written again and again, and what to make of them.

Owns: when a field is worth a word, and the word.
Must never: show what a field holds.
Invariant: a field is named only if a change of its type would save most of what its rewrites cost.

A field is named if it was rewritten as a whole at least `REWRITES` times, is at least `LARGE_BYTES` in JSON, and its
rewrites are at least `SHARE` of everything the run put into its state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from indelible.bill.costs import shown
from indelible.bill.course import Course
from indelible.bill.document import dump, keys_of

REWRITES = 5
LARGE_BYTES = 1024
SHARE = 0.05
_SUMMARY = ".summary"


@dataclass(frozen=True, slots=True)
class HotField:
    """`path` is how code spells it. `bytes_now` is its JSON as last written, `bytes_rewritten` that of all rewrites."""

    run: str
    path: str
    bytes_now: int
    rewrites: int
    bytes_rewritten: int
    fix: str

    def __str__(self) -> str:
        return f"`{self.path}` is {shown(self.bytes_now)} and was rewritten {self.rewrites} times: {self.fix}"


@dataclass(slots=True)
class _Seen:
    value: Any
    size: int
    rewrites: int = 0
    rewritten: int = 0
    grown: int = 0


def hot(courses: Iterable[Course]) -> list[HotField]:
    """The fields worth changing, those that cost most first."""
    found = [field for course in courses for field in _of(course)]
    return sorted(found, key=lambda field: -field.bytes_rewritten)


def _of(course: Course) -> list[HotField]:
    seen: dict[tuple[str, ...], _Seen] = {(name,): _Seen(value, 0) for name, value in course.start.items()}
    total = 0
    for operation in (operation for loop in course.loops for operation in loop.patch):
        if "value" not in operation:
            continue
        keys, value = tuple(keys_of(operation["path"])), operation["value"]
        size = len(dump(value))
        total += size
        if len(keys) > 2 or operation["path"].endswith("/-"):
            continue
        before = seen.get(keys)
        if before is None:
            seen[keys] = _Seen(value, size)
            continue
        before.grown += _grew(before.value, value)
        before.rewrites += 1
        before.rewritten += size
        before.value, before.size = value, size
    return [
        HotField(course.name, _spelled(keys), it.size, it.rewrites, it.rewritten, _fix(keys, it))
        for keys, it in seen.items()
        if it.rewrites >= REWRITES and it.size >= LARGE_BYTES and it.rewritten >= SHARE * total
    ]


def _grew(before: Any, after: Any) -> bool:
    """Whether all that was there stands in front of what came to it."""
    if isinstance(before, str) and isinstance(after, str):
        return after.startswith(before)
    return isinstance(before, list) and isinstance(after, list) and after[: len(before)] == before


def _spelled(keys: tuple[str, ...]) -> str:
    name, *inside = keys
    return f"state.{name}" + "".join(f"[{key!r}]" for key in inside)


def _fix(keys: tuple[str, ...], it: _Seen) -> str:
    grows = it.grown * 2 > it.rewrites
    name, *inside = keys
    if inside:
        return "give the parts of it that change entries of their own in the `Map`"
    if name.endswith(_SUMMARY):
        return "compact the `Log` less often, or to a shorter summary"
    if isinstance(it.value, dict):
        return "make it a `Map`, which writes only the entries that change"
    if isinstance(it.value, list):
        if grows:
            return "make it a `Log`, which writes only what is added"
        return "make it a `Queue` if its items are tasks, or a `Map` by an id: only the items that change are written"
    if grows:
        return "make it a `Log` of the pieces that are added to it"
    return "keep the parts that change in a `Map`, or write it once, when it is complete"
