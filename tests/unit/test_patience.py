"""A server that is away is waited for, and not for ever."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from indelible.errors import StoreUnavailable
from indelible.stores import patience
from indelible.stores.base import Batch, Write
from indelible.stores.memory import MemoryStore
from indelible.stores.patience import Patient, at_once, pauses


class Flaky(MemoryStore):
    """Every method that reads fails `left` times; a read that has begun fails after each batch."""

    left = 0

    def _fail(self) -> None:
        if self.left:
            self.left -= 1
            raise StoreUnavailable("the server is away", hint="start it")

    def claim(self, run_id: str, owner: str, ttl_s: float) -> int:
        self._fail()
        return super().claim(run_id, owner, ttl_s)

    def read(self, run_id: str, after_seq: int = 0) -> Iterator[Batch]:
        for batch in super().read(run_id, after_seq):
            yield batch
            self._fail()


def test_the_pauses_come_to_the_patience() -> None:
    assert sum(pauses(60.0)) == pytest.approx(60.0)
    assert list(pauses(0.0)) == []


def test_the_tries_are_counted_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that keeps each try waiting is not waited for any longer than one that refuses at once."""
    time = iter(range(0, 1000, 20))
    monkeypatch.setattr(patience, "perf_counter", lambda: float(next(time)))
    assert len(list(pauses(60.0))) == 2


def test_what_may_be_asked_twice_is_and_a_read_goes_on_where_it_was() -> None:
    store, slept = Flaky(lambda: 0.0), list[float]()
    patient = Patient(store, slept.append)
    store.left = 3
    assert patient.claim("r", "owner", 30.0) == 1
    assert slept == list(islice(pauses(60.0), 3))
    for at in range(4):
        assert store.append([Write("r", 1, Batch(at, at + 1, b"x"))]) == [None]
    store.left = 3
    assert [batch.last_seq for batch in patient.read("r")] == [1, 2, 3, 4]
    assert at_once(patient) is store


def test_a_read_does_not_go_on_behind_what_was_pruned() -> None:
    """B90: what the reader has not seen is gone, and a journal with a gap in it would be taken for a damaged one."""
    store = Flaky(lambda: 0.0)
    store.claim("r", "owner", 30.0)
    store.append([Write("r", 1, Batch(at, at + 1, b"x")) for at in range(4)])
    reading = Patient(store, list[float]().append).read("r")
    assert next(reading).last_seq == 1
    store.put_snapshot("r", 3, b"s", True)
    store.left = 1
    with pytest.raises(StoreUnavailable, match="was pruned while it was read"):
        list(reading)
    assert [batch.after_seq for batch in Patient(store, list[float]().append).read("r", 1)] == [3]


def test_in_the_end_it_is_told() -> None:
    store, slept = Flaky(lambda: 0.0), list[float]()
    store.left = 1_000
    with pytest.raises(StoreUnavailable, match="away"):
        Patient(store, slept.append, 10.0).claim("r", "owner", 30.0)
    assert sum(slept) == pytest.approx(10.0)
    store.left = 1
    with pytest.raises(StoreUnavailable, match="away"):
        Patient(store, slept.append).claim("r", "owner", 0)  # a release is tried once
