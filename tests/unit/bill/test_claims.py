"""The three public claims, each against figures worked out by hand.

Owns: four dumps of 1,000 bytes, four batches of 100 bytes, and prices that make round sums.
Invariant: each expected figure is a sum a reader can do, in the comment beside it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from indelible.bill.claims import claim, crossing, developer, logs, snapshots
from indelible.bill.costs import Footprint
from indelible.bill.course import Encoded
from indelible.bill.prices import BYTES_PER_GB, Figure, Storage, load
from indelible.bill.report import from_on, up_to
from indelible.bill.sample import Assumed, Part, Sample
from indelible.bill.strategies import DECISIONS, EVERY_5, EVERY_10, JSON, OURS, PATCH
from indelible.errors import Misuse

from .made_courses import FOUR, four_ways

GB = BYTES_PER_GB


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """$1 a write request, and $1 for a thousand bytes kept a month."""
    file = tmp_path / "p.toml"
    file.write_text(
        '[round]\ntitle = "round"\n[round.write_request]\nvalue = 1\nunit = "request"\n'
        f'[round.storage]\nvalue = {GB / 1000}\nunit = "GB-month"\n',
        encoding="utf-8",
    )
    return load(file)["round"]


def made() -> Sample:
    dumps = Footprint.overwriting([1000] * 4)
    encoded = (
        *four_ways(),
        Encoded(EVERY_10, dumps, 0.0, (4,)),
        Encoded(DECISIONS, dumps, 0.0, (4,)),
        Encoded(PATCH, Footprint.appending([100] * 4), 0.0, (1, 2, 3, 4), appends=True),
    )
    return Sample((Part(FOUR, encoded, True),))


ONE = Assumed(runs_per_day=1, keep_days=0, crashes_per_month=10)


def test_crossing_finds_where_a_formula_comes_to_the_claim() -> None:
    assert crossing(lambda x: 3 * x, 12) == pytest.approx(4, rel=1e-5)
    assert crossing(lambda x: 0.001 * x, 1e-9) == pytest.approx(1e-6, rel=1e-3)
    assert crossing(lambda _: 5.0, 4) == 0.0
    assert crossing(lambda _: 5.0, 6) is None
    assert crossing(lambda x: x, 5, most=4) is None


def test_state_logs_come_to_400_dollars(storage: Storage) -> None:
    # kept for nothing, a run a day: 30 days × 4 writes × $1 = $120; $400 at 3.333 runs a day
    found = logs(made(), [storage], ONE)
    (facts,) = found.facts
    assert facts["usd"] == pytest.approx(120)
    assert facts["runs_per_day_for_400_usd"] == pytest.approx(400 / 120, rel=1e-5)
    assert facts["ours_usd_at_that"] == pytest.approx(400, rel=1e-5), "a batch is a request as well"
    # kept for a day: each of 4 dumps stays, 4 × 1,000 bytes × 1 day = 4 × $1 more
    (facts,) = logs(made(), [storage], replace(ONE, keep_days=1)).facts
    assert facts["usd"] == pytest.approx(124)
    # ours keeps 400 bytes, $0.40; $120.40 a month for a run a day
    assert facts["ours_usd"] == pytest.approx(120.4)
    assert facts["ours_usd_at_that"] == pytest.approx(400 / 124 * 120.4, rel=1e-5)
    assert "not true" in found.conditions[0]
    assert ": true. Where they come to $400, " in logs(made(), [storage], replace(ONE, runs_per_day=4)).conditions[0]


def test_logs_that_never_cost_that_much_are_said_to(storage: Storage) -> None:
    free = replace(storage, figures={"write_request": replace(storage.figures["write_request"], value=0.0)})
    found = logs(made(), [free], ONE)
    assert found.rows[0][2:] == ("never", "-", "never")
    assert "not true at any number of runs a day" in found.conditions[0]


def test_snapshots_are_70_percent(storage: Storage) -> None:
    found = snapshots(made(), [storage], ONE)
    kept, over = found.facts[:2]
    # not kept at all: 4 writes each, so half; all else may be $120 × 3 / 7
    assert (kept["usd"], kept["log_usd"], kept["share"]) == (pytest.approx(120), pytest.approx(120), 0.5)
    assert kept["rest_of_bill_at_most_usd"] == pytest.approx(120 * 3 / 7)
    # kept d days: (120 + 4d) / (240 + 4d + 0.4d) = 0.7, so 120 + 4d = 168 + 3.08d, d = 52.17
    assert kept["70_percent_from_keep_days"] == pytest.approx(48 / 0.92, rel=1e-4)
    # overwritten d days: (120 + d) / (240 + 1.4d) = 0.7, so d = 48 / 0.02
    assert over["70_percent_from_keep_days"] == pytest.approx(48 / 0.02, rel=1e-4)
    every = found.facts[2]
    # two writes: (60 + 2d) / (180 + 2.4d) = 0.7, so 60 + 2d = 126 + 1.68d
    assert (every["snapshots"], every["usd"]) == (EVERY_5, pytest.approx(60))
    assert every["70_percent_from_keep_days"] == pytest.approx(66 / 0.32, rel=1e-4)
    assert found.facts[-1]["snapshots"] == OURS
    assert found.facts[-1]["share"] == 0.0
    assert "It is true if runs are kept 52.2 days or more." in found.conditions[0]
    assert found.conditions[-1] == "round: Indelible's journal costs $120.00 a month, of which its snapshots are 0%"


def test_snapshots_where_the_share_falls_or_holds_always(storage: Storage) -> None:
    long = Encoded(PATCH, Footprint.appending([10_000]), 0.0, (4,), appends=True)
    sample = Sample((Part(FOUR, (*made().parts[0].encoded[:-1], long), True),))
    found = snapshots(sample, [storage], ONE)
    # (120 + 4d) / (150 + 14d) = 0.7 at d = 15 / 5.8: up to then
    assert found.facts[0]["70_percent_from_keep_days"] == 0.0
    assert found.facts[0]["70_percent_up_to_keep_days"] == pytest.approx(15 / 5.8, rel=1e-4)
    assert "if runs are kept 2.58 days or less" in found.conditions[0]
    short = Encoded(PATCH, Footprint.appending([1]), 0.0, (4,), appends=True)
    sample = Sample((Part(FOUR, (*made().parts[0].encoded[:-1], short), True),))
    assert "however long runs are kept" in snapshots(sample, [storage], ONE).conditions[0]


def test_where_nothing_can_be_overwritten_only_what_is_kept_is_told(storage: Storage) -> None:
    found = snapshots(made(), [replace(storage, append_only=True)], ONE)
    assert {facts["each"] for facts in found.facts} == {"kept", "newest two"}


def test_five_minutes_of_a_developer_pay(storage: Storage) -> None:
    found = developer(made(), [storage], ONE)
    nothing, dumps = found.facts
    # ours costs $120; a crash asks for 5 min, with the journal in one of four: 3.75 min × $1 are saved
    assert (nothing["ours_usd"], nothing["extra_usd"]) == (pytest.approx(120), pytest.approx(120))
    assert nothing["minutes_saved_per_crash"] == pytest.approx(3.75)
    assert nothing["crashes_per_month"] == pytest.approx(32)
    assert nothing["minutes_per_crash"] == pytest.approx(16)  # 16 min × 3/4 × 10 = 120
    assert nothing["up_to_runs_per_day"] == pytest.approx(37.5 / 120, rel=1e-5)
    # and the money, as well: $6.50 against $3.75
    assert nothing["saved_per_crash_usd_with_money_paid_again"] == pytest.approx(6.5 - 3.75 + 3.75)
    assert (dumps["extra_usd"], dumps["crashes_per_month"]) == (pytest.approx(0), 0.0)
    assert "not true" in found.conditions[0]
    assert found.conditions[1].endswith("true without any crash: the journal costs no more")
    paid = developer(made(), [storage], replace(ONE, crashes_per_month=33))
    assert paid.conditions[0].endswith("is saved for $120.00 of storage: true")


def test_a_crash_that_saves_no_minutes_never_pays(storage: Storage) -> None:
    found = developer(made(), [storage], replace(ONE, minutes_per_crash=0))
    assert found.facts[0]["crashes_per_month"] is None
    assert "never true" in found.conditions[0]


def test_a_cache_does_not_help_at_a_crash(storage: Storage) -> None:
    found = developer(made(), [replace(storage, durable=False)], ONE)
    assert not found.facts
    assert found.conditions == ["round: left out, for what it acknowledged can be lost in a crash"]


def test_a_claim_is_known_or_refused(storage: Storage) -> None:
    assert claim("logs", made(), [storage], ONE).name == "logs"
    with pytest.raises(Misuse, match="no claim 'moon'") as caught:
        claim("moon", made(), [storage], ONE)
    assert caught.value.hint == "--claim logs | snapshots | developer"


def test_each_claim_names_json_as_the_other_way(storage: Storage) -> None:
    assert {row[1] for row in developer(made(), [storage], ONE).rows} == {"nothing is kept", JSON}


def test_a_condition_holds_at_the_figure_that_is_shown() -> None:
    """Rounded up from where on, down up to where: at the figure itself the claim is true, and one digit further not."""
    assert [from_on(value) for value in (0.0, 1 / 3, 0.00001, 3.1201, 32.0, 1014.1, 157706.2)] == [
        "0", "0.334", "0.001", "3.13", "32", "1,015", "157,707",
    ]  # fmt: skip
    assert [up_to(value) for value in (1 / 3, 2.586, 32.0, 2192047.9)] == ["0.333", "2.58", "32", "2,192,047"]
    # a sum of floats that is a hair off a whole number is that number
    assert (from_on(32 + 1e-14), up_to(32 - 1e-14)) == ("32", "32")


@pytest.mark.parametrize("crashes", [31, 32, 33])
def test_the_verdict_agrees_with_the_condition(storage: Storage, crashes: int) -> None:
    found = developer(made(), [storage], replace(ONE, crashes_per_month=crashes))
    assert "true from 32 crashes a month on" in found.conditions[0]
    assert found.conditions[0].endswith(": true") == (crashes >= 32)


@pytest.mark.parametrize("runs", [3, 4])
def test_a_run_a_day_less_and_more(storage: Storage, runs: int) -> None:
    # $120 a month for a run a day, so from 3.34 on
    found = logs(made(), [storage], replace(ONE, runs_per_day=runs))
    assert "true from 3.34 runs a day on" in found.conditions[0]
    assert (": true. " in found.conditions[0]) == (runs == 4)


def test_how_many_runs_it_pays_for(storage: Storage) -> None:
    free = replace(storage, figures={"write_request": replace(storage.figures["write_request"], value=0.0)})
    assert developer(made(), [free], ONE).rows[0][-1] == "any, to 1,000,000,000"
    # 37.5 / 120 = 0.3125 runs a day
    assert developer(made(), [storage], ONE).rows[0][-1] == "0.312"
    assert developer(made(), [storage], replace(ONE, crashes_per_month=0)).rows[0][-1] == "never"


def test_where_space_is_billed_in_volumes_no_days_are_told(storage: Storage) -> None:
    """A share of two volumes jumps up and down with each whole GB, so that there is no day from which on it holds."""
    step = Figure(GB, "bytes", "", "")
    found = snapshots(made(), [replace(storage, figures={**storage.figures, "stored_step_bytes": step})], ONE)
    assert (found.facts[0]["70_percent_from_keep_days"], found.rows[0][6]) == (None, "not told")
    assert "how long runs would have to be kept is not told" in found.conditions[0]


def test_money_that_is_not_known_is_not_saved(storage: Storage) -> None:
    course = replace(FOUR, loops=tuple(replace(loop, usd=None) for loop in FOUR.loops))
    sample = Sample((Part(course, made().parts[0].encoded, True),))
    assert developer(sample, [storage], ONE).facts[0]["saved_per_crash_usd_with_money_paid_again"] is None
