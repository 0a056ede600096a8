"""What a month costs, against figures worked out by hand.

Owns: one table for every storage, and the rules for smallest amounts.
Invariant: each expected figure is a sum a reader can do, in the comment beside it.
"""

from __future__ import annotations

import math

import pytest

from indelible.bill.costs import Cost, Footprint, Sizes, monthly, one_write
from indelible.bill.prices import BYTES_PER_GB, Storage, load
from indelible.errors import Misuse

PRICES = load()
GB = BYTES_PER_GB
# A run writes 100 times 1,000 bytes. 1,000 runs a day are 30,000 a month and 3,000,000 writes.
JOURNAL = Footprint.of(Sizes.of([1000] * 100), stored_bytes=100_000)
OBJECTS = Footprint.appending([1000] * 100)
DUMP = Footprint.overwriting([1_048_576] * 100)


def month(name: str, run: Footprint, runs_per_day: float = 1000, keep_days: float = 30) -> Cost:
    return monthly(PRICES[name], run, runs_per_day=runs_per_day, keep_days=keep_days)


# 30,000 runs are kept. Local disk, EFS and the rest: a journal in one file of 100,000 bytes.
BY_HAND = [
    # 3M writes of 4,096 bytes × $0.00018; 30,000 × 25 blocks of 4,096 × $0.002
    ("local-disk", JOURNAL, {"bytes written": 3e6 * 4096 / GB * 0.00018, "storage": 3e4 * 102_400 / GB * 0.002}),
    # 3e9 bytes are 2.79 GB, so 3 GB × $0.08
    ("ebs-gp3", JOURNAL, {"storage": 0.24}),
    # 3M writes × 32 KiB = 91.55 GB × $0.06; 30,000 × (100,000 + 2,048 → 25 × 4,096) × $0.30
    ("efs", JOURNAL, {"bytes written": 91.552734375 * 0.06, "storage": 3e4 * 102_400 / GB * 0.30}),
    # 3,000 thousands of PUT × $0.005 = $15; 2.79 GB × $0.023
    ("s3-standard", OBJECTS, {"write requests": 15.0, "storage": 3e9 / GB * 0.023}),
    # 3,000 × $0.01 = $30; 3M objects × 128 KiB = 366.2 GB × $0.0125
    ("s3-standard-ia", OBJECTS, {"write requests": 30.0, "storage": 366.2109375 * 0.0125}),
    # 3,000 × $0.00113 = $3.39; 2.79 GB × $0.0032; 2.79 GB × $0.11
    ("s3-express", OBJECTS, {"write requests": 3.39, "bytes written": 3e9 / GB * 0.0032, "storage": 3e9 / GB * 0.11}),
    # 3,000 × $0.005; 2.79 GB × $0.02
    ("gcs-standard", OBJECTS, {"write requests": 15.0, "storage": 3e9 / GB * 0.02}),
    # 300 ten thousands × $0.05; 2.79 GB × $0.0208
    ("azure-blob-hot", OBJECTS, {"write requests": 15.0, "storage": 3e9 / GB * 0.0208}),
    # 3M write units of 1 KB × $0.625; 3M items of 1,100 bytes × $0.25
    ("dynamodb", OBJECTS, {"write units": 1.875, "storage": 3.3e9 / GB * 0.25}),
    # 3M ECPU × $0.0023; 2.79 GB × 720 h × $0.084
    ("elasticache", OBJECTS, {"write units": 0.0069, "storage": 3e9 / GB * 720 * 0.084}),
    # 720 h × $0.016; 2.79 GB are fewer than the 20 that are billed: 20 × $0.115
    ("rds-postgres", JOURNAL, {"instance": 11.52, "storage": 2.3}),
    # 3M events of 1,026 bytes × $0.50; 2.79 GB × 0.15 × $0.03
    ("cloudwatch-logs", OBJECTS, {"bytes written": 3.078e9 / GB * 0.5, "storage": 3e9 / GB * 0.15 * 0.03}),
]


@pytest.mark.parametrize(("name", "run", "expected"), BY_HAND, ids=[row[0] for row in BY_HAND])
def test_a_month_costs_what_it_does_by_hand(name: str, run: Footprint, expected: dict[str, float]) -> None:
    cost = month(name, run)
    assert {line.name: line.dollars for line in cost.lines} == pytest.approx(expected, rel=1e-9)
    assert cost.dollars == pytest.approx(sum(expected.values()), rel=1e-9)


