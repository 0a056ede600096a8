"""A run goes round through every kind of store, real servers among them, and comes back as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import indelible as ind
from indelible.core.journal import Reader, read_all
from indelible.drive.clock import SystemClock
from indelible.runtime.moving import ALREADY, COPIED, MOVED_THERE, transfer
from indelible.runtime.runstore import RunStore, open_runs
from indelible.runtime.verify import verify
from tests.servers import postgres, seaweed, valkey


class Memory(ind.State):
    notes: ind.Log[str]


@ind.action
def look(what: str) -> str:
    return f"{what}: " + "seen " * 50


@ind.agent(state=Memory)
def traveller(run: ind.Run[Memory]) -> None:
    run.state.notes.append(look(str(len(run.state.notes))))
    if len(run.state.notes) == 3:
        run.state.notes.append(run.ask("Where to?"))
    if len(run.state.notes) > 6:
        run.finish(len(run.state.notes))


@pytest.fixture
def urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    s3, environment = seaweed.server().fresh()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return [str(tmp_path / "agent.db"), postgres.server().database(), valkey.server("always").fresh(),
           f"file://{tmp_path}/objects", s3]  # fmt: skip


def chain(runs: RunStore) -> bytes:
    reader = Reader("tour")
    for _ in read_all(reader, runs.store.read("tour")):
        pass
    return reader.chain


def test_an_unfinished_run_moves_round_and_goes_on_where_it_is(urls: list[str]) -> None:
    """B50, B69: in one place at a time, with its open question; back home it is answered and ends."""
    assert traveller.run("See it all", store=urls[0], run_id="tour").status == "parked"
    for here, there in zip(urls, [*urls[1:], urls[0]], strict=True):
        with open_runs(here) as one, open_runs(there) as two:
            assert transfer(one.store, two.store, "tour", SystemClock()).became == MOVED_THERE
            assert verify(two, "tour").ok
            assert two.recover("tour").record.open_wait is not None
        with pytest.raises(ind.errors.RunMoved):
            traveller.run("See it all", store=here, run_id="tour")
    with open_runs(urls[0]) as home:
        home.answer("tour", "home")
    done = traveller.run("See it all", store=urls[0], run_id="tour")
    assert (done.status, done.result) == ("finished", 7)


def test_a_finished_run_has_the_same_digest_everywhere(urls: list[str]) -> None:
    with open_runs(urls[0]) as home:
        assert traveller.run("See it all", store=urls[0], run_id="tour").status == "parked"
        home.answer("tour", "on")
        assert traveller.run("See it all", store=urls[0], run_id="tour").status == "finished"
        expected = chain(home)
    for here, there in zip(urls, [*urls[1:], urls[0]], strict=True):
        with open_runs(here) as one, open_runs(there) as two:
            became = transfer(one.store, two.store, "tour", SystemClock()).became
            assert became == (COPIED if there != urls[0] else ALREADY)
            assert chain(two) == expected
            assert two.recover("tour").record.doc == one.recover("tour").record.doc
    assert os.path.exists(urls[0])
