"""Journals written by each released format are read, folded and continued by this code."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from indelible.core.inbox import inbox_of
from indelible.core.journal import Batch
from indelible.core.record import FINISHED
from indelible.runtime.runstore import RunStore
from indelible.stores.base import Write
from indelible.stores.memory import MemoryStore
from tests.golden.make import FOLDER, TickingClock, agent, kinds

FILES = sorted(FOLDER.glob("*.json"))


def load(path: Path, batches: int | None = None) -> RunStore:
    """A store that holds the first `batches` batches of a golden run, and its inbox."""
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    clock = TickingClock()
    memory = MemoryStore(clock.now)
    epoch = memory.claim("golden", "whoever wrote it", 30.0)
    for run_id, listed in stored["journals"].items():
        for after, last, data in listed[: batches if run_id == "golden" else None]:
            batch = Batch(after, last, base64.b64decode(data))
            written = memory.append([Write(run_id, epoch if run_id == "golden" else 0, batch)])
            assert written == [None]
    memory.claim("golden", "whoever wrote it", 0)
    return RunStore(memory, clock)


def test_there_is_a_golden_journal_of_the_present_format() -> None:
    assert [path.stem for path in FILES] != []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_golden_journal_is_read_event_by_event(path: Path) -> None:
    """B18, B78: what an earlier release wrote, this one reads, with nothing added or reordered."""
    store = load(path)
    assert kinds(store) == json.loads(path.read_text(encoding="utf-8"))["kinds"]
    record = store.recover("golden").record
    assert record.status == FINISHED
    assert record.unknown_events == 0
    assert record.doc["done"] == ["plain", 2]
    assert record.doc["findings"][1][0] == ["$r", "Finding", "task", "first", "score", 2.5]
    assert record.doc["tasks"][3] == {1: ["bad", 0, 2, "ValueError: never found"]}
    assert (record.usage.usd, record.usage.tokens_in, record.usage.calls) == (1.0, 12, 8)
    store.close()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_golden_run_goes_on_from_each_of_its_batches(path: Path) -> None:
    """B18: new code continues an old run wherever it was."""
    total = len(json.loads(path.read_text(encoding="utf-8"))["journals"]["golden"])
    assert total > 5
    for count in range(1, total + 1):
        store = load(path, count)
        golden = agent()
        outcome = golden.run(store=store, run_id="golden")
        for _ in range(4):
            if outcome.kind == "ask":
                store.answer("golden", "ada")
            elif outcome.kind == "doubt":
                store.settle("golden", store.recover("golden").record.in_doubt()[0].call, happened=False)
            outcome = golden.run(store=store, run_id="golden")
        assert outcome.status == FINISHED, f"from batch {count}: {outcome}"
        assert outcome.result == ["sent ada", 2]
        store.close()


def test_the_inbox_is_part_of_the_golden_run() -> None:
    for path in FILES:
        assert len(json.loads(path.read_text(encoding="utf-8"))["journals"][inbox_of("golden")]) == 2
