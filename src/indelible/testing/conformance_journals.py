"""The part of the conformance suite about journals, inboxes and snapshots.

Owns: the checks of `append`, `read`, `put_snapshot`, `get_snapshot`, `delete` and `close`.
Must never: sleep, skip, or use anything of a store but the `Store` methods and what it may offer besides.
Invariant: as for `indelible.testing.conformance`.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

from indelible.errors import IndelibleError, LeaseLost, Misuse, StaleWriter, StoreUnavailable, UnknownRun
from indelible.stores.base import Batch, Query, Sweeping, Write, inbox_of
from indelible.stores.owner import Owner
from indelible.testing.conformance_kit import LABEL, SteppedClock, StoreFixture, entries, in_threads, refused, write

ODD_IDS = (
    "a:b",
    "CON",
    "con",
    "x.",
    "x ",
    "x",
    " x",
    "A",
    "a",
    "\u00e9",
    "e\u0301",
    "L" * 300,
    "L" * 299,
    "%41",
    "a%3Ab",
)
"""Names that a store which uses them raw in file names, or folds case or accents, mixes up."""


class AppendConformance(StoreFixture):
    """`append` and `read`."""

    def test_batches_come_back_as_written(self, tmp_path: Path) -> None:
        """Any bytes, in order, with their seqs."""
        blobs = (b"", b"\0", bytes(range(256)), b"'; DROP TABLE runs; --", "\u2028".encode(), b"\xff" * 9000)
        with self.claimed(tmp_path, "a", "b") as store:
            at = 0
            expected = []
            for size, blob in enumerate(blobs, 1):
                expected.append(Batch(at, at + size, blob))
                assert store.append([Write("a", 1, expected[-1])]) == [None]
                at += size
            assert list(store.read("a")) == expected
            assert list(store.read("b")) == []
            assert list(store.read("a", at)) == []
            assert list(store.read("a", 3)) == expected[2:]
            assert list(store.read("a", 4)) == expected[2:], "a batch that holds seqs above 4 belongs to the answer"

    def test_unknown_runs_read_as_nothing(self, tmp_path: Path) -> None:
        with self.claimed(tmp_path) as store:
            assert list(store.read("nobody")) == []
            assert store.get_snapshot("nobody", 10) is None

    def test_a_wrong_position_is_refused(self, tmp_path: Path) -> None:
        """B51 B58: order is a matter of integers, compared and set; nothing is overwritten."""
        with self.claimed(tmp_path, "a") as store:
            assert store.append([write("a", 0, b"one"), write("a", 1, b"two")]) == [None, None]
            for after, label in product((0, 1, 3, 10**9), (None, LABEL)):
                (answer,) = store.append([write("a", after, b"late", label=label)])
                assert isinstance(answer, StaleWriter)
                assert not isinstance(answer, LeaseLost), "nobody has taken the run over"
                assert answer.ids["head"] == 2, "the sender of a message needs the head to try again"
            assert [batch.data for batch in store.read("a")] == [b"one", b"two"]

    def test_a_fenced_writer_is_refused(self, tmp_path: Path) -> None:
        """B50: a worker that was taken over can add nothing, and learns that it was."""
        clock = SteppedClock()
        with self.claimed(tmp_path, "a", clock=clock) as store:
            clock.advance(31)
            assert store.claim("a", Owner.here("other"), 30.0) == 2
            for label in (None, LABEL):
                (old, future) = store.append([write("a", 0, epoch=1, label=label), write("a", 0, epoch=3, label=label)])
                assert isinstance(old, LeaseLost)
                assert isinstance(future, StaleWriter)
            assert list(store.read("a")) == []
            assert store.append([write("a", 0, epoch=2)]) == [None]

    def test_each_write_is_answered_by_itself(self, tmp_path: Path) -> None:
        """B54: one bad write does not take the others with it."""
        with self.claimed(tmp_path, "a", "b", "c") as store:
            answers = store.append(
                [write("a", 0), write("b", 7), write("c", 0), write("a", 1), write("c", 0), write("nobody", 0)]
            )
            assert [answer is None for answer in answers] == [True, False, True, True, False, False]
            assert [len(list(store.read(run_id))) for run_id in ("a", "b", "c", "nobody")] == [2, 0, 1, 0]
            assert store.append([]) == []

    def test_no_journal_without_a_claimed_run(self, tmp_path: Path) -> None:
        """B53: a run that was never claimed is not written."""
        with self.claimed(tmp_path) as store:
            for epoch in (0, 1):
                (answer,) = store.append([write("nobody", 0, epoch=epoch)])
                assert isinstance(answer, StaleWriter)
            assert entries(store) == []

    def test_a_batch_without_events_is_refused(self, tmp_path: Path) -> None:
        """In its place: the writes of others in the same transaction are not to blame."""
        with self.claimed(tmp_path, "a") as store:
            bad = [Batch(0, 0, b"x"), Batch(5, 3, b"x"), Batch(-1, 1, b"x"), Batch(0, 2**63, b"x")]
            bad.append(Batch(0, 1, "text"))  # type: ignore[arg-type]  # what an untyped caller may do
            answers = store.append([*(Write("a", 1, batch) for batch in bad), write("a", 0)])
            assert all(isinstance(answer, Misuse) for answer in answers[:-1])
            assert answers[-1] is None
            assert list(store.read("a")) == [Batch(0, 1, b"x")]

    def test_a_hundred_megabytes(self, tmp_path: Path) -> None:
        blob = b"\xa5" * 100_000_000
        with self.claimed(tmp_path, "a") as store:
            assert store.append([write("a", 0, blob), write("a", 1, b"small")]) == [None, None]
            batches = list(store.read("a"))
            assert batches[0].data == blob
            assert batches[1].data == b"small"

    def test_reading_does_not_keep_writers_waiting(self, tmp_path: Path) -> None:
        """B49: a reader in mid-journal holds no lock."""
        with self.claimed(tmp_path, "a") as store:
            store.append([write("a", at, b"x" * 5000) for at in range(600)])
            reading = store.read("a")
            assert next(reading) == Batch(0, 1, b"x" * 5000)
            assert store.append([write("a", at) for at in range(600, 1200)]) == [None] * 600
            rest = list(reading)
            assert [batch.after_seq for batch in rest] == list(range(1, 1 + len(rest)))
            assert len(rest) >= 599

    def test_ids_never_collide(self, tmp_path: Path) -> None:
        """B107 B123: whatever a file system would make of them."""
        with self.claimed(tmp_path, *ODD_IDS) as store:
            store.append([write(run_id, 0, repr(run_id).encode()) for run_id in ODD_IDS])
            for run_id in ODD_IDS:
                assert [batch.data for batch in store.read(run_id)] == [repr(run_id).encode()]
            assert sorted(entry.run_id for entry in entries(store)) == sorted(ODD_IDS)
            for bad in ("", "  ", "../x", "a/b", "..\\x", "a\0b", "\ud800", "x" * 513, ".."):
                refused(Misuse, lambda bad=bad: store.claim(bad, Owner.here("test"), 30.0))  # type: ignore[misc]

    def test_threads_on_runs_of_their_own(self, tmp_path: Path) -> None:
        """B106: made in one thread, used in eight."""
        names = [f"run-{number}" for number in range(8)]

        def work(run_id: str) -> None:
            for at in range(40):
                assert store.append([write(run_id, at, f"{run_id}:{at}".encode())]) == [None]
                assert sum(1 for _ in store.read(run_id, at)) == 1

        with self.claimed(tmp_path, *names) as store:
            in_threads(*(lambda name=name: work(name) for name in names))
            for name in names:
                assert [batch.data for batch in store.read(name)] == [f"{name}:{at}".encode() for at in range(40)]

    def test_threads_racing_for_one_run(self, tmp_path: Path) -> None:
        """B50 B51: of two writers at one position, one wins; a lost race loses nothing else."""
        won: dict[str, list[int]] = {"one": [], "two": []}

        def work(name: str) -> None:
            for at in range(100):
                (answer,) = store.append([write("a", at, name.encode())])
                if answer is None:
                    won[name].append(at)
                else:
                    assert isinstance(answer, StaleWriter)
                    while not any(True for _ in store.read("a", at)):
                        pass

        with self.claimed(tmp_path, "a") as store:
            in_threads(lambda: work("one"), lambda: work("two"))
            assert sorted(won["one"] + won["two"]) == list(range(100))
            for batch in store.read("a"):
                assert batch.after_seq in won[batch.data.decode()]


class InboxConformance(StoreFixture):
    """A run's inbox: written by anyone, by compare-and-set."""

    def test_anyone_may_write_at_the_head(self, tmp_path: Path) -> None:
        with self.claimed(tmp_path, "a") as store:
            inbox = inbox_of("a")
            assert store.append([write(inbox, 0, b"one", epoch=0), write(inbox, 1, b"two", epoch=0)]) == [None, None]
            late, claimed, gap = store.append(
                [write(inbox, 1, epoch=0), write(inbox, 2, epoch=1), write(inbox, 9, epoch=0)]
            )
            assert isinstance(late, StaleWriter)
            assert late.ids["head"] == 2
            assert isinstance(claimed, StaleWriter)
            assert isinstance(gap, StaleWriter)
            assert [batch.data for batch in store.read(inbox)] == [b"one", b"two"]
            assert list(store.read("a")) == []
            assert [entry.run_id for entry in entries(store)] == ["a"], "no listing shows an inbox"
            assert [entry.run_id for entry in entries(store, Query(run_ids=("a", inbox)))] == ["a"]

    def test_many_senders_lose_no_message(self, tmp_path: Path) -> None:
        """B50 B53: a sender that lost the race tries again at the new head."""

        def send(name: str) -> None:
            for number in range(20):
                head: int | None = 0
                while head is not None:
                    message = f"{name}{number}".encode()
                    (answer,) = store.append([write(inbox_of("a"), head, message, epoch=0)])
                    head = None if answer is None else int(answer.ids["head"] or 0)

        with self.claimed(tmp_path, "a") as store:
            in_threads(*(lambda name=name: send(name) for name in "pqrs"))
            messages = [batch.data.decode() for batch in store.read(inbox_of("a"))]
            assert sorted(messages) == sorted(f"{name}{number}" for name in "pqrs" for number in range(20))
            for name in "pqrs":
                mine = [message for message in messages if message[0] == name]
                assert mine == [f"{name}{number}" for number in range(20)]


