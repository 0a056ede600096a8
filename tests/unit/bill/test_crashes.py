"""What a crash takes, and from how many of them on a strategy pays, against figures worked out by hand.

Owns: four loops of $1, $2, $4 and $8, which took 10, 20, 40 and 80 seconds; the last one did a deed.
Invariant: each expected figure is a sum a reader can do, in the comment beside it.
"""

from __future__ import annotations

import math

import pytest

from indelible.bill.crashes import (
    AT_MOST,
    EXACT,
    JOURNALS,
    NOTHING,
    UNKNOWN,
    Exposure,
    Lost,
    Price,
    break_even,
    is_safe,
    lost,
    months,
    price,
)
from indelible.bill.strategies import EVERY_5, EVERY_10, JSON, OURS, STRATEGIES

from .made_courses import FOUR, completed, exposed, loop

ALL = (1, 2, 3, 4)
SEEN = Exposure.of(FOUR, traced=True)

BY_HAND = [
    # (1 + 3 + 7 + 15) / 4; half of the loop and all before: (5 + 20 + 50 + 110) / 4; (1 + 2 + 3 + 4) / 4
    (NOTHING, (), 6.5, 46.25, 1.0, 2.5),
    # (1 + 2 + 4 + 8) / 4; (5 + 10 + 20 + 40) / 4
    (JSON, ALL, 3.75, 18.75, 1.0, 1.0),
    # (1 + 3 + 4 + 12) / 4; (5 + 20 + 20 + 80) / 4; (1 + 2 + 1 + 2) / 4
    (EVERY_5, (2, 4), 5.0, 31.25, 1.0, 1.5),
    # only the call under way, here the whole loop; a deed in one of four
    (OURS, ALL, 3.75, 18.75, 0.25, 0.0),
]


@pytest.mark.parametrize(("strategy", "saved", "usd", "seconds", "asked", "again"), BY_HAND)
def test_a_crash_takes_what_it_does_by_hand(
    strategy: str, saved: tuple[int, ...], usd: float, seconds: float, asked: float, again: float
) -> None:
    assert lost([(SEEN, saved)], strategy) == Lost(usd, seconds, asked, again, loops=4)


def test_several_runs_are_pooled_by_their_loops() -> None:
    one = exposed(loop(10, 100))
    # (26 + 10) / 5 and (185 + 50) / 5
    found = lost([(SEEN, ()), (one, ())], NOTHING)
    assert found.usd == pytest.approx(7.2)
    assert found.seconds == pytest.approx(47.0)
    assert found.loops == 5


def test_the_call_under_way_is_the_one_that_takes_long() -> None:
    made = loop(4, 4, records=(completed(1, 1), completed(3, 3)))
    ours, dump = lost([(exposed(made), (1,))], OURS), lost([(exposed(made), (1,))], JSON)
    assert ours.usd == pytest.approx(2.5)  # a quarter of the time $1, three quarters $3
    assert dump.usd == pytest.approx(3.25)  # a quarter $1, three quarters all $4
    assert ours.seconds == pytest.approx(1.25)  # half a call of (1 × 1 + 3 × 3) / 4
    assert dump.seconds == pytest.approx(2.0)


def test_without_times_the_call_under_way_is_one_that_was_paid_for() -> None:
    made = loop(6, records=(completed(0, 0), completed(2, 0), completed(4, 0)))
    assert lost([(exposed(made), (1,))], OURS).usd == pytest.approx(3.0)  # (2 + 4) / 2
    assert lost([(exposed(made), (1,))], JSON).usd == pytest.approx(4.0)  # (2 + 6) / 2
    assert lost([(exposed(made), (1,))], OURS).seconds is None


def test_a_call_inside_another_does_not_count_its_time_twice() -> None:
    made = loop(1, 5, records=(completed(1, 4, call="in", within="out"), completed(None, 5, call="out")))
    # four of five seconds in the call that costs $1
    assert lost([(exposed(made), (1,))], OURS).usd == pytest.approx(0.8)
    assert lost([(exposed(made), (1,))], JSON).usd == pytest.approx(1.0)


def test_what_a_probe_found_was_not_paid_for_again() -> None:
    made = loop(2, 2, records=(completed(2, 2), completed(9, 9, source="probe")))
    assert lost([(exposed(made), (1,))], OURS).usd == pytest.approx(2.0)


