"""The example agents against a world that misbehaves: what is in its ledger is what was asked for, and nothing twice.

Owns: the person who settles what is in doubt, by looking into the ledger.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import indelible as ind
from indelible.cli.loading import load
from indelible.drive.clock import SystemClock
from indelible.runtime.agents import AsyncAgent
from indelible.runtime.runs import Outcome
from indelible.runtime.runstore import RunStore
from indelible.testing.service import FakeWorld, Misbehaviour
from indelible.testing.service_ledger import Done
from tests.tidy.tree import ROOT

LATE = (Misbehaviour.ANSWER_LATE, Misbehaviour.APPLY_LATE)
GONE = (Misbehaviour.GONE_BEFORE, Misbehaviour.GONE_AFTER)
MANY_WAYS = [wrong for wrong in Misbehaviour if wrong not in (*LATE, *GONE)]
EXAMPLES = {
    "sync_tool": ("Compare tea suppliers", {"you@example.org": 1}),
    "async_gather": ("rain wind", {"rain": 1, "wind": 1}),
    "payments": ("A-1 A-2", {"A-1": 1, "A-2": 1, "books@example.org": 2}),
}
RESULTS = {"async_gather": "6 opinions, 2 purchases", "payments": "2 orders paid, 0 given up"}


class JumpingClock(SystemClock):
    """Whoever waits on it finds that the time has passed."""

    def __init__(self) -> None:
        self.skipped = 0.0

    def now(self) -> float:
        return super().now() + self.skipped

    def sleep(self, seconds: float) -> None:
        self.skipped += seconds

    async def asleep(self, seconds: float) -> None:
        self.skipped += seconds
        await super().asleep(0)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeWorld]:
    with FakeWorld(tmp_path_factory.mktemp("world")) as world:
        yield world


@pytest.fixture
def world(shared: FakeWorld, monkeypatch: pytest.MonkeyPatch) -> FakeWorld:
    """The one service of this module, well-behaved and on an empty ledger."""
    shared.stop()
    for path in shared.ledger.parent.iterdir():
        path.unlink()
    shared.start()
    monkeypatch.setenv("INDELIBLE_WORLD", shared.url)
    return shared


@pytest.fixture
def runs() -> Iterator[RunStore]:
    with ind.open("memory:", clock=JumpingClock()) as opened:
        yield opened


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Loads an example as the command line does."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def loaded(name: str) -> ModuleType:
        load(f"{ROOT}/examples/{name}_agent.py:agent")
        return sys.modules[f"{name}_agent"]

    yield loaded
    for name in {f"{name}_agent" for name in EXAMPLES} - before:
        sys.modules.pop(name, None)


def advance(agent: Any, runs: RunStore, objective: str, stop: Callable[[], bool]) -> Outcome:
    going = agent.run(objective, store=runs, run_id="r", stop=stop)
    outcome: Outcome = asyncio.run(going) if isinstance(agent, AsyncAgent) else going
    return outcome


def settle(runs: RunStore, outcome: Outcome, deeds: list[Done]) -> None:
    """What a person does: look for the deed in the ledger, and say what is there."""
    assert (outcome.status, outcome.kind) == ("parked", "doubt"), outcome
    call = runs.recover("r").record.find(outcome.wait.removeprefix("doubt:"))
    assert call is not None
    kind = "payments" if call.name == "pay" else "mails"
    found = [deed for deed in deeds if (deed.kind, deed.key) == (kind, call.key)]
    runs.settle("r", call.call, happened=bool(found), result=found[0].id if found else None)


def to_the_end(module: ModuleType, runs: RunStore, world: FakeWorld, objective: str) -> tuple[Outcome, int]:
    """Run it, settle what is in doubt, start the service when it has died. Returns the end, and how often it parked."""
    parked = started = 0

    def has_died() -> bool:
        return sum(request.wrong in GONE for request in world.requests()) > started

    for _ in range(30):
        outcome = advance(module.agent, runs, objective, has_died)
        if has_died():
            world.wait_until_gone()
            world.start()
            started += 1
        if outcome.status == "parked":
            settle(runs, outcome, world.deeds())
            parked += 1
        elif outcome.status != "running":
            return outcome, parked
    raise AssertionError("the run does not come to an end")


def counted(world: FakeWorld) -> dict[str, int]:
    """How often each order was paid, each person was sent a mail, and anything was paid back."""
    names = [deed.body.get("order") or deed.body.get("to") or "refund" for deed in world.deeds()]
    return {name: names.count(name) for name in sorted(names)}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_as_it_says(name: str, world: FakeWorld, tmp_path: Path) -> None:
    objective, expected = EXAMPLES[name]
    done = indelible(tmp_path, "run", f"{ROOT}/examples/{name}_agent.py:agent", objective, "--run-id", "r")
    assert done.returncode == 0, done.stderr
    assert counted(world) == expected
    assert RESULTS.get(name, world.deeds()[0].id) in done.stdout
    again = indelible(tmp_path, "run", f"{ROOT}/examples/{name}_agent.py:agent", "--run-id", "r")
    assert again.returncode == 0, again.stderr
    assert counted(world) == expected, "a finished run does nothing more"


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("wrong", Misbehaviour)
def test_every_deed_is_done_as_often_as_it_was_asked_for(
    name: str,
    wrong: Misbehaviour,
    world: FakeWorld,
    runs: RunStore,
    example: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first deed meets the misbehaviour; a request that is held is let go only when all is over. B02."""
    objective, expected = EXAMPLES[name]
    world.misbehave(deeds={1: wrong})
    module = example(name)
    if wrong in LATE:
        monkeypatch.setattr(module, "TIMEOUT_S", 0.3)
    outcome, parked = to_the_end(module, runs, world, objective)
    assert outcome.status == "finished", outcome
    world.release()
    assert counted(world) == expected
    assert outcome.result == RESULTS.get(name, world.deeds()[0].id)
    if wrong not in LATE:  # on a slow machine a probe may time out as well
        assert parked == (1 if wrong in GONE and name != "async_gather" else 0)


