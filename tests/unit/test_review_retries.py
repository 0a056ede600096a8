"""A call made again inside a cycle, after it failed or was cancelled, is the same call and not one more."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import pytest

import indelible as ind
from indelible.errors import StoreUnavailable
from indelible.runtime.runstore import RunStore
from indelible.stores.base import Write
from tests.unit.simple_agents import Memory, agent_of


def test_a_deed_that_was_retried_in_its_cycle_is_not_done_again_by_the_next_attempt(store: RunStore) -> None:
    """B02: the first try failed cleanly, the second was sent; the cycle's own retry must find the second."""
    tries: list[str] = []

    @ind.action(effect="irreversible", fails_cleanly=(ConnectionRefusedError,))
    def send(text: str) -> str:
        tries.append(text)
        if len(tries) == 1:
            raise ConnectionRefusedError
        return f"sent at try {len(tries)}"

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        sent = ""
        while not sent:
            try:
                sent = send("x")
            except ConnectionRefusedError:
                continue
        if run.attempt == 1:
            raise ValueError("a later part of the cycle")
        run.finish(sent)

    assert agent_of(body).run("o", store=store, run_id="r").result == "sent at try 2"
    assert tries == ["x", "x"]


def test_two_equal_deeds_of_which_one_had_failed_are_two_in_the_next_attempt(store: RunStore) -> None:
    """What stands for a failed call stands for one call only."""
    tries: list[int] = []

    @ind.action(effect="irreversible", fails_cleanly=(ConnectionRefusedError,))
    def send() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionRefusedError
        return len(tries)

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        got: list[int] = []
        for _ in range(2):
            try:
                got.append(send())
            except ConnectionRefusedError:
                got.append(0)
        if run.attempt == 1:
            raise ValueError
        run.finish(sorted(got))

    assert agent_of(body).run("o", store=store, run_id="r").result == [2, 3]


def test_a_paid_answer_that_took_two_tries_is_not_paid_for_again(store: RunStore) -> None:
    """B23: the cycle is tried again; the answer its retry got is in the journal."""
    tries: list[str] = []

    @ind.action
    def complete(prompt: str) -> str:
        tries.append(prompt)
        if len(tries) == 1:
            raise TimeoutError
        return prompt.upper()

    def body(run: ind.Run[Memory]) -> None:
        run.state.tasks.take()
        answer = ""
        while not answer:
            try:
                answer = complete("x")
            except TimeoutError:
                continue
        if run.attempt == 1:
            raise ValueError
        run.finish(answer)

    assert agent_of(body).run("o", store=store, run_id="r").result == "X"
    assert len(tries) == 2


def test_an_idempotent_action_retried_in_its_cycle_keeps_its_key(store: RunStore) -> None:
    """B02: a time-out proves nothing; with another key the other side would take the retry for one more."""
    keys: list[str] = []

    @ind.action(effect="idempotent")
    def charge(amount: int, *, key: str = "") -> None:
        keys.append(key)
        if len(keys) < 3:
            raise TimeoutError

    def body(run: ind.Run[Memory]) -> None:
        for _ in range(3):
            try:
                charge(5)
            except TimeoutError:
                continue
        charge(5)
        run.finish()

    agent_of(body).run("o", store=store, run_id="r")
    assert keys[0] == keys[1] == keys[2] != keys[3]


@pytest.mark.parametrize(("answer", "calls"), [(ind.happened(), 1), (ind.did_not_happen(), 2)])
def test_a_deed_cut_off_by_a_time_limit_and_called_again_is_probed_first(
    store: RunStore, answer: Any, calls: int
) -> None:
    """Cancellation is never a clean failure: the retry asks the probe before it does anything."""
    sent: list[str] = []
    limits: list[asyncio.Timeout] = []

    async def probe(text: str) -> Any:
        return answer

    @ind.action(effect="irreversible", probe=probe)
    async def send(text: str) -> None:
        sent.append(text)
        if len(sent) == 1:
            limits[0].reschedule(0)
            await asyncio.get_running_loop().create_future()

    @ind.agent(state=Memory, name="tester", backoff_s=0)
    async def agent(run: ind.Run[Memory]) -> None:
        while True:
            try:
                async with asyncio.timeout(None) as limit:
                    limits.append(limit)
                    await send("x")
            except TimeoutError:
                continue
            break
        run.finish()

    assert asyncio.run(agent.run("o", store=store, run_id="r")).is_finished
    assert len(sent) == calls
    assert store.recover("r").record.in_doubt() == []


def test_a_deed_whose_intent_could_not_be_written_was_not_done_and_is_in_no_doubt(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is asked about what this process knows it has not called."""
    sent: list[str] = []
    append = store.store.append
    failing = [True]

    def flaky(writes: list[Write]) -> Any:
        if failing:
            raise StoreUnavailable("the disk is full")
        return append(writes)

    @ind.action(effect="irreversible")
    def send(text: str) -> None:
        sent.append(text)

    def body(run: ind.Run[Memory]) -> None:
        monkeypatch.setattr(store.store, "append", flaky)
        monkeypatch.setattr("indelible.stores.writer.pauses", lambda _: iter(()))
        with pytest.raises(StoreUnavailable):
            send("x")
        failing.clear()
        run.finish(run.notices)

    assert agent_of(body).run("o", store=store, run_id="r").result == []
    assert sent == []
    assert store.recover("r").record.in_doubt() == []


def test_a_deed_whose_completion_could_not_be_written_is_not_done_again(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B06: the deed is done and known in this process; calling it again takes what is known."""
    sent: list[str] = []
    append = store.store.append
    failing: list[bool] = []

    def flaky(writes: list[Write]) -> Any:
        if failing:
            raise StoreUnavailable("the disk is full")
        return append(writes)

    monkeypatch.setattr(store.store, "append", flaky)
    monkeypatch.setattr("indelible.stores.writer.pauses", lambda _: iter(()))

    @ind.action(effect="irreversible")
    def send(text: str) -> str:
        sent.append(text)
        failing.append(True)
        return f"sent {len(sent)}"

    def body(run: ind.Run[Memory]) -> None:
        with pytest.raises(StoreUnavailable):
            send("x")
        failing.clear()
        run.finish(send("x"))

    assert agent_of(body).run("o", store=store, run_id="r").result == "sent 1"
    assert sent == ["x"]


def test_a_cycle_of_many_calls_does_not_keep_their_arguments(store: RunStore) -> None:
    sizes: list[int] = []

    @ind.action
    def count(text: str) -> int:
        return len(text)

    def body(run: ind.Run[Memory]) -> None:
        tracemalloc.start()
        try:
            for n in range(50):
                count(f"{n}" + "x" * 200_000)
            sizes.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
        run.finish()

    agent_of(body).run("o", store=store, run_id="r")
    assert sizes[0] < 2_000_000
