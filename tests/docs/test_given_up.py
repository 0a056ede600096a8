"""The agents on the pages come to an end also when the last of their tasks is given up."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import indelible as ind
from indelible.cli.loading import load
from indelible.runtime.agents import Agent
from tests.docs.blocks import blocks
from tests.golden.make import TickingClock
from tests.tidy.tree import ROOT


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_an_agent_whose_last_task_is_given_up_finishes(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = next(
        block.text for block in blocks(page, (ROOT / page).read_text("utf-8")) if "@research.start" in block.text
    )
    (tmp_path / "page_agent.py").write_text(text, "utf-8")
    monkeypatch.setattr(sys, "path", list(sys.path))
    research = load("page_agent.py:research")
    assert isinstance(research, Agent)
    module: Any = sys.modules.pop("page_agent")
    tasks: list[str] = []

    def complete(prompt: str) -> str:
        tasks.append(prompt)
        if len(tasks) > 1:
            raise ConnectionError("the model is out of reach")
        return "found"

    module.complete = complete
    with ind.open("memory:", clock=TickingClock()) as store:
        outcome = research.run("find three suppliers", store=store, run_id="r")
        queue = store.recover("r").record.doc["tasks"]
    assert outcome.status == "finished", outcome.error
    assert len(queue[3]) == len(set(tasks)) - 1 > 0
