"""`indelible effects` names what became of every deed; one signal lets a deed end; waits can be stopped."""

from __future__ import annotations

import asyncio
import time

import pytest

from indelible.drive.stopping import StoppableClock
from tests.unit import cli_stage
from tests.unit.cli_stage import Stage

stage = cli_stage.stage

DEEDS = '''
import os
import indelible as ind


class Plan(ind.State):
    tasks: ind.Queue[str]


def back(room: str, result: str) -> None:
    """Takes a booking back."""


@ind.action(effect="irreversible", undo=back)
def book(room: str) -> str:
    return "booked " + room


@ind.action(effect="irreversible")
def post(text: str) -> str:
    if text == "refused":
        raise ind.DidNotHappen("the door was shut")
    if text == "cut":
        raise ConnectionError("the line went dead")
    return "posted"


@ind.action(effect="irreversible", on_doubt="assume_happened")
def ring(bell: str) -> str:
    raise ConnectionError("the line went dead")


@ind.action(effect="idempotent")
def put(value: int, *, key: str) -> None:
    if value == 2:
        raise ConnectionError("the line went dead")


@ind.agent(state=Plan, attempts=1, backoff_s=0)
def deeds(run):
    task = run.state.tasks.take()
    if task == "undone":
        book("4")
        raise ValueError("the plan has changed")
    if task == "orphaned":
        post("left behind")
        raise ValueError("the plan has changed")
    if task == "assumed":
        ring("door")
    elif task == "put":
        put(1)
    elif task == "unput":
        put(2)
    else:
        post(task)
    if not run.state.tasks:
        run.finish()


@deeds.start
def start(run):
    run.state.tasks.extend(run.objective.split())
'''


@pytest.fixture
def deeds(stage: Stage) -> Stage:
    """The stage with an agent whose deeds end in every way."""
    (stage.folder / "deeds.py").write_text(DEEDS, encoding="utf-8")
    return stage


ENDS = {
    "kept": ("done", ""),
    "refused": ("failed", "DidNotHappen: the door was shut"),
    "cut": ("in doubt", "ConnectionError: the line went dead"),
    "undone": ("undone", ""),
    "orphaned": ("orphaned", ""),
    "assumed": ("done", "assumed, by policy"),
    "put": ("done", ""),
    "unput": ("failed", "ConnectionError: the line went dead"),
}


@pytest.mark.parametrize("task", ENDS)
def test_every_end_of_a_deed_has_its_word(deeds: Stage, task: str) -> None:
    deeds("run", "deeds.py", task, "--run-id", "r")
    (deed,) = deeds("effects", "r", "--json").json
    assert (deed["became"], deed["note"] or "") == ENDS[task]
    shown = deeds("effects", "r").out
    assert deed["action"] in shown
    assert ("indelible settle r " in shown) == (task == "cut")
    assert ("look at it yourself" in shown) == (task == "orphaned")


def test_a_settled_deed_says_by_whom(deeds: Stage) -> None:
    deeds("run", "deeds.py", "cut", "--run-id", "r")
    assert deeds("settle", "r", "post", "--happened").code == 0
    twice = deeds("settle", "r", "post", "--did-not-happen")
    assert (twice.code, "was settled already (happened)" in twice.err) == (2, True)
    assert "a person says it happened; not taken in yet" in deeds("effects", "r").out
    assert "said: it happened, not taken in yet" in deeds("inbox").out
    assert deeds("resume", "r", "deeds.py").code == 0
    (deed,) = deeds("effects", "r", "--json").json
    assert (deed["became"], deed["note"]) == ("done", "settled by a person")
    assert f"{deed['action']} happened, says a person" in deeds("log", "r").out


def test_deeds_of_several_cycles_stand_in_their_order(deeds: Stage) -> None:
    deeds("run", "deeds.py", "kept put kept undone kept", "--run-id", "r")
    found = deeds("effects", "r", "--json").json
    assert [(deed["name"], deed["cycle"], deed["became"]) for deed in found] == [
        ("post", 1, "done"), ("put", 2, "done"), ("post", 3, "done"), ("book", 4, "undone"), ("post", 5, "done"),
    ]  # fmt: skip
    assert len({deed["action"] for deed in found}) == 5


def test_one_signal_in_the_middle_of_a_deed_lets_it_end(stage: Stage) -> None:
    """B101: the deed is finished and recorded, then the run stops."""
    stopped = stage.apart("run", "agent.py:worker", "send b", "--run-id", "r", SIGNAL_AT="before")
    assert stopped.code == 143
    assert [deed["became"] for deed in stage("effects", "r", "--json").json] == ["done"]
    assert (stage.folder / "outbox.txt").read_text() == "ann@example.org\n"


def test_a_stopped_clock_waits_no_more() -> None:
    clock = StoppableClock()
    began = time.monotonic()
    clock.sleep(0.01)
    assert time.monotonic() - began >= 0.01
    asyncio.run(clock.asleep(0.01))
    for _ in range(100_000):  # many signals must not fill it up and fail
        clock.stop()
    clock.sleep(3600)
    asyncio.run(clock.asleep(3600))
    assert time.monotonic() - began < 60
    clock.close()
    clock.stop()
