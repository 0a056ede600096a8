"""Where an exception came from: the line of the agent's own code, kept with the cycle it ended."""

from __future__ import annotations

import json

import pytest

import indelible as ind
from indelible.core import events as ev
from indelible.core.failures import where_of
from tests.unit import cli_stage
from tests.unit.cli_stage import Stage

stage = cli_stage.stage

FAULTY = """
import json
import indelible as ind

class Job(ind.State):
    tasks: ind.Queue[str]

def parse(text):
    return json.loads(text)

@ind.agent(state=Job, attempts=2, backoff_s=0, on_failure="fail")
def worker(run):
    parse(run.state.tasks.take())

@worker.start
def start(run):
    run.state.tasks.append(run.objective)
"""
HERE = "faulty.py:9 in parse"


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_the_innermost_line_that_is_neither_ours_nor_pythons_is_told() -> None:
    with pytest.raises(json.JSONDecodeError) as broken:
        json.loads("{")
    assert where_of(broken.value).startswith("test_where.py:")
    assert where_of(broken.value).endswith(" in test_the_innermost_line_that_is_neither_ours_nor_pythons_is_told")


def test_of_a_group_it_is_the_line_of_what_the_group_holds() -> None:
    group = raised(ExceptionGroup("two", [raised(ValueError("a"))]))
    assert where_of(group).endswith(" in raised")
    assert where_of(ValueError("never raised")) == ""


def test_a_rolled_back_cycle_says_where_on_the_way_in_the_log_and_at_the_end(stage: Stage) -> None:
    (stage.folder / "faulty.py").write_text(FAULTY)
    done = stage("run", "faulty.py:worker", "{", "--run-id", "r")
    assert done.code == 4
    rolled, failed = (line for line in done.err.splitlines() if "attempt 1 rolled back" in line or "has failed" in line)
    assert rolled.startswith("cycle 1: attempt 1 rolled back: JSONDecodeError")
    assert rolled.endswith(f"(at {HERE})")
    assert failed.startswith("run r has failed: JSONDecodeError")
    assert failed.endswith(f"(at {HERE})")
    assert stage("log", "r").out.count(f"(at {HERE})") == 3
    told = [event["where"] for event in stage("log", "r", "--json").json if event["event"] == "cycle.rolled_back"]
    assert told == [HERE, HERE]
    assert HERE in stage("show", "r").out


class Deeds(ind.State):
    tasks: ind.Queue[str]


def unbook(hotel: str, *, result: str) -> None:
    assert result == hotel


@ind.action(effect="irreversible", undo=unbook)
def book(hotel: str) -> str:
    return hotel


@ind.agent(state=Deeds, attempts=1)
def traveller(run: ind.Run[Deeds]) -> None:
    book("Ritz")
    raise ValueError("no flight")


def test_a_cycle_whose_deeds_are_undone_keeps_it_as_well() -> None:
    with ind.open("memory:") as store:
        outcome = traveller.run("go", store=store, run_id="r")
        found = [event.where for _, event in store.events("r")
                 if isinstance(event, ev.CycleAbandoned | ev.CycleRolledBack)]  # fmt: skip
    assert len(found) == 2
    assert all(where.startswith("test_where.py:") and where.endswith(" in traveller") for where in found)
    assert outcome.error == f"ValueError: no flight (at {found[0]})"
