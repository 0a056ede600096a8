"""The part of the conformance suite about who may write a run.

Owns: the checks of `claim`.
Must never: sleep, skip, or use anything of a store but the `Store` methods.
Invariant: as for `indelible.testing.conformance`.
"""

from __future__ import annotations

from pathlib import Path

from indelible.errors import Misuse, RunBusy, UnknownRun
from indelible.stores.base import inbox_of
from indelible.stores.owner import Owner, enter, leave
from indelible.testing.conformance_kit import LABEL, SteppedClock, StoreFixture, entries, in_threads, refused, write


class ClaimConformance(StoreFixture):
    """`claim`: one live writer per run."""

    def test_claiming_creates_the_run(self, tmp_path: Path) -> None:
        with self.claimed(tmp_path, "a") as store:
            (entry,) = entries(store)
            assert (entry.run_id, entry.head, entry.epoch, entry.label) == ("a", 0, 1, None)
            assert (entry.owner, entry.live, entry.stored_bytes) == (Owner.here("test"), True, 0)

    def test_the_owner_renews_and_keeps_its_epoch(self, tmp_path: Path) -> None:
        clock = SteppedClock()
        with self.claimed(tmp_path, "a", clock=clock) as store:
            for _ in range(3):
                clock.advance(20)
                assert store.claim("a", Owner.here("test"), 30.0) == 1
            refused(RunBusy, lambda: store.claim("a", Owner.here("other"), 30.0))
            clock.advance(31)
            assert store.claim("a", Owner.here("test"), 30.0) == 1, "its own lapsed lease is still its own"

    def test_a_live_owner_is_refused_by_name(self, tmp_path: Path) -> None:
        """B102: a fast and clear error instead of waiting."""
        with self.claimed(tmp_path, "a") as store:
            error = refused(RunBusy, lambda: store.claim("a", Owner.here("other"), 30.0))
            assert f"process {Owner.parse(Owner.here('x')).pid}" in str(error)  # type: ignore[union-attr]
            assert error.ids["expires_in_s"] == 30.0
            assert entries(store)[0].epoch == 1, "a refused claim has left no trace"

    def test_a_lapsed_lease_is_taken_over(self, tmp_path: Path) -> None:
        """B62: on the store's clock, and up to the very second."""
        clock = SteppedClock()
        with self.claimed(tmp_path, "a", clock=clock) as store:
            clock.advance(29.5)
            assert entries(store)[0].live
            refused(RunBusy, lambda: store.claim("a", Owner.here("other"), 30.0))
            clock.advance(0.5)
            assert not entries(store)[0].live
            assert store.claim("a", Owner.here("other"), 30.0) == 2
            assert store.claim("a", "somebody else's notation", 0.0) == 2, "only the owner releases"
            assert entries(store)[0].owner == Owner.here("other")

    def test_an_owner_that_is_gone_is_taken_over_at_once(self, tmp_path: Path) -> None:
        """B102 B103: a claimant of this process that has ended can write no more."""
        with self.claimed(tmp_path, "a") as store:
            leave("test")
            assert not entries(store)[0].live
            assert store.claim("a", Owner.here("other"), 30.0) == 2

    def test_an_unknown_notation_is_never_called_gone(self, tmp_path: Path) -> None:
        """B103: without proof, the lease decides."""
        clock = SteppedClock()
        with self.claimed(tmp_path, clock=clock) as store:
            assert store.claim("a", "worker-7", 30.0) == 1
            refused(RunBusy, lambda: store.claim("a", Owner.here("test"), 30.0))
            clock.advance(30)
            assert store.claim("a", Owner.here("test"), 30.0) == 2

    def test_writing_renews_the_lease(self, tmp_path: Path) -> None:
        clock = SteppedClock()
        with self.claimed(tmp_path, "a", clock=clock) as store:
            for at, label in enumerate((None, LABEL, LABEL, None, LABEL, LABEL)):
                clock.advance(20)
                assert store.append([write("a", at, label=label)]) == [None]
            clock.advance(20)
            refused(RunBusy, lambda: store.claim("a", Owner.here("other"), 30.0))

    def test_release(self, tmp_path: Path) -> None:
        with self.claimed(tmp_path, "a") as store:
            store.append([write("a", 0)])
            assert store.claim("a", Owner.here("test"), 0.0) == 1
            assert (entries(store)[0].owner, entries(store)[0].live) == ("", False)
            assert store.append([write("a", 1)]) == [None], "the epoch is still the newest"
            assert entries(store)[0].owner == "", "and writing does not take the run back"
            assert store.claim("a", Owner.here("test"), 30.0) == 2
            refused(UnknownRun, lambda: store.claim("nobody", Owner.here("test"), 0.0))

    def test_a_claim_that_makes_no_sense(self, tmp_path: Path) -> None:
        with self.claimed(tmp_path) as store:
            for run_id, owner, ttl_s in (("a", "", 1.0), ("a", "o", -1.0), ("a", "o", float("nan"))):
                refused(Misuse, lambda a=run_id, b=owner, c=ttl_s: store.claim(a, b, c))  # type: ignore[misc]
            refused(Misuse, lambda: store.claim(inbox_of("a"), "o", 1.0))
            assert entries(store) == []

    def test_many_claim_and_one_wins(self, tmp_path: Path) -> None:
        """B50 B54: two workers with the same list of runs."""
        won: list[str] = []

        def work(nonce: str) -> None:
            for number in range(50):
                try:
                    store.claim(f"run-{number}", Owner.here(nonce), 30.0)
                except RunBusy:
                    continue
                won.append(f"run-{number}")

        nonces = [f"worker-{number}" for number in range(4)]
        for nonce in nonces:
            enter(nonce)
        with self.claimed(tmp_path) as store:
            in_threads(*(lambda nonce=nonce: work(nonce) for nonce in nonces))
            assert sorted(won) == sorted(f"run-{number}" for number in range(50))
            assert {entry.epoch for entry in entries(store)} == {1}
        for nonce in nonces:
            leave(nonce)