def test_unknown_money_is_never_zero() -> None:
    nothing_known = lost([(exposed(loop(None), loop(0)), (1, 2))], JSON)
    assert nothing_known.usd is None
    assert nothing_known.at_least
    some = lost([(exposed(loop(None), loop(4)), (1, 2))], JSON)
    assert (some.usd, some.at_least, some.unpriced) == (2.0, True, 1)
    assert lost([(exposed(loop(0)), (1,))], JSON).usd == 0.0, "a price of zero is known"
    assert lost([(exposed(loop(1, 1), loop(1)), (1, 2))], JSON).seconds is None


def test_a_deed_is_a_decision_of_a_trace_and_a_recorded_deed_of_a_run() -> None:
    decided = loop(0, 1, decision=True)
    did = loop(0, 1, records=(completed(None, 1, effect="irreversible"),))
    assert lost([(exposed(decided, traced=True), (1,))], OURS).asked == 1.0
    assert lost([(exposed(decided, traced=False), (1,))], OURS).asked == 0.0
    assert lost([(exposed(did, traced=False), (1,))], OURS).asked == 1.0


def test_what_is_saved_after_a_loop_is_not_safe() -> None:
    assert {name for name in STRATEGIES if is_safe(name)} == set(JOURNALS)
    assert not is_safe(NOTHING)


def test_a_developer_looks_at_the_crashes_that_ask_for_it() -> None:
    # a quarter of crashes × 6 min × $80 / 60
    found = price(Lost(1.5, None, 0.25, 0.0, loops=4), minutes_per_crash=6, hourly_rate=80)
    assert found.developer_usd == pytest.approx(2.0)
    assert (found.usd, found.known) == (3.5, True)
    assert not price(Lost(None, None, 1, 1, loops=4, unpriced=4), minutes_per_crash=0, hourly_rate=0).known


@pytest.mark.parametrize(
    ("extra", "saved", "expected"), [(6, 2, 3.0), (6, 0, None), (6, -1, None), (0, 0, 0.0), (-1, 5, 0.0)]
)
def test_break_even(extra: float, saved: float, expected: float | None) -> None:
    assert break_even(extra, saved) == expected


def priced(usd: float | None, again: float, unpriced: int = 0) -> Price:
    return Price(Lost(usd, None, 1.0, again, loops=4, unpriced=unpriced), 1.0)


def test_a_month_is_storage_and_crashes() -> None:
    crash = {JSON: priced(3, 1), EVERY_10: priced(5, 5), OURS: priced(2, 0)}
    rows = months({JSON: 7.0, EVERY_10: 1.0, OURS: 4.0}, crash, crashes_per_month=10, durable=True)
    assert [row.total_usd for row in rows] == [47.0, 61.0, 34.0]
    # (7 - 1) / (6 - 4) and (4 - 1) / (6 - 3)
    assert [row.break_even for row in rows] == [3.0, 0.0, 1.0]
    assert [row.best for row in rows] == [False, False, True]
    assert {row.even_known for row in rows} == {EXACT}


def test_the_best_is_safe_even_if_another_is_cheaper_and_none_is_where_nothing_is_durable() -> None:
    crash = {JSON: priced(0, 1), OURS: priced(0, 0)}
    rows = months({JSON: 0.0, OURS: 4.0}, crash, crashes_per_month=0, durable=True)
    assert [row.strategy for row in rows if row.best] == [OURS]
    rows = months({JSON: 0.0, OURS: 4.0}, crash, crashes_per_month=0, durable=False)
    assert not any(row.best for row in rows)


def test_of_equally_cheap_ones_the_one_that_writes_less_is_the_best() -> None:
    crash = {name: priced(0, 0) for name in JOURNALS}
    written = dict(zip(JOURNALS, (3, 2, 1), strict=True))
    rows = months(dict.fromkeys(JOURNALS, 0.08), crash, crashes_per_month=1, durable=True, written=written)
    assert [row.strategy for row in rows if row.best] == [OURS]
    assert [row.break_even for row in rows] == [0.0, 0.0, 0.0]


def test_a_break_even_that_hangs_on_unknown_money_is_unknown() -> None:
    """What is dearer and loses fewer loops saves money that nobody can tell."""
    crash = {JSON: priced(None, 1, 4), EVERY_10: priced(None, 5, 4), OURS: Price(Lost(None, None, 0, 0, 4, 4), 0.5)}
    rows = months({JSON: 7.0, EVERY_10: 1.0, OURS: 2.0}, crash, crashes_per_month=1, durable=True)
    assert [(row.break_even, row.even_known) for row in rows] == [(None, UNKNOWN), (0.0, EXACT), (2.0, AT_MOST)]


def test_a_course_without_a_loop_loses_nothing_that_is_known() -> None:
    found = lost([(exposed(), ())], OURS)
    assert (found.usd, found.seconds, found.loops) == (None, None, 0)
    assert not math.isnan(found.asked)
