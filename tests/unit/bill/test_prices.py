"""The price list: each figure with its source, a user's file over it, and what is refused.

Owns: the shipped file's promises, and bad input.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from indelible.bill.prices import METERING, MONEY, Figure, load
from indelible.errors import Misuse
from tests.tidy.tree import ROOT

SHIPPED = load()
NOT_READ = "not re-read"


def laid_over(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return file


def refused(tmp_path: Path, text: str) -> Misuse:
    with pytest.raises(Misuse) as caught:
        load(laid_over(tmp_path, text))
    assert caught.value.hint
    return caught.value


def test_each_figure_has_a_unit_a_source_and_a_date() -> None:
    for storage in SHIPPED:
        assert storage.title
        assert storage.region
        for name, figure in storage.figures.items():
            where = f"{storage.name}.{name}"
            assert figure.unit in (MONEY | METERING)[name], where
            assert re.fullmatch(r"\d{4}(-\d\d){0,2}", figure.date), where
            assert figure.source == "assumption" or figure.source.startswith("https://"), where


def test_each_price_says_where_it_was_read_or_that_it_was_not() -> None:
    for storage in SHIPPED:
        for name, figure in storage.figures.items():
            if name in MONEY:
                assert figure.seen or NOT_READ in figure.note, f"{storage.name}.{name}"
                assert not (figure.seen and NOT_READ in figure.note), f"{storage.name}.{name}"


def test_each_storage_has_a_price_for_writing_or_a_reason_to_have_none() -> None:
    writing = {"write_request", "write_unit", "write_gb"}
    free = {storage.name for storage in SHIPPED if not writing & storage.figures.keys()}
    assert free == {"ebs-gp3", "rds-postgres"}, "these are paid by the size of the volume"


def test_what_can_lose_an_acknowledged_write_is_marked() -> None:
    assert {storage.name for storage in SHIPPED if not storage.durable} == {"elasticache"}
    assert {storage.name for storage in SHIPPED if storage.append_only} == {"cloudwatch-logs"}


def row(name: str, figure: Figure) -> str:
    """A figure as `docs/cost.md` shows it."""
    where = figure.seen or ("not re-read" if NOT_READ in figure.note else "")
    shown = f"{figure.value:,.0f}" if figure.unit == "bytes" else f"{figure.value:.6f}".rstrip("0").rstrip(".")
    money = "$" if name in MONEY else ""
    return f"| `{name}` | {money}{shown} | {figure.unit} | {figure.date} | {figure.source} | {where} |"


def tables() -> str:
    """All figures, as `docs/cost.md` shows them."""
    head = "| figure | value | unit | as of | binding page | read at |\n|---|---:|---|---|---|---|"
    parts = []
    for storage in SHIPPED:
        rows = "\n".join(row(name, figure) for name, figure in storage.figures.items())
        note = f"\n\n{storage.note}" if storage.note else ""
        parts.append(f"### {storage.title}\n\n`{storage.name}`, {storage.region}.{note}\n\n{head}\n{rows}\n")
    return "\n".join(parts)


def test_the_page_shows_the_figures_of_the_file() -> None:
    page = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    assert tables() in page, "docs/cost.md and prices.toml differ"


def test_a_number_of_the_user_replaces_ours_and_keeps_its_unit(tmp_path: Path) -> None:
    prices = load(laid_over(tmp_path, "[efs]\nwrite_gb = 0.05\nmin_write_bytes = 4096\n"))
    assert prices["efs"].figures["write_gb"] == Figure(0.05, "GB", "mine.toml", "")
    assert prices["efs"].metered("write", 1) == 4096
    assert prices["efs"].figures["storage"] == SHIPPED["efs"].figures["storage"]
    assert prices["s3-standard"] == SHIPPED["s3-standard"]
    assert prices["efs"].title == SHIPPED["efs"].title


def test_a_table_of_the_user_can_change_the_unit_and_name_its_source(tmp_path: Path) -> None:
    text = """[s3-standard.write_request]
value = 5
unit = "1M requests"
source = "our contract"
date = 2026-11-01
"""
    figure = load(laid_over(tmp_path, text))["s3-standard"].figures["write_request"]
    assert figure == Figure(5.0, "1M requests", "our contract", "2026-11-01")


def test_a_storage_of_the_user_joins_the_others(tmp_path: Path) -> None:
    text = """[minio]
title = "MinIO in our rack"
durable = true
source = "accounting"
storage = { value = 0.004, unit = "GB-month" }
min_age = { value = 12, unit = "hours" }
"""
    prices = load(laid_over(tmp_path, text))
    assert [storage.name for storage in prices][-1] == "minio"
    assert prices["minio"].figures["storage"].source == "accounting"
    assert prices["minio"].min_age_days == 0.5
    assert prices["minio"].metered("write", 7) == 7


def test_another_currency_is_converted_at_the_rate_that_is_given(tmp_path: Path) -> None:
    text = """currency = "EUR"
