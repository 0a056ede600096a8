"""The queue: order of service, attempts, failed items, and what a roll-back leaves."""

from __future__ import annotations

from typing import Any

import pytest

from indelible.core.collections import FailedItem, NotDue
from indelible.errors import Misuse, NotStorable
from tests.unit.workbench import Bench, Note


@pytest.fixture
def bench() -> Bench:
    return Bench()


class TestQueue:
    def test_serves_by_priority_then_arrival(self, bench: Bench) -> None:
        state = bench.open()
        state.tasks.append("later", priority=5)
        state.tasks.extend(["a", "b"])
        state.tasks.append("urgent", priority=-1)
        bench.commit()
        state = bench.open()
        assert list(state.tasks) == ["urgent", "a", "b", "later"]
        assert state.tasks.peek() == "urgent"
        assert [state.tasks.take() for _ in range(4)] == ["urgent", "a", "b", "later"]
        assert not state.tasks

    def test_an_item_added_in_a_cycle_can_be_taken_in_it(self, bench: Bench) -> None:
        state = bench.open()
        state.tasks.append("once")
        assert state.tasks.take() == "once"
        bench.commit()
        assert (state.tasks.added, state.tasks.done, len(state.tasks)) == (1, 1, 0)

    def test_an_empty_queue_says_which_it_is(self, bench: Bench) -> None:
        state = bench.open()
        with pytest.raises(IndexError, match="queue 'tasks' is empty"):
            state.tasks.take()
        with pytest.raises(IndexError, match="queue 'tasks' is empty"):
            state.tasks.peek()

    def test_what_is_not_due_parks_the_run_until_it_is(self, bench: Bench) -> None:
        state = bench.open(now=100.0)
        state.tasks.append("second", not_before=300.0)
        state.tasks.append("first", not_before=200)
        assert len(state.tasks) == 2
        with pytest.raises(NotDue) as parked:
            state.tasks.take()
        assert parked.value.at == 200.0
        assert not isinstance(parked.value, Exception)
        bench.commit()
        state = bench.open(now=200.0)
        assert state.tasks.take() == "first"
        with pytest.raises(NotDue) as parked:
            state.tasks.peek()
        assert parked.value.at == 300.0

    def test_what_becomes_due_overtakes_by_priority(self, bench: Bench) -> None:
        state = bench.open(now=1.0)
        state.tasks.append("urgent", priority=-1, not_before=10.0)
        state.tasks.extend(["a", "b"])
        assert state.tasks.take() == "a"
        bench.commit()
        assert bench.open(now=10.0).tasks.take() == "urgent"

    def test_a_clock_that_goes_back_serves_nothing_early(self, bench: Bench) -> None:
        bench.open(now=1.0).tasks.append("x", not_before=10.0)
        bench.commit()
        assert bench.open(now=20.0).tasks.peek() == "x"
        bench.ws.discard()
        state = bench.open(now=5.0)
        with pytest.raises(NotDue):
            state.tasks.take()

    def test_a_rolled_back_item_is_back_in_its_place(self, bench: Bench) -> None:
        """B23: a task whose attempt failed is pending again, counted, and the rest of the queue intact."""
        bench.open().tasks.extend(["a", "b", "c"])
        bench.commit()
        state = bench.open()
        assert (state.tasks.take(), state.tasks.attempts) == ("a", 1)
        state.tasks.append("from the failed attempt")
        assert bench.ws.taken() == [("tasks", 0)]
        assert bench.retry() is False
        state = bench.open()
        assert list(state.tasks) == ["a", "b", "c"]
        assert (state.tasks.take(), state.tasks.attempts) == ("a", 2)

    def test_a_retried_item_can_be_made_to_wait(self, bench: Bench) -> None:
        bench.open(now=1.0).tasks.extend(["a", "b"])
        bench.commit()
        assert bench.open(now=1.0).tasks.take() == "a"
        bench.retry(not_before=60)
        state = bench.open(now=2.0)
        assert list(state.tasks) == ["b", "a"]
        assert state.tasks.take() == "b"
        bench.commit()
        assert bench.open(now=60.0).tasks.take() == "a"

    def test_an_item_given_up_is_kept_and_can_come_back(self, bench: Bench) -> None:
        """B23: after the last attempt the item moves to the failed list; it is never dropped."""
        bench.open().tasks.extend(["a", "b"], priority=2)
        bench.commit()
        for attempt, gave_up in ((1, False), (2, True)):
            state = bench.open()
            assert (state.tasks.take(), state.tasks.attempts) == ("a", attempt)
            assert bench.retry(f"error {attempt}", limit=2) is gave_up
        assert state.tasks.failed == [FailedItem("a", 2, "error 2")]
        assert list(state.tasks) == ["b"]
        state = bench.open()
        assert state.tasks.retry_failed() == 1
        assert (list(state.tasks), state.tasks.failed, len(state.tasks)) == (["a", "b"], [], 2)
        bench.ws.discard()
        assert (list(state.tasks), len(state.tasks.failed)) == (["b"], 1)
        state = bench.open()
        state.tasks.retry_failed()
        bench.commit()
        state = bench.open()
        assert (state.tasks.take(), state.tasks.attempts) == ("a", 1)
        bench.commit()
        assert (state.tasks.added, state.tasks.done, state.tasks.removed, len(state.tasks)) == (2, 1, 0, 1)

    def test_a_revived_item_taken_and_rolled_back_is_failed_again(self, bench: Bench) -> None:
        bench.open().tasks.append("a")
        bench.commit()
        bench.open().tasks.take()
        bench.retry(limit=1)
        state = bench.open()
        state.tasks.retry_failed()
        assert state.tasks.take() == "a"
        assert bench.ws.taken() == []
        assert bench.retry(limit=1) is False
        assert state.tasks.failed == [FailedItem("a", 1, "boom")]

    def test_reprioritise_is_a_change_and_rolls_back(self, bench: Bench) -> None:
        bench.open().tasks.extend(["aaa", "b", "cc"])
        bench.commit()
        state = bench.open()
        assert state.tasks.take() == "aaa"
        state.tasks.append("dddd")
        state.tasks.reprioritise(len)
        assert list(state.tasks) == ["b", "cc", "dddd"]
        bench.ws.discard()
        assert list(state.tasks) == ["aaa", "b", "cc"]
        state = bench.open()
        state.tasks.reprioritise(len)
        assert [state.tasks.take() for _ in range(2)] == ["b", "cc"]
        changes = bench.commit()
        assert ["tasks", "rank", [[0, 3]]] in changes

    def test_a_reprioritise_that_changes_nothing_is_no_change(self, bench: Bench) -> None:
        bench.open().tasks.extend(["a", "b"], priority=1)
        bench.commit()
        bench.open().tasks.reprioritise(len)
        assert bench.commit() == []

    def test_a_failing_ranking_function_changes_nothing(self, bench: Bench) -> None:
        state = bench.open()
        state.tasks.extend(["1", "2", "x"])
        with pytest.raises(ValueError, match="invalid literal"):
            state.tasks.reprioritise(lambda value: -int(value))
        assert list(state.tasks) == ["1", "2", "x"]

    def test_a_ranking_that_was_rolled_back_does_not_outlive_its_cycle(self, bench: Bench) -> None:
        bench.open().tasks.extend(["aaa", "b"])
        bench.commit()
        state = bench.open()
        state.tasks.reprioritise(len)
        assert state.tasks.take() == "b"
        bench.ws.discard()
        state = bench.open()
        assert [state.tasks.take(), state.tasks.take()] == ["aaa", "b"]

    def test_items_of_a_rolled_back_cycle_leave_no_gap_for_the_next_ones(self, bench: Bench) -> None:
        state = bench.open()
        state.tasks.extend(["x", "y"], priority=3)
        assert state.tasks.take() == "x"
        bench.ws.discard()
        state = bench.open()
        state.tasks.extend(["a", "b"], priority=1)
        assert [state.tasks.take(), state.tasks.take()] == ["a", "b"]
        assert not state.tasks

    def test_remove_takes_the_next_equal_item(self, bench: Bench) -> None:
        state = bench.open()
        state.tasks.append("x", priority=2)
        state.tasks.append("x", priority=1)
        bench.commit()
        state = bench.open()
        assert state.tasks.remove("x") is True
        assert state.tasks.remove("y") is False
        bench.commit()
        assert (len(state.tasks), state.tasks.removed, state.tasks.added) == (1, 1, 2)
        assert [item[1] for item in bench.ws.doc["tasks"][2].values()] == [2]

    def test_values_are_copied_in_and_out(self, bench: Bench) -> None:
        """B85: what the caller goes on to do with a value does not reach the stored one."""
        note = Note("n", ["a"])
        state = bench.open()
        state.jobs.append(note)
        note.tags.append("after the append")
        bench.commit()
        state = bench.open()
        taken = state.jobs.take()
        assert taken == Note("n", ["a"])
        taken.tags.append("after the take")
        bench.ws.discard()
        assert list(state.jobs) == [Note("n", ["a"])]

    @pytest.mark.parametrize("priority", [True, 1.0, "1", None, 2**63])
    def test_a_priority_must_be_an_int(self, bench: Bench, priority: Any) -> None:
        with pytest.raises(Misuse, match="priority"):
            bench.open().tasks.append("x", priority=priority)

    @pytest.mark.parametrize("moment", [float("nan"), float("inf"), "soon", 10**400])
    def test_not_before_must_be_a_time(self, bench: Bench, moment: Any) -> None:
        with pytest.raises(Misuse, match="epoch seconds"):
            bench.open().tasks.append("x", not_before=moment)

    def test_extend_adds_all_or_none(self, bench: Bench) -> None:
        state = bench.open()
        values: Any = ["a", object()]
        with pytest.raises(NotStorable, match=r"state\.tasks\[1\]"):
            state.tasks.extend(values)
        assert len(state.tasks) == 0

    def test_items_from_elsewhere_are_served(self, bench: Bench) -> None:
        state = bench.open()
        state.tasks.append("a")
        assert state.tasks.peek() == "a"
        bench.commit()
        bench.ws.commit([["tasks", "add", [["urgent", -1, None]]]])
        assert bench.open().tasks.take() == "urgent"

    def test_a_queue_of_ten_thousand_serves_as_fast_as_one_of_ten(self, bench: Bench) -> None:
        """A cycle looks at a bounded number of items, however long the queue is."""
        looked = 0

        class Counted(dict[int, Any]):
            def get(self, key: int, default: Any = None) -> Any:
                nonlocal looked
                looked += 1
                return super().get(key, default)

        bench.open().tasks.extend(["seed"] * 10_000)
        bench.commit()
        bench.ws.doc["tasks"][2] = Counted(bench.ws.doc["tasks"][2])
        bench.open().tasks.take()  # builds the cache
        bench.ws.commit(bench.ws.changes())
        looked = 0
        for n in range(1_000):
            state = bench.open()
            state.tasks.take()
            state.tasks.extend(["x", "y", "z"])
            if n % 3:
                bench.ws.commit(bench.ws.changes())
            else:
                bench.ws.discard()
        assert looked <= 20 * 1_000


def test_what_a_rolled_back_cycle_removed_is_served_again(bench: Bench) -> None:
    """Nothing is dropped: the removal is forgotten, and so must be what serving others made of it."""
    bench.open().tasks.extend(["first", "second"])
    bench.commit()
    state = bench.open()
    assert state.tasks.remove("first")
    assert state.tasks.take() == "second"
    bench.ws.discard()
    state = bench.open()
    assert [state.tasks.take(), state.tasks.take()] == ["first", "second"]
