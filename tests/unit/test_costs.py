"""When a repeatable result is written before its cycle ends."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import indelible as ind
from indelible.core import events as ev
from indelible.core.costs import Economic, Economy, Prompt, Where
from indelible.errors import Misuse
from indelible.runtime.runstore import RunStore
from tests.unit.simple_agents import agent_of

DAY = 86_400.0


@pytest.mark.parametrize(
    ("took", "usd", "due"),
    [(0.0, 0.0, False), (0.0, 1e-9, True), (0.0, None, True), (0.019, 0.0, False), (0.021, 0.0, True)],
)
def test_promptly_what_was_paid_for_or_took_longer_than_twenty_commits(
    took: float, usd: float | None, due: bool
) -> None:
    assert Prompt().due(0.0, took, usd, Where(0, 0, 0.001)) is due


def flushes(economy: Economy, flush_s: float, took: float, usd: float, count: int) -> list[int]:
    rule, durable, found = Economic(economy), 0, []
    for number in range(1, count + 1):
        if rule.due(1e9 + number * took, took, usd, Where(number - 1, durable, flush_s)):
            durable = number
            found.append(number)
    return found


@pytest.mark.parametrize("usd_per_write", [5e-6, 1e-4, 0.01, 1.0])
@pytest.mark.parametrize("mtbf_s", [3_600.0, DAY, 30 * DAY])
def test_of_even_results_as_many_go_together_as_young_and_daly_say(usd_per_write: float, mtbf_s: float) -> None:
    """k(k+1)/2 results' dollar-seconds reach C M where k is nearest to sqrt(2 C M / r) in steps."""
    economy, took, usd = Economy(mtbf_s, 0.0, usd_per_write), 10.0, 0.01
    optimum = math.sqrt(2 * usd_per_write * mtbf_s / (usd / took)) / took
    found = flushes(economy, 0.0, took, usd, 20 * math.ceil(optimum) + 20)
    gaps = {after - before for before, after in pairwise(found)}
    assert gaps <= {max(1, math.floor(optimum)), max(1, math.ceil(optimum)), max(1, round(optimum))}


def test_a_dearer_write_or_a_rarer_crash_means_fewer_writes() -> None:
    def count(mtbf_s: float, usd_per_write: float) -> int:
        return len(flushes(Economy(mtbf_s, 1.0, usd_per_write), 0.001, 5.0, 0.001, 2_000))

    assert count(3_600.0, 0.0) > count(DAY, 0.0) > count(DAY, 1e-5) > count(30 * DAY, 1e-5) > 0


def test_what_has_no_known_price_is_written_at_once() -> None:
    """Unknown is never zero."""
    rule = Economic(Economy(1e12, 0.0, 1e6))
    assert not rule.due(1.0, 1.0, 5.0, Where(0, 0, 0.001))
    assert rule.due(2.0, 1.0, None, Where(1, 0, 0.001))


def test_what_was_flushed_for_another_reason_is_no_longer_at_risk() -> None:
    economy = Economy(DAY, 0.0, 1e-4)
    left_alone, written = Economic(economy), Economic(economy)
    asked = [
        (left_alone.due(10.0 * n, 10.0, 0.01, Where(n - 1, 0, 0.0)),
         written.due(10.0 * n, 10.0, 0.01, Where(n - 1, n - 1, 0.0)))
        for n in range(1, 40)
    ]  # fmt: skip
    assert any(alone for alone, _ in asked)
    assert not any(then for _, then in asked)


def test_a_clock_that_is_set_back_ends_no_count() -> None:
    """What is at risk grows by the time that the result took."""
    economy = Economy(DAY, 0.0, 1e-4)
    rule, found = Economic(economy), []
    for number in range(1, 40):
        found.append(rule.due(1e9 - 3_600.0 * number, 10.0, 0.01, Where(number - 1, 0, 0.0)))
    assert True in found


@ind.action
def think(n: int) -> int:
    ind.usage(usd=0.0001)
    return n


@ind.action(effect="irreversible")
def send(n: int) -> int:
    return n


def body(run: ind.Run[Any]) -> None:
    for n in range(20):
        think(n)
    send(1)
    run.finish()


def kinds_by_batch(runs: RunStore) -> list[list[str]]:
    """The events of each batch, by name."""
    ends = [batch.last_seq for batch in runs.store.read("r")]
    found: list[list[str]] = [[] for _ in ends]
    for seq, event in runs.events("r"):
        found[next(at for at, end in enumerate(ends) if seq <= end)].append(ev.kind_of(event))
    return found


def test_a_run_writes_less_and_its_deeds_and_commits_as_ever(tmp_path: Path) -> None:
    batches = {}
    for durability in ("full", "economic"):
        with ind.open(tmp_path / f"{durability}.db", durability=durability, mtbf_hours=720) as runs:
            assert agent_of(body).run("o", store=runs, run_id="r").is_finished
            batches[durability] = kinds_by_batch(runs)
    # One batch for each result that was paid for, against one for all of them.
    assert sum("action.completed" in kinds for kinds in batches["full"]) == 21
    written = batches["economic"]
    assert sum("action.completed" in kinds for kinds in written) == 2
    (intent,) = [at for at, kinds in enumerate(written) if "action.intended" in kinds]
    assert written[intent].count("action.completed") == 20, "they went with the intent"
    assert written[intent][-1] == "action.intended", "which is on disk before the call"
    assert written[intent + 1][0] == "action.completed", "as is what came of it, before it is returned"
    assert "run.finished" in written[-1]


def test_where_a_crash_is_likely_a_result_is_written_at_once(tmp_path: Path) -> None:
    with ind.open(tmp_path / "a.db", durability="economic", mtbf_hours=1e-6) as runs:
        agent_of(body).run("o", store=runs, run_id="r")
        assert sum("action.completed" in kinds for kinds in kinds_by_batch(runs)) == 21


@pytest.mark.parametrize(
    "numbers",
    [{"mtbf_hours": 0}, {"mtbf_hours": math.nan}, {"mtbf_hours": True}, {"usd_per_hour": -1.0},
     {"usd_per_write": math.inf}, {"usd_per_write": "5"}],
)  # fmt: skip
def test_numbers_that_cannot_be(tmp_path: Path, numbers: dict[str, Any]) -> None:
    with pytest.raises(Misuse, match=next(iter(numbers))):
        ind.open(tmp_path / "a.db", durability="economic", **numbers)
    assert not (tmp_path / "a.db").exists()
