"""The simulation of economic durability."""

from __future__ import annotations

import math

import pytest

from indelible.bill import prices
from indelible.bill.economics import KINDS, Kind, Step, economic, every, expected, simulate, steps
from indelible.core.costs import Economy


def test_what_a_plan_is_expected_to_cost_by_hand() -> None:
    """Two steps of 100 s and $1, a flush of 10 s and $0.5 after both; a crash every 1,000 s, time worth nothing."""
    economy, run = Economy(1_000.0, 0.0, 0.5), [Step(100.0, 1.0), Step(100.0, 1.0)]
    second, flush = math.exp(-0.1) - math.exp(-0.2), math.exp(-0.2) - math.exp(-0.21)
    assert expected(run, [2], economy, 10.0) == pytest.approx(0.5 + math.exp(0.21) * (1 * second + 2 * flush))
    # With a flush after each step only its own 10 s are dangerous.
    only = math.exp(0.11) * (math.exp(-0.1) - math.exp(-0.11))
    assert expected(run, [1, 2], economy, 10.0) == pytest.approx(2 * (0.5 + only))


def test_the_steps_are_uneven_and_have_the_means_they_are_made_for() -> None:
    made = steps(Kind("calls", 10.0, 0.01), 5_000)
    assert sum(step.took_s for step in made) / len(made) == pytest.approx(10.0, rel=0.02)
    assert sum(step.usd for step in made) / len(made) == pytest.approx(0.01, rel=0.02)
    assert max(step.took_s for step in made) > 100 * min(step.took_s for step in made)


def test_the_rule_is_within_a_tenth_of_the_best_everywhere() -> None:
    found = list(simulate(prices.load(), count=4_000))
    assert len(found) == len(KINDS) * 5 * 4
    assert max(one.to_best for one in found) <= 1.1
    # It is no fixed habit in disguise: each of those is far off somewhere.
    assert max(one.every_loop / one.economic for one in found) > 10
    assert max(one.every_5 / one.economic for one in found) > 10
    assert max(one.never / one.economic for one in found if one.never is not None) > 10


def test_plans() -> None:
    assert every(7, 3) == [3, 6, 7]
    run = [Step(1.0, 0.01)] * 9
    assert economic(run, Economy(1e-3, 1.0), 0.001) == list(range(1, 10))
    assert economic(run, Economy(1e12, 1.0), 0.001) == [9]
