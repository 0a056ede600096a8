"""The schema of a SQLite store: its versions, and how an older file is brought up to date."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

import apsw
import pytest

from indelible.errors import FormatTooNew, JournalDamaged
from indelible.stores import migrations
from indelible.stores.sqlite import SqliteStore
from indelible.testing.conformance_kit import entries, refused, write


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "agent.db")


def filled(path: str) -> SqliteStore:
    store = SqliteStore(path)
    store.claim("a", "somebody", 30.0)
    assert store.append([write("a", at, b"%d" % at * 500) for at in range(5)]) == [None] * 5
    return store


def test_a_newer_schema(path: str) -> None:
    filled(path).close()
    con = apsw.Connection(path)
    con.pragma("user_version", migrations.VERSION + 1)
    con.close()
    for readonly in (False, True):
        error = refused(FormatTooNew, partial(SqliteStore, path, readonly=readonly))
        assert (error.ids["found"], error.ids["known"]) == (migrations.VERSION + 1, migrations.VERSION)


def test_a_schema_that_nobody_made(path: str) -> None:
    """B89: a damaged header is told as damage, and no step is run on it."""
    filled(path).close()
    con = apsw.Connection(path)
    con.pragma("user_version", -1)
    con.close()
    for readonly in (False, True):
        refused(JournalDamaged, partial(SqliteStore, path, readonly=readonly))


@pytest.mark.parametrize("change", ["DROP INDEX batches_by_run", "ALTER TABLE runs DROP COLUMN wake_at"])
def test_tables_are_verified(path: str, change: str) -> None:
    """B79: the version number alone is not believed."""
    filled(path).close()
    con = apsw.Connection(path)
    con.execute(change)
    con.close()
    for readonly in (False, True):
        refused(JournalDamaged, partial(SqliteStore, path, readonly=readonly))


def test_there_are_as_many_steps_as_versions() -> None:
    assert len(migrations.steps()) == migrations.VERSION


def test_steps_are_taken_all_or_none(path: str) -> None:
    """B77 B78: over several versions at once, with data; a step that fails leaves the file at the old version."""
    filled(path).close()
    now = migrations.steps()
    two, bad = "ALTER TABLE runs ADD COLUMN note TEXT", "UPDATE runs SET note = 'x'; SELECT no_such_column FROM runs"
    con = apsw.Connection(path)
    refused(apsw.SQLError, lambda: migrations.migrate(con, path, [*now, two, bad]))
    assert con.pragma("user_version") == len(now)
    con.close()
    with closing(SqliteStore(path)) as store:
        assert len(list(store.read("a"))) == 5
    con = apsw.Connection(path)
    migrations.migrate(con, path, [*now, two, "UPDATE runs SET note = run_id"])
    assert con.execute("SELECT note FROM runs").get == "a"
    assert con.pragma("user_version") == len(now) + 2
    con.close()
    refused(FormatTooNew, lambda: SqliteStore(path))


def of_the_first_schema(path: str) -> None:
    con = apsw.Connection(path)
    con.pragma("journal_mode", "wal")
    migrations.migrate(con, path, migrations.steps()[:1])
    con.execute("INSERT INTO runs (run_id, head, epoch, touched, created_at, updated_at) VALUES ('old', 2, 1, 0, 5, 6)")
    con.execute("INSERT INTO batches (no, after_seq, last_seq, data) VALUES (1, 0, 1, x'61'), (1, 1, 2, x'62')")
    con.execute("INSERT INTO snapshots (no, seq, data) VALUES (1, 1, x'73')")
    con.close()


def test_a_store_of_the_first_schema_is_brought_up_to_date_in_place(path: str) -> None:
    """B77: with all that it holds; its journals begin where they always did, and can be made to begin later."""
    of_the_first_schema(path)
    with closing(SqliteStore(path)) as store:
        assert [batch.data for batch in store.read("old")] == [b"a", b"b"]
        assert store.get_snapshot("old", 2) == (1, b"s")
        store.put_snapshot("old", 1, b"t", begins=True)
        assert [batch.data for batch in store.read("old")] == [b"b"]
    con = apsw.Connection(path)
    assert con.pragma("user_version") == migrations.VERSION
    con.close()


def test_a_store_of_the_first_schema_is_read_as_it_is(path: str) -> None:
    """B79: who may only read need not wait for somebody to write; and then sees what was changed meanwhile."""
    of_the_first_schema(path)
    before = Path(path).read_bytes()
    with closing(SqliteStore(path, readonly=True)) as store:
        assert [batch.data for batch in store.read("old")] == [b"a", b"b"]
        assert [entry.run_id for entry in entries(store)] == ["old"]
        assert [fact.name for fact in store.facts() if fact.verdict == "bad"] == ["permissions"]
        assert Path(path).read_bytes() == before
        with closing(SqliteStore(path)) as writer:
            writer.put_snapshot("old", 1, b"t", begins=True)
        assert [batch.data for batch in store.read("old")] == [b"b"]
