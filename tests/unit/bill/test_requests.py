"""What object storage is asked: counted, and priced as the price list says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import indelible as ind
from indelible.bill import requests
from indelible.bill.costs import one_write
from indelible.bill.prices import load
from indelible.bill.requests import CALLS, CYCLES, Clock, Counting, Row, counted
from indelible.cli.main import main
from indelible.runtime.runnable import Lookout
from indelible.runtime.runstore import RunStore
from indelible.stores.objects import ObjectStore
from indelible.stores.objects_opening import usd_per_put


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    return {row.what.strip(): row for row in counted(load())}


def test_an_append_is_one_request(rows: dict[str, Row]) -> None:
    """Each paid result and each commit by itself, and nothing beside them but to merge and to hold the run."""
    batches = rows["of which batches, full"]
    assert (batches.puts, batches.lists, batches.gets) == (CYCLES * (CALLS + 1), 0, 0)
    assert rows["of which batches, os"] == Row("  of which batches, os", batches.puts, 0, 0, 0)


def test_economic_writes_go_together(rows: dict[str, Row]) -> None:
    """B63: as the bill of the simulation says, at these prices a commit is all that is worth a write."""
    assert rows["of which batches, economic"].puts < rows["of which batches, full"].puts / 2
    prices = load()
    for provider in requests.PROVIDERS:
        full, economic = (rows[f"{CYCLES:,} cycles, {name}"].dollars(prices, provider) for name in ("full", "economic"))
        assert economic < 0.6 * full


def test_keeping_house_costs_little(rows: dict[str, Row]) -> None:
    """B63: merging is under a tenth of the bill, and a journal that was merged is read with few requests."""
    prices = load()
    merging, all_of_it = rows["of which merging old entries, full"], rows[f"{CYCLES:,} cycles, full"]
    assert merging.dollars(prices, "s3-standard") < 0.1 * all_of_it.dollars(prices, "s3-standard")
    assert rows[f"reading it again, {CYCLES:,} cycles"].gets < 300
    assert merging.deletes > 3000, "what was merged is removed"


def test_parts_make_up_the_whole(rows: dict[str, Row]) -> None:
    for setting in ("full", "os", "economic"):
        whole = rows[f"{CYCLES:,} cycles, {setting}"]
        parts = [row for name, row in rows.items() if name.startswith("of which") and name.endswith(f", {setting}")]
        assert len(parts) == 4
        for kind in ("puts", "lists", "gets", "deletes"):
            assert sum(getattr(part, kind) for part in parts) == getattr(whole, kind)


def test_listing_is_bounded(rows: dict[str, Row]) -> None:
    """B19 B111: by the number of runs, and later by those that move."""
    first, again = (
        rows[f"listing {requests.RUNS:,} runs, a tenth of them held, {turn}"] for turn in ("first", "again")
    )
    assert first.gets + first.lists < 1.2 * requests.RUNS
    assert again.gets + again.lists < 0.2 * requests.RUNS
    assert first.puts == again.puts == 0


def test_the_page_tells_what_is_counted(rows: dict[str, Row]) -> None:
    """Each line of its table, by what it is about."""
    page = Path(__file__).parents[3].joinpath("docs", "stores", "object-storage.md").read_text(encoding="utf-8")
    names = {
        "1,000 cycles, each paid": "1,000 cycles, full",
        "of which merging": "of which merging old entries, full",
        '1,000 cycles, `durability="economic"`': "1,000 cycles, economic",
        "of which the lease": "of which the lease, economic",
        "holding an idle run": "holding an idle run for an hour",
        "the first listing": "listing 1,000 runs, a tenth of them held, first",
        "the next one": "listing 1,000 runs, a tenth of them held, again",
    }
    told: dict[str, list[str]] = {}
    for line in page.splitlines():
        about, *figures = line.strip("|").split("|")
        told |= {names[begin]: figures for begin in names if about.strip().startswith(begin)}
    assert set(told) == set(names.values())
    for name, (puts, lists, gets, dollars) in told.items():
        row = rows[name]
        assert [int(cell.replace(",", "")) for cell in (puts, lists, gets)] == [row.puts, row.lists, row.gets], name
        assert float(dollars) == pytest.approx(row.dollars(load(), "s3-standard"), rel=0.05), name


def test_a_worker_that_waits_asks_little() -> None:
    """B63: a poll is a listing, and a read for each run that waits for a person; nothing is written."""
    clock = Clock()
    bucket = Counting(clock)
    store = ObjectStore.over(bucket, "s3://bucket", since=clock.now, background=False)

    @ind.agent(state=ind.State)
    def waiting(run: ind.Run[ind.State]) -> None:
        run.finish(run.ask("Which supplier?"))

    with RunStore(store, clock) as runs:
        for number in range(3):
            waiting.run("o", store=runs, run_id=f"r{number}", wait=False)
        lookout = Lookout(runs, [waiting.name])
        for turn in ("first", "second"):
            with bucket.purpose(turn):
                assert lookout.look().runnable == []
        assert bucket.row("poll", "second") == Row("poll", 0, 1, 3, 0)
        month = 30 * 86_400 * Row("poll", 0, 1, 0, 0).dollars(load(), "s3-standard")
        assert month == pytest.approx(13, rel=0.01)
        assert month / 30 == pytest.approx(0.43, rel=0.01)


def test_the_price_that_economic_runs_take_for_granted() -> None:
    """It is the one of the price list, for each provider, and none where the server is one's own."""
    prices = load()
    for url, name in (("s3://b/x", "s3-standard"), ("gs://b", "gcs-standard"), ("az://c/x", "azure-blob-hot")):
        assert usd_per_put(url) == pytest.approx(one_write(prices[name], 1000))
    assert usd_per_put("s3://b/x?endpoint=https://s3.eu-west-1.amazonaws.com") == pytest.approx(5e-6)
    assert usd_per_put("s3://b/x?endpoint=http://127.0.0.1:9000&region=us-east-1") == 0
    assert usd_per_put("file:///srv/agents") == 0


def test_an_economic_store_takes_the_price_of_its_provider(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr("indelible.stores.objects.usd_per_put", lambda url: 0.25)
    for given, expected in ((None, 0.25), (0.0, 0.0), (0.5, 0.5)):
        with ind.open(f"file://{tmp_path}/store", durability="economic", usd_per_write=given) as store:
            assert store.economy is not None
            assert store.economy.usd_per_write == expected
    with ind.open("memory:", durability="economic") as store:
        assert store.economy is not None
        assert store.economy.usd_per_write == 0


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bill", "--requests", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    full = next(row for row in told["rows"] if row["what"] == f"{CYCLES:,} cycles, full")
    assert full["usd"]["s3-standard"] == pytest.approx((full["puts"] + full["lists"]) * 5e-6 + full["gets"] * 4e-7)
    assert told["sources"]["s3-standard"]["write_request"]["source"].startswith("https://")
    assert main(["bill", "--requests"]) == 0
    assert f"{CYCLES:,} cycles, economic" in capsys.readouterr().out
    assert main(["bill", "a-run", "--requests"]) == 2
