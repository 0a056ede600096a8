"""From a URL to a store, and what names none."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from indelible.errors import Misuse
from indelible.stores import open_store
from indelible.stores.base import Query
from indelible.stores.memory import MemoryStore
from indelible.testing.conformance_kit import refused


def test_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    full = str(tmp_path / "a.db")
    for url in (Path("a.db"), "a.db", "~/a.db", "sqlite:///a.db", f"sqlite:///{full}"):
        with closing(open_store(url, clock=lambda: 0.0)) as store:
            assert store.url == full
    with closing(open_store("sqlite:///a%20b.db", clock=lambda: 0.0)) as store:
        assert store.url == str(tmp_path / "a b.db")
    memory = open_store("memory:", clock=lambda: 5.0)
    assert isinstance(memory, MemoryStore)
    assert memory.list_runs(Query()).runs == []
    with closing(open_store("a.db", clock=lambda: 0.0, readonly=True, durability="os")) as store:
        assert not store.durable


@pytest.mark.parametrize(
    "url",
    ["", " ", ":memory:", "memory:x", "sqlite:", "sqlite://", "sqlite:///", "sqlite://host/a.db", "file:", "file:a?b=c",
     "mongodb://h/x", "a\0b"],
)  # fmt: skip
def test_urls_that_name_no_store(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    error = refused(Misuse, lambda: open_store(url, clock=lambda: 0.0))
    assert error.hint
    assert os.listdir(tmp_path) == []


def test_unknown_schemes_are_told_the_known_ones() -> None:
    unknown = refused(Misuse, lambda: open_store("mongodb://h/x", clock=lambda: 0.0))
    assert all(known in str(unknown) for known in ("sqlite:///", "postgresql://", "redis://", "s3://", "file:///"))
