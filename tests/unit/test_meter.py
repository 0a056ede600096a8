"""The meter of a run: what it has written, and what its calls have cost, each of them once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import indelible as ind
from indelible.core import events as ev
from indelible.core.journal import MAX_BODY_BYTES, Batch
from indelible.core.requests import Steps
from indelible.core.snapshots import FIRST_AFTER_BYTES
from indelible.drive.port import Port
from indelible.errors import UnknownRun
from indelible.runtime.meter import ActionUse, Meter, measured, total
from indelible.runtime.runstore import RunStore
from tests.unit import cli_stage
from tests.unit.cli_stage import Stage

stage = cli_stage.stage

ANSWER = {"model": "gpt-4.1-mini", "usage": {"prompt_tokens": 1000, "completion_tokens": 200}}


class State(ind.State):
    """One field of each kind."""

    tasks: ind.Queue[str]
    notes: ind.Log[str]
    prices: ind.Map[str, int]
    whole: list[str] = []  # noqa: RUF012 - copied for each run


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def store() -> Iterator[RunStore]:
    with ind.open("memory:") as opened:
        yield opened


def agrees(meter: Meter, store: RunStore) -> None:
    """The sums over all actions are what the run's own record says."""
    usage, calls = store.recover(meter.run_id).record.usage, meter.calls
    assert (calls.calls, calls.recalled, calls.tokens_in, calls.tokens_out, calls.unpriced) == (
        usage.calls, usage.recalled, usage.tokens_in, usage.tokens_out, usage.unpriced
    )  # fmt: skip
    assert calls.usd == pytest.approx(usage.usd)


# -- what was written -------------------------------------------------------------------------------------------------


def filling(bulk: int) -> Any:
    """An agent with that much to write in each of its three cycles."""

    @ind.agent(state=State, name="filling")
    def agent(run: ind.Run[State]) -> None:
        state, nth = run.state, len(run.state.notes)
        state.tasks.append("t")
        state.notes.append("x" * 100)
        if nth:
            state.notes[0] = "y" * 50
        state.prices["apple"] = nth
        state.whole = [*state.whole, run.random.randbytes(bulk).hex()]
        if nth == 2:
            run.finish()

    return agent


def test_bytes_and_writes_are_those_of_the_store(store: RunStore) -> None:
    filling(10).run("o", store=store, run_id="r")
    meter = store.meter("r")
    batches = list(store.store.read("r"))
    assert meter.batches == [len(batch.data) for batch in batches]
    assert meter.stored_bytes == next(store.entries()).stored_bytes
    assert meter.raw_bytes > meter.stored_bytes
    assert (meter.writes, meter.cycles, meter.events) == (len(batches), 3, batches[-1].last_seq)
    assert (meter.snapshots, meter.kept_snapshot_bytes, meter.notices) == ([], 0, [])
    assert 0 < meter.waited_s < 60


def test_each_field_tells_its_changes_and_what_was_rewritten(store: RunStore) -> None:
    filling(10).run("o", store=store, run_id="r")
    fields = store.meter("r").fields
    assert {name: (use.kind, use.changes, use.rewrites) for name, use in fields.items()} == {
        "tasks": ("queue", 3, 0), "notes": ("log", 4, 1), "prices": ("map", 3, 2), "whole": ("plain", 3, 3),
    }  # fmt: skip
    whole = fields["whole"]
    assert whole.last == whole.largest == 1 + 3 * 21
    assert whole.rewritten_bytes == sum(1 + n * 21 for n in (1, 2, 3))
    assert whole.bytes > whole.rewritten_bytes
    assert fields["notes"].largest == 52
    assert fields["notes"].held_bytes > 250


def test_snapshots_are_reckoned_to_the_byte(store: RunStore) -> None:
    filling(FIRST_AFTER_BYTES).run("o", store=store, run_id="r")
    meter = store.meter("r")
    kept, found = [], store.store.get_snapshot("r", 2**62)
    while found is not None:
        kept.append(len(found[1]))
        found = store.store.get_snapshot("r", found[0] - 1)
    assert len(meter.snapshots) >= 2
    assert [size for _, size in meter.snapshots[-2:]] == kept[::-1]
    assert meter.kept_snapshot_bytes == sum(kept)
    assert meter.snapshot_bytes >= sum(kept)


def test_an_unknown_run_has_no_meter(store: RunStore) -> None:
    with pytest.raises(UnknownRun):
        store.meter("r")


