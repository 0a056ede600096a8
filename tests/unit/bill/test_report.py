"""The bill of a sample, against figures worked out by hand; its formulas, its JSON, its pictures."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from indelible.bill import plots
from indelible.bill.crashes import NOTHING
from indelible.bill.prices import load
from indelible.bill.report import as_json, explained, report, usd
from indelible.bill.sample import OPTIONS, Assumed, Sample, batches_only
from indelible.bill.strategies import OURS
from indelible.errors import Misuse, StoreUnavailable

from .made_courses import EACH, FOUR, SECOND, course, loop, sample

PRICES = load()
S3, DISK = PRICES["s3-standard"], PRICES["local-disk"]
# 1,000 runs a day are 30,000 a month; kept for nothing, so that only writes are paid.
MANY = Assumed(runs_per_day=1000, keep_days=0, hourly_rate=60, minutes_per_crash=5, crashes_per_month=10)


def test_a_month_on_s3_by_hand() -> None:
    found = report(sample(), [S3], MANY)
    # 30,000 × 4 PUTs are 120 thousand × $0.005; with two PUTs half of it
    paid = {month.strategy: month.storage_usd for month in found.crashes["s3-standard"]}
    assert paid == {EACH: pytest.approx(0.6), SECOND: pytest.approx(0.3), OURS: pytest.approx(0.6)}
    # + 10 × ($3.75 and 5 min); 10 × ($5 and 5 min); 10 × ($3.75 and a quarter of 5 min)
    total = {month.strategy: month.total_usd for month in found.crashes["s3-standard"]}
    assert total == {EACH: pytest.approx(88.1), SECOND: pytest.approx(100.3), OURS: pytest.approx(50.6)}
    # 0.3 / (10 - 8.75) and 0.3 / (10 - 5)
    even = {month.strategy: month.break_even for month in found.crashes["s3-standard"]}
    assert even == {EACH: pytest.approx(0.24), SECOND: 0.0, OURS: pytest.approx(0.06)}
    best = found.best("s3-standard")
    assert best is not None
    assert best.strategy == OURS
    assert found.cheapest("s3-standard").strategy == OURS


def test_what_is_appended_is_one_file_on_a_disk_and_objects_elsewhere() -> None:
    assert sample().footprint(OURS, DISK).kept.counts == ((400, 1),)
    assert sample().footprint(OURS, S3).kept.counts == ((100, 4),)


def test_a_sample_of_two_runs_costs_what_each_of_them_would_at_half_the_runs() -> None:
    one, two = report(sample(), [S3], MANY), report(sample(FOUR, FOUR), [S3], MANY)
    assert two.costs["s3-standard"][OURS].dollars == pytest.approx(one.costs["s3-standard"][OURS].dollars)
    assert (two.runs, two.loops) == (2, 8)
    assert two.written[0].written_bytes == 2 * one.written[0].written_bytes


def test_nothing_that_is_kept_costs_nothing() -> None:
    assert sample().month(S3, NOTHING, MANY).dollars == 0.0


def test_ours_without_its_snapshots() -> None:
    with_two = sample(course(loop(1), batches=(10, 20), snapshots=(500, 600)))
    assert batches_only(with_two, S3).writes.counts == ((10, 1), (20, 1))
    assert batches_only(with_two, DISK).kept.counts == ((30, 1),)


def test_what_is_not_known_is_told() -> None:
    unknown = report(sample(course(loop(None), loop(1, 1))), [S3], MANY)
    assert any("the money of 1 of 2 loops is not known" in notice for notice in unknown.notices)
    assert any("how long 1 of 2 loops took was not recorded" in notice for notice in unknown.notices)
    assert any("no loop here did a deed" in notice for notice in unknown.notices)
    assert not report(sample(), [S3], MANY).notices


def test_each_formula_is_told_with_its_numbers() -> None:
    text = "\n".join(explained(report(sample(), [S3], MANY)))
    assert "write requests: 1,000 runs a day × 30 days × 4 writes = 120 thousand requests × $0.0050 = $0.6000" in text
    assert "developer: 0.25 of crashes × 5 min × $60.00 / 60 = $1.25; together $5.00" in text
    assert "$0.6000 + 10 × $5.00 = $50.60; break-even with JSON every 5 loops: $0.3000 / $5.00 = 0.06" in text
    assert "its storage costs least" in text


def test_a_price_is_told_in_full_where_it_is_a_factor() -> None:
    text = "\n".join(explained(report(sample(), [load()["s3-express"]], MANY)))
    assert "= 120 thousand requests × $0.00113 = $0.1356" in text


def test_a_cache_has_no_best() -> None:
    found = report(sample(), [PRICES["elasticache"]], MANY)
    assert found.best("elasticache") is None


def test_the_json_holds_the_tables_and_null_for_what_is_not_known() -> None:
    data = json.loads(json.dumps(as_json(report(sample(course(loop(None))), [S3], MANY)), allow_nan=False))
    assert data["crash"][OURS]["paid_again_usd"] is None
    assert data["crash"][OURS]["paid_again_usd_is_at_least"] is True
    (s3,) = data["storages"]
    assert s3["strategies"][0]["crash_usd_is_at_least"] is True
    assert s3["strategies"][0]["lines"][0]["usd"] == pytest.approx(0.6)
    assert data["strategies"][0]["share"] > 0


@pytest.mark.parametrize("field", list(OPTIONS))
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), 1e12])
def test_a_number_that_cannot_be_meant_is_refused(field: str, value: float) -> None:
    with pytest.raises(Misuse) as caught:
        replace(MANY, **{field: value})
    assert caught.value.what.startswith(f"{OPTIONS[field]} is ")
    assert caught.value.hint == f"{OPTIONS[field]} 30"


def test_a_sample_needs_a_loop() -> None:
    with pytest.raises(Misuse, match="no loop to bill"):
        Sample(())
    with pytest.raises(Misuse, match="no loop to bill"):
        sample(course())


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "$0"), (1234.5, "$1,234.50"), (0.6, "$0.6000"), (0.005, "$0.0050"), (0.00003, "$0.000030"),
     (1e-12, "less than $0.000000001"), (-2, "-$2.00"), (0.00999, "$0.0100")],
)  # fmt: skip
def test_dollars(value: float, shown: str) -> None:
    assert usd(value) == shown


def test_pictures_are_drawn(tmp_path: Path) -> None:
    paths = plots.draw(report(sample(), [S3, DISK], MANY), tmp_path / "new" / "folder")
    assert [path.name for path in paths] == [
        "bytes.png",
        "storage.png",
        "month-s3-standard.png",
        "month-local-disk.png",
    ]
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG\r\n")


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StoreUnavailable, match="cannot be written to"):
        plots.draw(report(sample(), [S3], MANY), tmp_path / "file")


def test_without_matplotlib_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(Misuse, match="pictures need matplotlib") as caught:
        plots.draw(report(sample(), [S3], MANY), tmp_path / "new")
    assert caught.value.hint == "pip install 'indelible[plot]'"
    assert not (tmp_path / "new").exists()
