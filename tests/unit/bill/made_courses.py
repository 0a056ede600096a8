"""Courses made by hand, for tests of what crashes and months cost.

Invariant: every sum over them can be done in one's head.
"""

from __future__ import annotations

from typing import Any, cast

from indelible.bill.costs import Footprint
from indelible.bill.course import Course, Encoded, Loop
from indelible.bill.crashes import Exposure
from indelible.bill.retelling import record_of
from indelible.bill.sample import Part, Sample
from indelible.bill.strategies import OURS
from indelible.core import events as ev
from indelible.core.codec import pack

EACH, SECOND = "full JSON", "JSON every 5 loops"  # the second is saved after every other loop here


def loop(usd: float | None, took_s: float | None = None, *, decision: bool = False, records: tuple[bytes, ...] = ()
         ) -> Loop:  # fmt: skip
    patch: tuple[dict[str, Any], ...] = ({"op": "add", "path": "/memory/-", "value": 7},)
    return Loop(records, patch, decision, usd, 0, took_s)


def completed(usd: float | None, took: float, *, call: str = "c", within: str = "", effect: str = "repeatable",
              source: str = "call") -> bytes:  # fmt: skip
    """A call that was recorded; `usd` None: it reported nothing."""
    usage = b"" if usd is None else pack(cast(Any, {"tokens_in": 1, "tokens_out": 1, "usd": usd, "model": "m"}))
    return record_of(
        ev.ActionCompleted(1.0, 1, call, "act", effect, pack("x"), took, source=source, usage=usage, within=within)
    )


def course(*loops: Loop, batches: tuple[int, ...] = (100,) * 4, snapshots: tuple[int, ...] = ()) -> Course:
    return Course("made", "by hand", {"memory": []}, loops, batches, snapshots)


FOUR = course(loop(1, 10), loop(2, 20), loop(4, 40), loop(8, 80, decision=True))


def four_ways(made: Course = FOUR) -> tuple[Encoded, ...]:
    """Dumps of 1,000 bytes after each loop and after every other one, and four batches of 100 bytes."""
    return (
        Encoded(EACH, Footprint.overwriting([1000] * 4), 0.0, (1, 2, 3, 4)),
        Encoded(SECOND, Footprint.overwriting([1000] * 2), 0.0, (2, 4)),
        Encoded(OURS, Footprint.appending([100] * 4), 0.0, (1, 2, 3, 4), appends=True),
    )


def sample(*courses: Course, traced: bool = True) -> Sample:
    return Sample(tuple(Part(each, four_ways(each), traced) for each in courses or (FOUR,)))


def exposed(*loops: Loop, traced: bool = True) -> Exposure:
    return Exposure.of(course(*loops), traced=traced)
