"""The part of the conformance suite for stores that several handles or processes share.

Owns: the checks of durability after closing, and of two handles on the same data.
Must never: sleep, skip, or use anything of a store but the `Store` methods.
Invariant: as for `indelible.testing.conformance`; `open_store` called twice with the same
`tmp_path` opens the same data.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from indelible.errors import LeaseLost, Misuse, RunBusy, StaleWriter, UnknownRun
from indelible.stores.base import Query, inbox_of
from indelible.stores.owner import Owner
from indelible.testing.conformance_kit import SteppedClock, StoreFixture, entries, in_threads, refused, write
from indelible.testing.conformance_listing import PARKED


class SharedStoreConformance(StoreFixture):
    """Two handles on one store. To be derived from together with `StoreConformance`."""

    def test_it_says_so(self, tmp_path: Path) -> None:
        with self.claimed(tmp_path) as store:
            assert store.shared

    def test_all_of_it_is_there_after_closing(self, tmp_path: Path) -> None:
        """B53 B70: runs, labels, leases, inboxes, snapshots and tombstones."""
        clock = SteppedClock()
        with self.claimed(tmp_path, "a", "gone", clock=clock) as store:
            store.append([write("a", 0, b"one", label=PARKED), write(inbox_of("a"), 0, b"hello", epoch=0)])
            store.put_snapshot("a", 1, b"snap")
            store.delete("gone")
            before = entries(store)
            store.close()
            with closing(self.open_store(tmp_path, clock)) as again:
                assert entries(again) == before
                assert [batch.data for batch in again.read("a")] == [b"one"]
                assert [batch.data for batch in again.read(inbox_of("a"))] == [b"hello"]
                assert again.get_snapshot("a", 1) == (1, b"snap")
                refused(UnknownRun, lambda: again.claim("gone", Owner.here("test"), 30.0))
                assert again.append([write("a", 1)]) == [None], "the lease outlives the handle"

    def test_both_see_what_either_writes(self, tmp_path: Path) -> None:
        clock = SteppedClock()
        with self.claimed(tmp_path, "a", clock=clock) as one, closing(self.open_store(tmp_path, clock)) as two:
            assert one.append([write("a", 0, b"one")]) == [None]
            assert [batch.data for batch in two.read("a")] == [b"one"]
            assert two.append([write("a", 1, b"two")]) == [None]
            assert isinstance(one.append([write("a", 1)])[0], StaleWriter)
            assert [batch.data for batch in one.read("a", 1)] == [b"two"]
            assert one.list_runs(Query()) == two.list_runs(Query())

    def test_a_taken_over_handle_is_fenced(self, tmp_path: Path) -> None:
        """B50 B62: one clock, the store's, decides for both."""
        clock = SteppedClock()
        with self.claimed(tmp_path, "a", clock=clock) as one, closing(self.open_store(tmp_path, clock)) as two:
            refused(RunBusy, lambda: two.claim("a", "worker-2", 30.0))
            clock.advance(30)
            assert two.claim("a", "worker-2", 30.0) == 2
            assert isinstance(one.append([write("a", 0)])[0], LeaseLost)
            refused(RunBusy, lambda: one.claim("a", Owner.here("test"), 30.0))

    def test_a_late_write_through_another_handle(self, tmp_path: Path) -> None:
        """B69: deleted by one, written by the other."""
        clock = SteppedClock()
        with self.claimed(tmp_path, "a", clock=clock) as one, closing(self.open_store(tmp_path, clock)) as two:
            one.append([write("a", 0)])
            two.delete("a")
            assert isinstance(one.append([write("a", 1)])[0], StaleWriter)
            refused(UnknownRun, lambda: one.put_snapshot("a", 1, b""))
            assert entries(one) == []

    def test_a_past_that_the_other_dropped(self, tmp_path: Path) -> None:
        """B73: seen by both at once, and still so after all is closed."""
        clock = SteppedClock()
        with self.claimed(tmp_path, "a", clock=clock) as one, closing(self.open_store(tmp_path, clock)) as two:
            one.append([write("a", at, b"%d" % at) for at in range(4)])
            assert len(list(one.read("a"))) == 4
            two.put_snapshot("a", 3, b"s", True)
            assert [batch.data for batch in one.read("a")] == [b"3"]
            assert one.get_snapshot("a", 4) == (3, b"s")
            assert one.append([write("a", 4, b"4")]) == [None]
            one.put_snapshot("a", 4, b"t")
            one.put_snapshot("a", 5, b"u")
            with closing(self.open_store(tmp_path, clock)) as again:
                assert [batch.data for batch in again.read("a")] == [b"3", b"4"]
                assert again.get_snapshot("a", 3) == (3, b"s")

    def test_two_handles_racing_for_one_run(self, tmp_path: Path) -> None:
        """B49 B50: neither is turned away because the other is at it; one wins each position."""
        clock = SteppedClock()
        won: list[int] = []
        with self.claimed(tmp_path, "a", clock=clock) as one, closing(self.open_store(tmp_path, clock)) as two:

            def work(first: bool) -> None:
                store = one if first else two
                for at in range(100):
                    (answer,) = store.append([write("a", at)])
                    if answer is None:
                        won.append(at)
                    else:
                        assert isinstance(answer, StaleWriter)
                        while not any(True for _ in store.read("a", at)):
                            pass

            in_threads(lambda: work(True), lambda: work(False))
            assert sorted(won) == list(range(100))
            assert [batch.last_seq for batch in one.read("a")] == list(range(1, 101))

    def test_closing_one_leaves_the_other(self, tmp_path: Path) -> None:
        clock = SteppedClock()
        with self.claimed(tmp_path, "a", clock=clock) as one, closing(self.open_store(tmp_path, clock)) as two:
            two.close()
            refused(Misuse, lambda: two.append([write("a", 0)]))
            assert one.append([write("a", 0)]) == [None]