@pytest.mark.parametrize("wrong", MANY_WAYS)
def test_a_payment_is_settled_by_its_probe_or_by_a_person(
    wrong: Misbehaviour, world: FakeWorld, runs: RunStore, example: Callable[[str], ModuleType]
) -> None:
    """B03: where the probe cannot see either, the run waits, and what the person finds in the ledger is what counts."""
    module = example("payments")
    for number, blind in enumerate(MANY_WAYS):
        orders = [f"{wrong}-{blind}-{n}" for n in (1, 2)]
        world.misbehave(deeds={1: wrong}, looks={1: blind})
        with ind.open("memory:", clock=JumpingClock()) as fresh:
            outcome, parked = to_the_end(module, fresh, world, " ".join(orders))
        assert outcome.result == "2 orders paid, 0 given up"
        made = counted(world)
        assert [made[order] for order in orders] == [1, 1]
        assert made["books@example.org"] == 2 * (number + 1)
        asked = wrong not in (Misbehaviour.TOO_MANY, Misbehaviour.ANSWER_TWICE)
        assert parked == (1 if asked and blind is not Misbehaviour.ANSWER_TWICE else 0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_long_list_of_orders_in_a_bad_world(
    seed: int, world: FakeWorld, runs: RunStore, example: Callable[[str], ModuleType]
) -> None:
    """An order is paid one time with one receipt; or it is given up, and then it was not paid, or paid back."""
    odds = dict.fromkeys(MANY_WAYS, 0.06)
    world.misbehave(deed_odds=odds, look_odds=odds, seed=seed)
    orders = [f"B-{n}" for n in range(12)]
    outcome, parked = to_the_end(example("payments"), runs, world, " ".join(orders))
    made = counted(world)
    refunded = made.pop("refund", 0)
    receipts = made.pop("books@example.org")
    assert set(made.values()) == {1}
    assert len(made) - refunded == receipts
    assert outcome.result == f"{receipts} orders paid, {12 - receipts} given up"
    assert receipts > 6
    assert parked > 0
    assert sum(bool(request.wrong) for request in world.requests()) > 9


def test_an_order_whose_receipt_cannot_be_sent_is_paid_back(
    world: FakeWorld, runs: RunStore, example: Callable[[str], ModuleType]
) -> None:
    """The payment stands through three attempts and is made one time; its undo is the refund."""
    world.misbehave(deeds=dict.fromkeys((2, 3, 4), Misbehaviour.TOO_MANY))
    outcome, parked = to_the_end(example("payments"), runs, world, "A-1 A-2")
    assert (outcome.result, parked) == ("1 orders paid, 1 given up", 0)
    payments, refunds = world.deeds("payments"), world.deeds("refunds")
    assert [deed.body["order"] for deed in payments] == ["A-1", "A-2"]
    assert [deed.body["payment"] for deed in refunds] == [payments[0].id]
    assert len(world.deeds("mails")) == 1


@pytest.mark.parametrize("wrong", LATE)
@pytest.mark.parametrize("name", EXAMPLES)
def test_killed_while_a_deed_is_under_way(name: str, wrong: Misbehaviour, world: FakeWorld, tmp_path: Path) -> None:
    """SIGKILL after the request was sent and before its answer; the next process finds out, or its key covers it."""
    objective, expected = EXAMPLES[name]
    world.misbehave(deeds={1: wrong})
    agent = f"{ROOT}/examples/{name}_agent.py:agent"
    command = [sys.executable, "-m", "indelible", "run", agent, objective, "--run-id", "r"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        world.wait_held()
        first.send_signal(signal.SIGKILL)
        assert first.wait() == -signal.SIGKILL
    done = indelible(tmp_path, "run", agent, "--run-id", "r")
    assert done.returncode == 0, done.stdout + done.stderr
    world.release()
    assert counted(world) == expected
    assert RESULTS.get(name, world.deeds()[0].id) in done.stdout


@pytest.mark.parametrize(
    ("name", "objective", "paid"),
    [("bare_deed", "A-1 A-2", 2), ("harmful_repeat", "A-1 A-2", 2), ("global_state", "a b", 0)],
)
def test_a_wrong_agent_looks_right_while_nothing_happens_to_it(
    name: str, objective: str, paid: int, world: FakeWorld, tmp_path: Path
) -> None:
    """So only a crash can tell; the proof kills it."""
    agent = f"{ROOT}/tests/prove/wrong_agents/{name}.py:agent"
    done = indelible(tmp_path, "run", agent, objective, "--run-id", "r")
    assert done.returncode == 0, done.stderr
    assert list(counted(world).values()) == [1] * paid


@pytest.mark.parametrize("name", ["bare_deed", "harmful_repeat"])
def test_a_wrong_agent_pays_twice_when_it_is_killed(name: str, world: FakeWorld, tmp_path: Path) -> None:
    world.misbehave(deeds={1: Misbehaviour.ANSWER_LATE})
    agent = f"{ROOT}/tests/prove/wrong_agents/{name}.py:agent"
    command = [sys.executable, "-m", "indelible", "run", agent, "A-1 A-2", "--run-id", "r"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        world.wait_held()
        first.kill()
        first.wait()
    assert indelible(tmp_path, "run", agent, "--run-id", "r").returncode == 0
    assert counted(world) == {"A-1": 2, "A-2": 1}


def test_a_wrong_agent_forgets_what_it_kept_in_a_global(tmp_path: Path) -> None:
    """One cycle in each process, as after a kill between two cycles."""
    program = (
        "import sys, global_state\n"
        "asked = iter([False, len(sys.argv) == 1])\n"
        "print(global_state.agent.run('a b', store='r.db', run_id='r', stop=lambda: next(asked, False)).result)\n"
    )
    wrong = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}/tests/prove/wrong_agents{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    command = [sys.executable, "-c", program]
    assert subprocess.check_output(command, cwd=tmp_path, env=wrong, text=True) == "None\n"
    assert subprocess.check_output([*command, "on"], cwd=tmp_path, env=wrong, text=True) == "about b\n"


def indelible(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "indelible", *words], cwd=folder, capture_output=True, text=True, check=False
    )


def test_an_example_whose_last_task_is_given_up_comes_to_an_end(
    world: FakeWorld, runs: RunStore, example: Callable[[str], ModuleType]
) -> None:
    world.misbehave(deeds=dict.fromkeys((1, 2, 3), Misbehaviour.TOO_MANY))
    outcome, _ = to_the_end(example("sync_tool"), runs, world, "Compare tea suppliers")
    assert (outcome.status, outcome.result) == ("finished", "no report: it was given up")
    assert world.deeds() == []