[rates]
EUR = 1.25
[efs]
write_gb = 0.04
min_write_bytes = 4096
storage = { value = 0.3, unit = "GB-month", currency = "USD" }
"""
    prices = load(laid_over(tmp_path, text))
    assert prices["efs"].figures["write_gb"].value == pytest.approx(0.05)
    assert prices["efs"].figures["storage"].value == 0.3
    assert prices["efs"].amount("min_write_bytes") == 4096, "bytes have no currency"


def test_an_unknown_storage_is_answered_with_the_known_ones() -> None:
    with pytest.raises(Misuse, match="no prices for storage 's4'") as caught:
        SHIPPED["s4"]
    assert "s3-standard-ia" in caught.value.hint


BAD = [
    ("[efs]\nwrite_gb = -0.05", "efs.write_gb is -0.05; expected a number, 0 or more"),
    ("[efs]\nwrite_gb = nan", "efs.write_gb is nan;"),
    ("[efs]\nwrite_gb = inf", "efs.write_gb is inf;"),
    ("[efs]\nwrite_gb = -inf", "efs.write_gb is -inf;"),
    ("[efs]\nwrite_gb = 1" + "0" * 400, "efs.write_gb is too large;"),
    ("[efs]\nwrite_gb = -1" + "0" * 400, "efs.write_gb is negative;"),
    ("[efs]\nwrite_gb = true", "efs.write_gb is a bool;"),
    ('[efs]\nwrite_gb = "0.05"', "efs.write_gb is a str;"),
    ("[efs]\nmin_write_bytes = 4096.5", "efs.min_write_bytes is 4096.5; expected a whole number"),
    ("[dynamodb]\nwrite_unit_bytes = 0", "dynamodb.write_unit_bytes is 0; a unit holds at least one byte"),
    ("[efs]\nwrites_gb = 0.05", "efs.writes_gb is not a key of a storage"),
    ("[efs.write_gb]\nvalue = 1\nprice = 2", "efs.write_gb.price is not a key of a figure"),
    ("[efs.write_gb]\nunit = 'GB'", "efs.write_gb has no value"),
    ("[efs.write_gb]\nvalue = 1\nunit = 'MB'", "efs.write_gb is in 'MB'; expected \"GB\""),
    ("[efs]\nwrite_request = 1", 'efs.write_request has no unit; expected "request" or'),
    ("[efs]\ntitle = 3", "efs.title is a int; expected a text"),
    ('[efs]\ntitle = "a\\u001b[2Jb"', "efs.title holds a line break or a control character"),
    ("[efs]\ndurable = 1", "efs.durable is a int; expected true or false"),
    ("[efz]\nwrite_gb = 1", "efz is no known storage; the known ones are local-disk, ebs-gp3, efs,"),
    ("[mine]\ntitle = 'x'", "mine has no price"),
    ("[mine]\ntitle = 'x'\nwrite_unit = {value = 1, unit = '1M units'}", "mine.write_unit has a price, but"),
    ("write_gb = 1", "write_gb stands outside of any storage"),
    ("currency = 'EUR'\n[efs]\nwrite_gb = 1", "currency is 'EUR', and costs are told in USD"),
    ("currency = 'EUR'", "currency is 'EUR', and costs are told in USD: the rate is missing"),
    ("[efs]\ncurrency = 'CHF'\nwrite_gb = 1", "efs.write_gb is 'CHF'"),
    ("[efs.write_gb]\nvalue = 1\ncurrency = 'GBP'", "efs.write_gb is 'GBP'"),
    ("currency = 'EUR'\n[rates]\nEUR = 0", "rates.EUR is 0"),
    ("currency = 'EUR'\n[rates]\nEUR = nan", "rates.EUR is nan"),
    ("[rates]\nUSD = 2", "rates.USD is 2"),
    ("rates = 3", "rates is not a table"),
    ("[efs\nwrite_gb = 1", "mine.toml is not TOML"),
]


@pytest.mark.parametrize(("text", "said"), BAD, ids=[said[:40] for _, said in BAD])
def test_what_is_not_understood_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    error = refused(tmp_path, text)
    assert said in str(error)
    assert "mine.toml" in str(error)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="cannot be read: No such file"):
        load(tmp_path / "none.toml")
    binary = tmp_path / "mine.toml"
    binary.write_bytes(b"[efs]\n\xff")
    with pytest.raises(Misuse, match=r"not UTF-8 text \(byte 6\)"):
        load(binary)


def test_the_library_works_without_the_bill() -> None:
    script = "import sys, indelible; print([name for name in sys.modules if name.startswith('indelible.bill')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_the_example_of_the_page_can_be_used_as_it_stands(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    prices = load(laid_over(tmp_path, example))
    assert prices["efs"].figures["write_gb"].value == 0.05
    assert prices["minio"].figures["storage"].value == pytest.approx(0.004 * 1.08)