@pytest.mark.parametrize("at", [1, -1])
def test_of_a_damaged_journal_what_can_be_read_is_counted(store: RunStore, at: int) -> None:
    """B89: never less than what is readable, and the damage is told."""
    filling(10).run("o", store=store, run_id="r")
    batches = list(store.store.read("r"))
    after, last, data = batches[at]
    batches[at] = Batch(after, last, data[:-1] + bytes([data[-1] ^ 1]))

    class Damaged:
        def read(self, run_id: str, after_seq: int = 0) -> Iterator[Batch]:
            return iter(batches)

        def get_snapshot(self, run_id: str, at_most_seq: int) -> None:
            return None

    meter = measured(Damaged(), "r")  # type: ignore[arg-type]
    assert meter.stored_bytes == sum(len(batch.data) for batch in batches)
    assert meter.events == after
    assert len(meter.notices) == 1
    assert f"events {after + 1} to {last}" in meter.notices[0]
    assert meter.raw_bytes < MAX_BODY_BYTES


# -- what was called --------------------------------------------------------------------------------------------------


def test_retries_and_a_reopened_run_count_no_call_again(store: RunStore) -> None:
    """B113: two attempts fail, the run fails, a person takes it up again; the answer was bought one time."""
    bought: list[str] = []
    failing = [True, True, True]

    @ind.action
    def ask(text: str) -> dict[str, Any]:
        bought.append(text)
        return ANSWER

    @ind.action
    def flaky() -> str:
        if failing:
            failing.pop()
            raise ConnectionError("no")
        return "ok"

    @ind.agent(state=State, name="retrying", attempts=3, backoff_s=0, on_failure="fail")
    def agent(run: ind.Run[State]) -> None:
        ask("a")
        flaky()
        run.finish()

    assert agent.run("o", store=store, run_id="r").status == "failed"
    assert agent.run(store=store, run_id="r", retry=True).status == "finished"
    meter = store.meter("r")
    assert bought == ["a"]
    ask_use, flaky_use = meter.actions["ask"], meter.actions["flaky"]
    assert (ask_use.calls, ask_use.tokens_in, ask_use.tokens_out) == (1, 1000, 200)
    assert ask_use.usd == pytest.approx(0.00072)
    assert (ask_use.recalled, ask_use.saved_tokens) == (3, 3600)
    assert ask_use.saved_usd == pytest.approx(3 * 0.00072)
    assert (flaky_use.calls, flaky_use.failed, flaky_use.recalled) == (4, 3, 0)
    agrees(meter, store)


def test_a_question_answered_counts_no_call_again(store: RunStore) -> None:
    """B07, B113: every wait enters the cycle anew, and what came before it is answered by the journal."""

    @ind.action
    def ask_model() -> str:
        ind.usage(tokens_in=10, tokens_out=1)
        return "x"

    @ind.action(effect="idempotent", key=lambda: "for the whole run")
    def register(*, key: str = "") -> int:
        ind.usage(usd=0.5)
        return 7

    @ind.agent(state=State, name="asking")
    def agent(run: ind.Run[State]) -> None:
        ask_model()
        register()
        run.state.notes.append(run.ask("one?") + run.ask("two?"))
        if len(run.state.notes) == 2:
            run.finish()

    agent.run("o", store=store, run_id="r")
    for _ in range(4):
        store.answer("r", "yes")
        outcome = agent.run(store=store, run_id="r")
    assert outcome.status == "finished"
    meter = store.meter("r")
    model, register_use = meter.actions["ask_model"], meter.actions["register"]
    assert (model.calls, model.recalled, model.unpriced, model.saved_unpriced) == (2, 4, 2, 4)
    assert (model.usd, model.saved_usd) == (0.0, 0.0)
    assert (register_use.calls, register_use.recalled, register_use.usd, register_use.saved_usd) == (1, 5, 0.5, 2.5)
    assert register_use.effect == "idempotent"
    assert register_use.args_bytes > 0
    agrees(meter, store)


def test_what_an_undo_has_used_is_counted_with_it(store: RunStore) -> None:
    def refund(amount: int) -> None:
        ind.usage(usd=0.25)

    def fail(amount: int) -> None:
        ind.usage(usd=0.5)
        raise ConnectionError("no")

    charge = ind.action(effect="irreversible", undo=refund, name="charge")(lambda amount: amount)
    book = ind.action(effect="irreversible", undo=fail, name="book")(lambda amount: amount)

    @ind.agent(state=State, name="undoing", attempts=1, backoff_s=0)
    def agent(run: ind.Run[State]) -> None:
        charge(5)
        book(5)
        raise ValueError("given up")

    assert agent.run("o", store=store, run_id="r").status == "failed"
    meter = store.meter("r")
    assert {name: (use.calls, use.failed, use.usd) for name, use in meter.actions.items()} == {
        "charge": (1, 0, 0.0), "book": (1, 0, 0.0), "undo:charge": (1, 0, 0.25), "undo:book": (1, 1, 0.5),
    }  # fmt: skip
    agrees(meter, store)


