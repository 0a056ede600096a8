"""A trace of an agent, one JSON object a line, read as a course.

Owns: what a line may hold, and what is said of one that holds something else.
Must never: take a cost that is not known, or that makes no sense, for zero.
Invariant: every line is either used or named in the notices with its position.

A line holds `step` and `loop` (whole numbers; a loop is one model call and what follows it), `kind` ("llm", "tool" or
"other"), `content` (what the step appends to the agent's memory), and perhaps `set` (fields of the state that it
replaces), `dp` (true at a decision point), `tokens` (a number, or an object of numbers, which are added up), `cost` (US
dollars) and `currency` ("USD"). The state is `{"memory": [content, …], **set}`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from indelible.bill.course import Course, Loop
from indelible.bill.document import Operation, pointer
from indelible.bill.retelling import MEMORY, Step, retell
from indelible.core.codec import GENERIC, to_plain
from indelible.errors import Misuse, NotStorable

KINDS = ("llm", "tool", "other")
PER = ("loop", "step")
MOST_USD = 1e9
MOST_TOKENS = 10**15
_EXAMPLE = '{"step": 0, "loop": 1, "kind": "llm", "content": "…", "cost": 0.002}'


@dataclass(slots=True)
class _Reading:
    path: Path
    notices: list[str] = field(default_factory=list)
    seen: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """Of each step the line it was on, and what that said."""

    def again(self, number: int, step: int, line: bytes) -> bool:
        """Whether this line says over again what another one has said: it is passed over, and its cost counts once."""
        before, said = self.seen.setdefault(step, (number, line))
        if before == number:
            return False
        if said == line:
            self.pass_over(number, f"step {step} stands on line {before} already")
            return True
        self.notices.append(f"{self.path}:{number}: step {step} stands on line {before} too, with something else; "
                            "both are used")  # fmt: skip
        return False

    def pass_over(self, number: int, why: str) -> None:
        self.notices.append(f"{self.path}:{number}: {why}; the line is passed over")


class _Unfit(Exception):
    """Why a line cannot be used."""


def read(path: Path | str, *, per: str = "loop", actions: bool = True) -> Course:
    """The course of the trace in that file, and what Indelible would have written of it.

    `per="step"` takes every line for a loop. `actions=False` tells it as of an agent that calls no actions, so that its
    journal holds each content once. A line that cannot be used, or that says a step over
    again, is named in the notices, and the rest is used. Raises
    `Misuse`, with file and line, for a cost that is negative, NaN, no number, or not in US dollars, and for a file
    without one line that can be used.
    """
    if per not in PER:
        raise Misuse(f"a trace can be read per {' or per '.join(PER)}, not per {per!r}", hint='per="loop"')
    reading = _Reading(Path(path))
    steps = list(_steps(reading))
    if not steps:
        why = f": {reading.notices[0]}" if reading.notices else ""
        raise Misuse(f"{path} holds no step of a trace{why}", hint=f"a line is: {_EXAMPLE}", file=str(path))
    groups = [[step] for step in steps] if per == "step" else [list(g) for _, g in groupby(steps, lambda s: s.loop)]
    told = retell(reading.path.stem, groups, actions=actions)
    known: set[str] = set()
    loops = tuple(_loop(group, records, known) for group, records in zip(groups, told.records, strict=True))
    name = reading.path.stem
    return Course(name, name.partition("__")[0], {MEMORY: []}, loops, tuple(told.batches), tuple(told.snapshots),
                  tuple(reading.notices), told.cpu_s)  # fmt: skip


def _loop(steps: list[Step], records: tuple[bytes, ...], known: set[str]) -> Loop:
    patch: list[Operation] = []
    for step in steps:
        patch.append({"op": "add", "path": pointer(MEMORY, "-"), "value": step.content})
        for name, value in step.sets.items():
            patch.append({"op": "replace" if name in known else "add", "path": pointer(name), "value": value})
            known.add(name)
    unpriced = any(step.usd is None for step in steps)
    usd = None if unpriced else math.fsum(step.usd or 0.0 for step in steps)
    return Loop(records, tuple(patch), any(s.decision for s in steps), usd, sum(s.tokens for s in steps), None)


def _steps(reading: _Reading) -> Iterator[Step]:
    try:
        lines = reading.path.read_bytes().split(b"\n")
    except OSError as error:
        raise Misuse(f"the trace {reading.path} cannot be read: {error.strerror}", hint="--trace FILE.jsonl") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
            step = _step(found, f"{reading.path}:{number}")
            if not reading.again(number, found["step"], line.strip()):
                yield step
        except _Unfit as unfit:
            reading.pass_over(number, str(unfit))
        except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
            reading.pass_over(number, "this is no JSON")


def _step(found: Any, where: str) -> Step:
    if not isinstance(found, dict):
        raise _Unfit("this is no JSON object")
    for name in ("step", "loop"):
        if type(found.get(name)) is not int or found[name] < 0:
            raise _Unfit(f"`{name}` is {_shown(found, name)}, not a whole number from 0 up")
    kind = found.get("kind")
    if kind not in KINDS:
        raise _Unfit(f"`kind` is {_shown(found, 'kind')}, not one of {', '.join(KINDS)}")
    if "content" not in found:
        raise _Unfit("`content` is missing")
    sets = found.get("set", {})
    if not isinstance(sets, dict) or MEMORY in sets:
        raise _Unfit(f"`set` is no JSON object, or one with a field {MEMORY!r}")
    if type(found.get("dp", False)) is not bool:
        raise _Unfit(f"`dp` is {_shown(found, 'dp')}, not true or false")
    try:
        to_plain([found["content"], sets], GENERIC, "content")
    except NotStorable as error:
        raise _Unfit(f"it cannot be kept: {error.what}") from None
    usd = _usd(found, where)
    # Only a model call is known to cost something; without a price, how much is unknown.
    return Step(found["loop"], kind, found["content"], sets, found.get("dp", False), _tokens(found),
                usd if usd is not None or kind == "llm" else 0.0)  # fmt: skip


def _usd(found: dict[str, Any], where: str) -> float | None:
    currency = found.get("currency", "USD")
    if currency != "USD":
        raise Misuse(f"{where}: a cost in {str(currency)[:20]!a}; costs are added up in US dollars",
                     hint='convert it, and leave "currency" out')  # fmt: skip
    usd = found.get("cost")
    if usd is None:
        return None
    if type(usd) not in (int, float) or not 0 <= usd <= MOST_USD:  # NaN is in no range
        raise Misuse(f"{where}: `cost` is {_shown(found, 'cost')}, not a number of US dollars from 0 to {MOST_USD:.0e}",
                     hint='"cost": 0.002, or leave it out if it is not known')  # fmt: skip
    return float(usd)


def _tokens(found: dict[str, Any]) -> int:
    tokens = found.get("tokens", 0)
    counts = list(tokens.values()) if isinstance(tokens, dict) else [0 if tokens is None else tokens]
    if not all(type(count) is int and 0 <= count <= MOST_TOKENS for count in counts):
        raise _Unfit(f"`tokens` are not whole numbers from 0 to {MOST_TOKENS:.0e}")
    return sum(counts)


def _shown(found: dict[str, Any], name: str) -> str:
    """A field of a line as an error shows it: numbers in full, of anything else only what it is."""
    value = found.get(name)
    if name not in found:
        return "missing"
    if isinstance(value, bool | int | float | None):
        return json.dumps(value)[:20]
    return "a text" if isinstance(value, str) else "a list" if isinstance(value, list) else "an object"