class SnapshotConformance(StoreFixture):
    """`put_snapshot` and `get_snapshot`."""

    def test_the_newest_two_are_kept(self, tmp_path: Path) -> None:
        with self.claimed(tmp_path, "a", "b") as store:
            assert store.get_snapshot("a", 100) is None
            for seq in (10, 20, 30):
                store.put_snapshot("a", seq, b"at %d" % seq)
            store.put_snapshot("b", 15, b"other")
            assert store.get_snapshot("a", 10**9) == (30, b"at 30")
            assert store.get_snapshot("a", 30) == (30, b"at 30")
            assert store.get_snapshot("a", 29) == (20, b"at 20")
            assert store.get_snapshot("a", 19) is None, "the third is gone"
            store.put_snapshot("a", 5, b"late")
            assert store.get_snapshot("a", 9) is None, "older than the two that are kept"
            store.put_snapshot("a", 30, b"again")
            assert store.get_snapshot("a", 30) == (30, b"again")
            assert store.get_snapshot("a", 29) == (20, b"at 20")
            assert store.get_snapshot("b", 15) == (15, b"other")
            assert entries(store)[0].stored_bytes == 0, "only batches count"

    def test_only_for_runs_that_are_there(self, tmp_path: Path) -> None:
        with self.claimed(tmp_path, "a") as store:
            refused(UnknownRun, lambda: store.put_snapshot("nobody", 1, b""))
            refused(Misuse, lambda: store.put_snapshot("a", 0, b""))