def test_every_shipped_storage_was_worked_out_by_hand() -> None:
    assert {storage.name for storage in PRICES} == {row[0] for row in BY_HAND}


@pytest.mark.parametrize(
    ("name", "what", "size", "billed"),
    [
        ("efs", "write", 0, 32_768),
        ("efs", "write", 1, 32_768),
        ("efs", "write", 32_768, 32_768),
        ("efs", "write", 32_769, 33_792),  # the next KiB
        ("efs", "object", 1, 4096),  # one byte and 2 KiB of metadata, in one block
        ("efs", "object", 2049, 8192),
        ("s3-standard", "object", 1, 1),
        ("s3-standard-ia", "object", 1, 131_072),
        ("s3-standard-ia", "object", 131_073, 131_073),
        ("s3-standard-ia", "write", 1, 1),  # the minimum is for what is kept
        ("local-disk", "write", 4097, 8192),
        ("cloudwatch-logs", "write", 100, 126),
        ("rds-postgres", "stored", 0, 20 * GB),
        ("rds-postgres", "stored", 20 * GB + 1, 21 * GB),
        ("elasticache", "stored", 1, 104_857_600),
        ("elasticache", "stored", 104_857_601, 104_857_601),
        ("ebs-gp3", "stored", 1, GB),
    ],
)
def test_the_bytes_that_are_billed(name: str, what: str, size: int, billed: int) -> None:
    assert PRICES[name].metered(what, size) == billed


@pytest.mark.parametrize(
    ("name", "what", "size", "units"),
    [
        ("dynamodb", "write", 0, 1),
        ("dynamodb", "write", 1, 1),
        ("dynamodb", "write", 1024, 1),
        ("dynamodb", "write", 1025, 2),
        ("dynamodb", "read", 4096, 1),
        ("dynamodb", "read", 4097, 2),
        ("elasticache", "write", 3000, 3),
    ],
)
def test_the_units_that_are_billed(name: str, what: str, size: int, units: int) -> None:
    assert PRICES[name].units(what, size) == units


def test_infrequent_access_bills_thirty_days_however_soon_a_run_is_deleted() -> None:
    """A run kept for a day costs what one kept for a month does, and its requests do not change."""
    assert month("s3-standard-ia", OBJECTS, keep_days=1).dollars == month("s3-standard-ia", OBJECTS).dollars
    assert month("s3-standard-ia", OBJECTS, keep_days=60).dollars > month("s3-standard-ia", OBJECTS).dollars
    assert "kept 1, paid for at least 30" in month("s3-standard-ia", OBJECTS, keep_days=1).lines[-1].formula


def test_infrequent_access_bills_each_version_that_was_overwritten() -> None:
    """One run a day leaves 1 MiB for 30 days, and 99 MiB that are gone at once and paid for 30 days all the same."""
    storage = month("s3-standard-ia", DUMP, runs_per_day=1).lines[-1]
    assert storage.quantity == pytest.approx(100 * 30 / 1024)  # GB-month
    assert month("s3-standard", DUMP, runs_per_day=1).lines[-1].quantity == pytest.approx(30 / 1024)
    assert month("s3-express", DUMP, runs_per_day=1).lines[-1].quantity == pytest.approx((30 + 99 / 24) / 1024)


def test_object_storage_bills_a_small_dump_for_its_requests_and_not_for_its_bytes() -> None:
    small, large = (month("s3-standard", Footprint.overwriting([size] * 100)) for size in (10, 10_000))
    assert small.lines[0] == large.lines[0]
    assert small.lines[0].dollars > 0.99 * small.dollars
    assert large.lines[0].dollars > 0.5 * large.dollars


def test_a_log_that_cannot_be_overwritten_keeps_every_version() -> None:
    kept = month("cloudwatch-logs", DUMP, runs_per_day=1).lines[-1]
    assert kept.quantity == pytest.approx(100 * 30 / 1024 * 0.15)


def test_kept_for_no_time_costs_no_space_but_what_is_paid_anyway() -> None:
    assert month("s3-standard", OBJECTS, keep_days=0).lines[-1].dollars == 0
    assert month("s3-standard-ia", OBJECTS, keep_days=0).lines[-1].dollars > 0
    assert month("rds-postgres", OBJECTS, runs_per_day=0).dollars == pytest.approx(13.82)


