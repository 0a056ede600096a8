"""A transaction that fails half-way, on SQLite: nothing of it is kept, neither on disk nor in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from indelible.errors import JournalDamaged
from indelible.stores.base import inbox_of
from indelible.stores.sqlite import SqliteStore
from indelible.testing.conformance_kit import write


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "agent.db")


@pytest.fixture
def store(path: str) -> Iterator[SqliteStore]:
    """Of its run `bad`, the second event stands there although the head says that it does not."""
    with closing(SqliteStore(path)) as opened:
        for run_id in ("good", "bad"):
            opened.claim(run_id, f"owner of {run_id}", 30.0)
        assert opened.append([write("bad", 0)]) == [None]
        with closing(apsw.Connection(path)) as con:
            con.execute("INSERT INTO batches (no, after_seq, last_seq, data) SELECT no, 1, 2, x'00' FROM batches")
        yield opened


def test_of_a_group_that_fails_nothing_is_kept(store: SqliteStore) -> None:
    """B53: the caller is told that it is unknown, so half of it would be written twice."""
    with pytest.raises(JournalDamaged, match="nothing was changed"):
        store.append([write("good", 0), write("bad", 1)])
    assert list(store.read("good")) == []
    assert store.append([write("good", 0)]) == [None]


def test_a_message_never_lands_in_the_inbox_that_took_the_place_of_one_rolled_back(
    store: SqliteStore, path: str
) -> None:
    """What the store remembers of a transaction goes with it."""
    with pytest.raises(JournalDamaged):
        store.append([write(inbox_of("good"), 0, b"mine", epoch=0), write("bad", 1)])
    with closing(SqliteStore(path)) as other:
        assert other.append([write(inbox_of("other"), 0, b"its own", epoch=0)]) == [None]
    assert store.append([write(inbox_of("good"), 0, b"mine", epoch=0)]) == [None]
    for name, data in (("other", b"its own"), ("good", b"mine")):
        assert [batch.data for batch in store.read(inbox_of(name))] == [data]