class BeginningConformance(StoreFixture):
    """`put_snapshot(..., begins=True)`: a snapshot stands for its past, which goes."""

    def test_the_past_goes_all_of_it(self, tmp_path: Path) -> None:
        """B63 B73: batches and older snapshots; what follows stays, and the snapshot stands for the rest."""
        with self.claimed(tmp_path, "a", "b") as store:
            for run_id in ("a", "b"):
                store.append([Write(run_id, 1, Batch(at, at + 3, b"x" * 100)) for at in range(0, 30, 3)])
                store.put_snapshot(run_id, 6, b"at 6")
                store.put_snapshot(run_id, 12, b"at 12")
            store.put_snapshot("a", 18, b"at 18", True)
            assert list(store.read("a")) == [Batch(at, at + 3, b"x" * 100) for at in range(18, 30, 3)]
            assert list(store.read("a", 6)) == list(store.read("a", 18)) == list(store.read("a"))
            assert [batch.after_seq for batch in store.read("a", 25)] == [24, 27]
            assert store.get_snapshot("a", 17) is None, "older snapshots go with the past they stand for"
            assert store.get_snapshot("a", 10**9) == store.get_snapshot("a", 18) == (18, b"at 18")
            sizes = {entry.run_id: (entry.head, entry.stored_bytes) for entry in entries(store)}
            assert sizes == {"a": (30, 400), "b": (30, 1000)}, "the bytes that went are not counted, the head stays"
            assert len(list(store.read("b"))) == 10
            assert store.get_snapshot("b", 11) == (6, b"at 6")

    def test_appends_go_on(self, tmp_path: Path) -> None:
        """The head, the epoch and the fence are as they were."""
        with self.claimed(tmp_path, "a") as store:
            store.append([write("a", 0), write("a", 1, label=LABEL)])
            store.put_snapshot("a", 1, b"one", True)
            late, wrong, right = store.append([write("a", 1), write("a", 2, epoch=0), write("a", 2, b"on")])
            assert isinstance(late, StaleWriter)
            assert isinstance(wrong, LeaseLost)
            assert right is None
            assert [batch.data for batch in store.read("a")] == [b"x", b"on"]
            assert entries(store)[0].label == LABEL
            assert store.claim("a", Owner.here("test"), 30.0) == 1

    def test_at_the_head(self, tmp_path: Path) -> None:
        """Nothing is left but the snapshot, and the run goes on from there."""
        with self.claimed(tmp_path, "a") as store:
            store.append([write("a", 0), write("a", 1)])
            store.put_snapshot("a", 2, b"all", begins=True)
            assert list(store.read("a")) == list(store.read("a", 1)) == list(store.read("a", 2)) == []
            (entry,) = entries(store)
            assert (entry.head, entry.stored_bytes) == (2, 0)
            assert isinstance(store.append([write("a", 0)])[0], StaleWriter)
            assert store.append([write("a", 2, b"next")]) == [None]
            assert list(store.read("a")) == [Batch(2, 3, b"next")]
            assert store.get_snapshot("a", 3) == (2, b"all")

    def test_the_snapshot_stays(self, tmp_path: Path) -> None:
        """B83: however many newer ones are put, nothing else stands for the past."""
        with self.claimed(tmp_path, "a") as store:
            store.append([write("a", at) for at in range(9)])
            store.put_snapshot("a", 3, b"beginning", True)
            for seq in (4, 5, 6, 7, 2):
                store.put_snapshot("a", seq, b"at %d" % seq)
            assert store.get_snapshot("a", 5) == (3, b"beginning")
            assert store.get_snapshot("a", 9) == (7, b"at 7")
            assert store.get_snapshot("a", 6) == (6, b"at 6")
            assert store.get_snapshot("a", 2) is None, "a snapshot of what is gone leads nowhere"

    def test_again_and_further(self, tmp_path: Path) -> None:
        """Once more at the same place is no error: an answer may have been lost. Further on it is the new beginning."""
        with self.claimed(tmp_path, "a") as store:
            store.append([write("a", at) for at in range(6)])
            store.put_snapshot("a", 5, b"ahead")
            for _ in range(2):
                store.put_snapshot("a", 2, b"first", True)
                assert [batch.after_seq for batch in store.read("a")] == [2, 3, 4, 5]
                assert store.get_snapshot("a", 4) == (2, b"first")
                assert store.get_snapshot("a", 9) == (5, b"ahead"), "newer snapshots stay"
            store.put_snapshot("a", 4, b"second", True)
            assert [batch.after_seq for batch in store.read("a")] == [4, 5]
            assert store.get_snapshot("a", 3) is None
            refused(Misuse, lambda: store.put_snapshot("a", 2, b"first", True))
            assert store.get_snapshot("a", 4) == (4, b"second")

    def test_only_where_a_batch_ends(self, tmp_path: Path) -> None:
        """Anywhere else, part of a batch would have to go; then nothing does."""
        with self.claimed(tmp_path, "a") as store:
            store.append([Write("a", 1, Batch(0, 4, b"x")), Write("a", 1, Batch(4, 8, b"y"))])
            store.put_snapshot("a", 4, b"kept")
            for seq in (1, 3, 5, 9, 10**9):
                refused(Misuse, lambda seq=seq: store.put_snapshot("a", seq, b"s", True))  # type: ignore[misc]
            assert list(store.read("a")) == [Batch(0, 4, b"x"), Batch(4, 8, b"y")]
            assert store.get_snapshot("a", 10**9) == (4, b"kept")
            assert entries(store)[0].stored_bytes == 2

    def test_only_for_runs_that_are_there(self, tmp_path: Path) -> None:
        """B69: neither an unknown run, nor a deleted one, nor an inbox, which holds what others have sent."""
        with self.claimed(tmp_path, "a", "gone") as store:
            store.append([write(run_id, 0) for run_id in ("a", "gone")])
            store.append([write(inbox_of("a"), 0, epoch=0)])
            store.delete("gone")
            for run_id in ("nobody", "gone", inbox_of("a")):
                refused(UnknownRun, lambda run_id=run_id: store.put_snapshot(run_id, 1, b"s", True))  # type: ignore[misc]
            assert len(list(store.read(inbox_of("a")))) == 1
            assert [entry.run_id for entry in entries(store)] == ["a"]
            store.put_snapshot("a", 1, b"s", True)
            store.delete("a")
            assert store.get_snapshot("a", 10) is None
            assert isinstance(store.append([write("a", 1)])[0], StaleWriter)

    def test_a_reader_of_the_past_is_told(self, tmp_path: Path) -> None:
        """B90: a journal whose past goes in mid-read is read to its end, or its reader is told; never with a gap."""
        with self.claimed(tmp_path, "a") as store:
            store.append([write("a", at, b"x" * 50_000) for at in range(100)])
            reading = store.read("a")
            at = next(reading).last_seq
            store.put_snapshot("a", 90, b"s", True)
            try:
                for batch in reading:
                    assert batch.after_seq == at
                    at = batch.last_seq
            except StoreUnavailable:
                at = 100
            assert at == 100

    def test_what_was_written_last_is_still_listed_first(self, tmp_path: Path) -> None:
        """However the order is kept, it does not go with the batches."""
        with self.claimed(tmp_path, "a", "b", "c", "d") as store:
            for run_id in ("a", "b", "c", "d"):
                store.append([write(run_id, at) for at in range(5)])
            store.put_snapshot("c", 5, b"s", True)
            store.delete("d")
            assert [entry.run_id for entry in entries(store)] == ["c", "b", "a"]
            for run_id in ("b", "a"):
                store.append([write(run_id, 5)])
            assert [entry.run_id for entry in entries(store)] == ["a", "b", "c"]