def test_twice_the_runs_cost_twice_the_writes() -> None:
    for name in ("efs", "s3-standard-ia", "dynamodb", "cloudwatch-logs"):
        assert month(name, OBJECTS, 2000).dollars == pytest.approx(2 * month(name, OBJECTS, 1000).dollars), name


def test_reads_are_billed_if_there_are_any() -> None:
    """A resume a run: 3M reads. GETs in thousands × $0.001, and retrieval by the GB × $0.01."""
    run = Footprint(JOURNAL.writes, JOURNAL.kept, reads=Sizes.of([1000] * 100))
    lines = {line.name: line for line in month("s3-standard-ia", run).lines}
    assert lines["read requests"].dollars == pytest.approx(3.0)
    assert lines["bytes read"].dollars == pytest.approx(3e9 / GB * 0.01)
    assert {line.name for line in month("s3-standard-ia", JOURNAL).lines} == {"write requests", "storage"}
    efs = {line.name: line for line in month("efs", run).lines}
    assert efs["bytes read"].dollars == pytest.approx(91.552734375 * 0.03)


def test_the_formula_shows_where_a_quantity_is_from() -> None:
    written, stored = month("efs", JOURNAL).lines
    assert written.formula == (
        "1,000 runs a day × 30 days × 3.125 MB (of 97.66 KB) in 100 writes, each at least 32 KB, by 1 KB"
    )
    assert (written.unit, written.unit_price) == ("GB", 0.06)
    assert stored.formula == "1,000 runs a day × 100 KB (of 97.66 KB) in 1 object, each + 2 KB, by 4 KB × 30 days"
    (units, _) = month("dynamodb", OBJECTS).lines
    assert units.formula == "1,000 runs a day × 30 days × 100 units (100 writes by 1 KB)"
    assert month("ebs-gp3", JOURNAL).lines[0].formula.endswith("billed as 3 GB")
    assert "99 MB in 99 replaced × 30 days" in month("s3-standard-ia", DUMP).lines[-1].formula


def test_one_more_write_costs_its_request_its_units_and_its_bytes() -> None:
    assert one_write(PRICES["s3-standard"], 10) == pytest.approx(5e-6)
    assert one_write(PRICES["s3-express"], GB) == pytest.approx(0.00113 / 1000 + 0.0032)
    assert one_write(PRICES["efs"], 10) == pytest.approx(32_768 / GB * 0.06)
    assert one_write(PRICES["dynamodb"], 10_000) == pytest.approx(10 * 0.625e-6)
    assert one_write(PRICES["rds-postgres"], 10_000) == 0
    assert one_write(PRICES["ebs-gp3"], 10_000) == 0


def test_sizes_are_counted_and_spread() -> None:
    sizes = Sizes.of([5, 3, 5])
    assert (sizes.counts, sizes.number, sizes.total) == (((3, 1), (5, 2)), 3, 13)
    assert Sizes.tally([(3, 1), (5, 2), (9, 0)]) == sizes
    assert Sizes.even(10, 3).counts == ((3, 2), (4, 1))
    assert Sizes.even(0, 0) == Sizes()
    dump = Footprint.overwriting([7, 8, 9])
    assert (dump.writes.total, dump.kept.counts, dump.replaced.total) == (24, ((9, 1),), 15)
    assert Footprint.overwriting([]) == Footprint(Sizes(), Sizes())


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf, 1e300])
def test_a_count_that_cannot_be_is_refused(wrong: float) -> None:
    with pytest.raises(Misuse, match="runs_per_day is"):
        month("efs", JOURNAL, runs_per_day=wrong)
    with pytest.raises(Misuse, match="keep_days is"):
        month("efs", JOURNAL, keep_days=wrong)


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(Misuse, match="-5 bytes"):
        Sizes.of([3, -5])
    with pytest.raises(Misuse, match="10 bytes in 0 objects"):
        Footprint.of(Sizes(), stored_bytes=10, objects=0)


def test_a_storage_without_a_price_for_space_has_no_line_for_it() -> None:
    bare = Storage("x", "X", figures={"write_gb": PRICES["efs"].figures["write_gb"]})
    assert [line.name for line in monthly(bare, JOURNAL, runs_per_day=1, keep_days=1).lines] == ["bytes written"]