def test_an_opened_and_closed_run_costs_writes_and_no_calls(store: RunStore) -> None:
    """B113: resumed three times and read three times, the sums are the same."""

    @ind.action
    def ask() -> dict[str, Any]:
        return ANSWER

    @ind.agent(state=State, name="once")
    def agent(run: ind.Run[State]) -> None:
        ask()
        if run.ask("go on?"):
            run.finish()

    agent.run("o", store=store, run_id="r")
    before = store.meter("r")
    for _ in range(3):
        agent.run(store=store, run_id="r")
    after = store.meter("r")
    assert after.writes > before.writes
    assert after.actions["ask"].calls == before.actions["ask"].calls == 1
    assert after == store.meter("r")


# -- a crash anywhere -------------------------------------------------------------------------------------------------


def buying(ledger: list[str]) -> Any:
    """Three cycles that buy two answers each; the ledger knows every call, and so does its result."""

    @ind.action
    def buy(what: str) -> dict[str, Any]:
        receipt = f"{what}-{len(ledger)}"
        ledger.append(receipt)
        return {**ANSWER, "id": receipt}

    @ind.agent(state=State, name="buying", backoff_s=0)
    def agent(run: ind.Run[State]) -> None:
        nth = len(run.state.notes)
        run.state.notes.append(buy(f"a{nth}")["id"] + buy(f"b{nth}")["id"])
        if nth == 2:
            run.finish()

    return agent


def killing(at: int, met: list[int]) -> Callable[[Steps[Any]], Steps[Any]]:
    """A wire that ends the process at the request of that number."""

    def wire(steps: Steps[Any]) -> Steps[Any]:
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                request = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as stop:
                return stop.value
            answer, error = None, None
            met[0] += 1
            if met[0] == at:
                steps.close()
                raise Killed
            try:
                answer = yield request
            except BaseException as raised:
                error = raised

    return wire


@given(deaths=st.lists(st.integers(1, 60), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_after_crashes_anywhere_the_meter_is_what_the_ledger_can_show(deaths: list[int]) -> None:
    """B113, B114: every call with an outcome in the journal counts one time, and a crash loses one at most."""
    ledger: list[str] = []
    agent = buying(ledger)
    with ind.open("memory:") as store, pytest.MonkeyPatch.context() as patch:
        for at in deaths:
            patch.setattr(Port, "wire", staticmethod(killing(at, [0])))
            try:
                agent.run("o", store=store, run_id="r")
            except Killed:
                pass
        patch.setattr(Port, "wire", None)
        assert agent.run("o", store=store, run_id="r").status == "finished"
        meter, use = store.meter("r"), store.meter("r").actions["buy"]
        done = [e for _, e in store.events("r") if isinstance(e, ev.ActionCompleted)]
        assert use.calls == len(done) <= len(ledger) <= len(done) + len(deaths)
        assert (use.tokens_in, use.tokens_out) == (1000 * use.calls, 200 * use.calls)
        assert use.usd == pytest.approx(0.00072 * use.calls)
        agrees(meter, store)


# -- several, and on the screen ---------------------------------------------------------------------------------------


def test_the_meters_of_a_store_add_up(store: RunStore) -> None:
    for run_id in ("one", "two"):
        filling(10).run("o", store=store, run_id=run_id)
    buying([]).run("o", store=store, run_id="three")
    each = list(store.meters())
    whole = total(each)
    assert [meter.run_id for meter in store.meters(agent="buying")] == ["three"]
    assert (whole.runs, whole.cycles) == (3, 9)
    assert whole.stored_bytes == sum(meter.stored_bytes for meter in each)
    assert whole.fields["filling.whole"].changes == 6
    assert whole.actions["buying.buy"].calls == whole.calls.calls == 6
    assert total([]) == Meter("", runs=0)
    assert total([]).calls == ActionUse()


def test_show_tells_what_the_journal_has_saved(stage: Stage) -> None:
    stage.apart("run", "agent.py:worker", "a", "--run-id", "r", DIE_AT="commit")
    assert stage("resume", "r", "agent.py:worker").code == 0
    said = stage("show", "r").out
    assert "calls: 1 made, 1 from the journal, $0.0100, 3 tokens in, 5 out\n" in said
    assert "  what came from the journal saved $0.0100, 8 tokens and 0.0 s\n" in said
    assert stage("show", "r", "--json").json["usage"]["saved"]["usd"] == 0.01


def test_a_meter_is_read_from_a_file_that_nobody_may_write(tmp_path: Path) -> None:
    with ind.open(tmp_path / "agent.db") as store:
        filling(10).run("o", store=store, run_id="r")
        before = store.meter("r")
    with ind.open(tmp_path / "agent.db", readonly=True) as store:
        assert store.meter("r") == before