class DeleteConformance(StoreFixture):
    """`delete` and `close`."""

    def test_everything_goes_and_nothing_returns(self, tmp_path: Path) -> None:
        """B69 B70: whatever was on its way when the run was deleted is refused."""
        with self.claimed(tmp_path, "a", "ab") as store:
            store.append([write("a", 0), write("ab", 0), write(inbox_of("a"), 0, epoch=0)])
            store.append([write(inbox_of("ab"), 0, epoch=0)])
            store.put_snapshot("a", 1, b"s")
            store.put_snapshot("ab", 1, b"s")
            store.delete("a")
            late = (write("a", 1), write("a", 0), write("a", 0, epoch=0))
            messages = (write(inbox_of("a"), 0, epoch=0), write(inbox_of("a"), 1, epoch=0))
            assert all(isinstance(answer, StaleWriter) for answer in store.append([*late, *messages]))
            refused(UnknownRun, lambda: store.claim("a", Owner.here("test"), 30.0))
            refused(UnknownRun, lambda: store.claim("a", Owner.here("test"), 0.0))
            refused(UnknownRun, lambda: store.put_snapshot("a", 1, b"s"))
            refused(UnknownRun, lambda: store.delete("a"))
            assert list(store.read("a")) == list(store.read(inbox_of("a"))) == []
            assert store.get_snapshot("a", 10) is None
            assert [entry.run_id for entry in entries(store)] == ["ab"]
            assert entries(store, Query(run_ids=("a",))) == []
            assert len(list(store.read("ab"))) == len(list(store.read(inbox_of("ab")))) == 1
            assert store.get_snapshot("ab", 1) == (1, b"s")

    def test_many_at_once_if_nobody_holds_them(self, tmp_path: Path) -> None:
        """B111 B69: what a store may offer besides; held runs, and those that have gone on, stay."""
        with self.claimed(tmp_path, *(f"r{number}" for number in range(50)), "held", "on") as store:
            ids = [f"r{number}" for number in range(50)]
            store.append([write(run_id, 0) for run_id in (*ids, "held", "on")])
            store.append([write(inbox_of("r3"), 0, epoch=0), write("on", 1)])
            for run_id in (*ids, "on"):
                store.claim(run_id, Owner.here("test"), 0.0)
            if not isinstance(store, Sweeping):
                return
            wanted = [*((run_id, 1) for run_id in ids), ("held", 1), ("on", 1), ("nobody", 0), ("r7", 1)]
            assert store.delete_idle(wanted) == [True] * 50 + [False] * 4
            assert sorted(entry.run_id for entry in entries(store)) == ["held", "on"]
            late = store.append([write("r3", 1), write(inbox_of("r3"), 1, epoch=0), write(inbox_of("r4"), 0, epoch=0)])
            assert all(isinstance(answer, StaleWriter) for answer in late)
            assert store.append([write("held", 1)]) == [None]

    def test_a_message_does_not_revive_a_run_without_inbox(self, tmp_path: Path) -> None:
        """B69."""
        with self.claimed(tmp_path, "a") as store:
            store.delete("a")
            (answer,) = store.append([write(inbox_of("a"), 0, epoch=0)])
            assert isinstance(answer, StaleWriter)
            refused(UnknownRun, lambda: store.delete("nobody"))

    def test_an_inbox_goes_only_with_its_run(self, tmp_path: Path) -> None:
        """B69: else what is said to the run would be refused from then on."""
        with self.claimed(tmp_path, "a") as store:
            store.append([write(inbox_of("a"), 0, epoch=0)])
            refused(UnknownRun, lambda: store.delete(inbox_of("a")))
            assert store.append([write(inbox_of("a"), 1, epoch=0)]) == [None]
            assert len(list(store.read(inbox_of("a")))) == 2

    def test_a_read_is_never_short_without_saying_so(self, tmp_path: Path) -> None:
        """B69 B90: a run that is deleted in mid-read is either read to its end, or the reader is told."""
        with self.claimed(tmp_path, "a") as store:
            store.append([write("a", at, b"x" * 50_000) for at in range(100)])
            reading = store.read("a")
            next(reading)
            store.delete("a")
            found = 0
            try:
                found = sum(1 for _ in reading)
            except UnknownRun:
                found = 99
            assert found == 99

    def test_closing(self, tmp_path: Path) -> None:
        """Closing twice is no error; using a closed store is a clear one."""
        with self.claimed(tmp_path, "a") as store:
            store.close()
            store.close()
            for use in (
                lambda: store.append([write("a", 0)]),
                lambda: list(store.read("a")),
                lambda: store.list_runs(Query()),
                lambda: store.claim("a", "o", 1.0),
                lambda: store.put_snapshot("a", 1, b""),
                lambda: store.get_snapshot("a", 1),
                lambda: store.delete("a"),
            ):
                error: IndelibleError = refused(Misuse, use)
                assert "closed" in str(error)
