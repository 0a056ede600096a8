"""The part of the conformance suite about listings and time.

Owns: the checks of `list_runs`, and of the times and labels a store shows.
Must never: sleep, skip, or use anything of a store but the `Store` methods.
Invariant: as for `indelible.testing.conformance`.
"""

from __future__ import annotations

from pathlib import Path

from indelible.errors import Misuse
from indelible.stores.base import Label, Query, Store, Write
from indelible.stores.owner import Owner
from indelible.testing.conformance_kit import SteppedClock, StoreFixture, entries, refused, write

PARKED = Label("research", "parked", 1_700_000_100.5, b"\x00\xffabout")
ACTIVE = Label("research", "active", None, b"")
OTHER = Label("mailer", "active", None, b"")


def ids(store: Store, query: Query | None = None) -> list[str]:
    """The run ids of all pages of a listing."""
    return [entry.run_id for entry in entries(store, query)]


class ListingConformance(StoreFixture):
    """`list_runs`, labels and times."""

    def test_a_label_is_replaced_or_kept(self, tmp_path: Path) -> None:
        with self.claimed(tmp_path, "a") as store:
            store.append([write("a", 0, label=PARKED)])
            assert entries(store)[0].label == PARKED
            store.append([write("a", 1)])
            assert entries(store)[0].label == PARKED
            store.append([write("a", 9, label=ACTIVE)])
            assert entries(store)[0].label == PARKED, "the label of a refused batch is refused"
            store.append([write("a", 2, label=ACTIVE)])
            assert entries(store)[0].label == ACTIVE

    def test_filters(self, tmp_path: Path) -> None:
        with self.claimed(tmp_path, "parked", "active", "mail", "new") as store:
            store.append([write("parked", 0, label=PARKED), write("active", 0, label=ACTIVE)])
            store.append([write("mail", 0, label=OTHER)])
            assert sorted(ids(store)) == ["active", "mail", "new", "parked"]
            assert ids(store, Query(statuses=frozenset({"parked"}))) == ["parked"]
            assert ids(store, Query(statuses=frozenset({"parked", "active"}))) == ["mail", "active", "parked"]
            assert ids(store, Query(statuses=frozenset({"finished"}))) == []
            assert ids(store, Query(statuses=frozenset())) == []
            assert ids(store, Query(agent="research")) == ["active", "parked"]
            assert ids(store, Query(agent="research", statuses=frozenset({"active"}))) == ["active"]
            assert ids(store, Query(run_ids=("mail", "new", "nobody"))) == ["mail", "new"]
            assert ids(store, Query(run_ids=("mail", "parked"), statuses=frozenset({"active"}))) == ["mail"]
            assert ids(store, Query(run_ids=("mail", "parked"), agent="research")) == ["parked"]
            assert ids(store, Query(run_ids=())) == []

    def test_the_newest_update_comes_first(self, tmp_path: Path) -> None:
        """B57 B58 B59: also within one tick of the clock, and when it steps back."""
        clock = SteppedClock()
        names = [f"run-{number}" for number in range(12)]
        with self.claimed(tmp_path, *names, clock=clock) as store:
            assert ids(store) == names[::-1]
            store.append([write(name, 0, label=ACTIVE) for name in names])
            assert ids(store) == names[::-1]
            clock.advance(-3600)
            store.append([write("run-2", 1)])
            store.append([write("run-10", 1)])
            assert ids(store)[:3] == ["run-10", "run-2", "run-11"]
            store.claim("run-5", Owner.here("test"), 30.0)
            assert ids(store)[0] == "run-10", "renewing a lease is no update"

    def test_order_within_a_run_is_that_of_its_seqs(self, tmp_path: Path) -> None:
        """B57 B58 B59: '2' before '10', under a clock that stands still or steps back."""
        clock = SteppedClock()
        with self.claimed(tmp_path, "a", clock=clock) as store:
            for at in range(0, 1000, 10):
                clock.advance(-1800 if at % 100 == 90 else 0)
                assert store.append([write("a", at + n, b"%d" % (at + n)) for n in range(10)]) == [None] * 10
            assert [batch.data for batch in store.read("a")] == [b"%d" % at for at in range(1000)]
            assert [batch.last_seq for batch in store.read("a", 995)] == [996, 997, 998, 999, 1000]

    def test_times_and_sizes(self, tmp_path: Path) -> None:
        """B61: epoch seconds on one clock for creation and update."""
        clock = SteppedClock(1_700_000_000.25)
        with self.claimed(tmp_path, "a", clock=clock) as store:
            clock.advance(5)
            store.append([write("a", 0, b"12345"), write("a", 1, b"678")])
            clock.advance(5)
            store.append([write("a", 0, b"stale")])
            (entry,) = entries(store)
            assert (entry.created_at, entry.updated_at) == (1_700_000_000.25, 1_700_000_005.25)
            assert (entry.stored_bytes, entry.head) == (8, 2)

    def test_pages_are_stable(self, tmp_path: Path) -> None:
        """B111: over a thousand runs; what does not change meanwhile is seen once, whatever else is written."""
        names = [f"run-{number}" for number in range(1200)]
        with self.claimed(tmp_path, *names, "busy") as store:
            store.append([write(name, 0, label=ACTIVE if name[-1] < "5" else PARKED) for name in names])
            for query in (Query(limit=250), Query(limit=250, statuses=frozenset({"active", "parked"}))):
                seen: list[str] = []
                cursor: str | None = None
                for turn in range(100):
                    page = store.list_runs(query, cursor)
                    assert len(page.runs) <= 250
                    seen += [entry.run_id for entry in page.runs if entry.run_id in names]
                    head = next(entry.head for entry in entries(store, Query(run_ids=("busy",))))
                    store.append([write("busy", head, label=ACTIVE)])
                    store.claim(f"new-{turn}-{len(query.statuses or ())}", Owner.here("test"), 30.0)
                    cursor = page.cursor
                    if cursor is None:
                        break
                assert seen == names[::-1]
            assert len(store.list_runs(Query(limit=1)).runs) == 1

    def test_forty_thousand_ids(self, tmp_path: Path) -> None:
        """B111: a filter is not bound by the number of SQL variables."""
        wanted = tuple(f"run-{number}" for number in range(40_000))
        with self.claimed(tmp_path, "run-3", "run-39999", "elsewhere") as store:
            assert ids(store, Query(run_ids=wanted)) == ["run-39999", "run-3"]

    def test_a_page_that_makes_no_sense(self, tmp_path: Path) -> None:
        with self.claimed(tmp_path) as store:
            refused(Misuse, lambda: store.list_runs(Query(limit=0)))
            for cursor in ("", "page 2", "-1", "9" * 40):
                refused(Misuse, lambda cursor=cursor: store.list_runs(Query(), cursor))  # type: ignore[misc]
            assert store.list_runs(Query()).cursor is None

    def test_a_label_of_odd_words(self, tmp_path: Path) -> None:
        label = Label("a'; --\U0001f600", "", float("inf"), bytes(range(256)))
        with self.claimed(tmp_path, "a") as store:
            assert store.append([Write("a", 1, write("a", 0).batch, label)]) == [None]
            assert entries(store)[0].label == label
            assert ids(store, Query(statuses=frozenset({""}))) == ["a"]
