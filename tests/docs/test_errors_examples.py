"""The examples in docs/errors.md are what the errors really say.

Owns: one way to provoke each error that a user can provoke, and the words that differ from run to run.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import indelible as ind
from indelible import errors
from indelible.stores.base import Batch, Write
from indelible.stores.memory import MemoryStore
from tests.tidy.tree import ROOT


class Research(ind.State):
    findings: ind.Log[Any]


@ind.action(effect="irreversible")
def send_mail(to: str) -> str:
    return to


@ind.agent(state=Research, version=1)
def research(run: ind.Run[Research]) -> None:
    run.finish(1)


@ind.agent(state=Research, version=2, name="research")
def research_later(run: ind.Run[Research]) -> None:
    run.ask("Go on?")


@ind.agent(state=Research, version=1, name="hoarder")
def hoarder(run: ind.Run[Research]) -> None:
    with socket.socket() as connection:
        run.state.findings.append({"meta": {"x": connection}})


@ind.action(cost_usd=6)
def consult(question: str) -> str:
    return question


def misuse() -> None:
    send_mail("ann@example.org")


def not_storable() -> None:
    hoarder.run("Find three suppliers", store="agent.db", run_id="suppliers")


def mismatch() -> None:
    research.run("Find three suppliers", store="agent.db", run_id="suppliers")
    research.run("Find ink", store="agent.db", run_id="suppliers")


def unavailable() -> None:
    research.run("Find three suppliers", store="agents/agent.db", run_id="suppliers")


def unknown() -> None:
    with ind.open("agent.db") as store:
        store.recover("supliers")


def older_code() -> None:
    research_later.run("Find three suppliers", store="agent.db", run_id="suppliers")
    research.run("Find three suppliers", store="agent.db", run_id="suppliers")


def busy() -> None:
    with ind.open("agent.db") as store, store.run("suppliers", research, "Find three suppliers"):
        research.run("Find three suppliers", store="agent.db", run_id="suppliers")


def refusal(epochs: int, written: int, after: int) -> None:
    """Raise what the store answers to a write after event `after` by the third owner."""
    store = MemoryStore(lambda: 0.0)
    for n in range(epochs):
        store.claim("suppliers", f"owner {n}", 1.0)
        store.claim("suppliers", f"owner {n}", 0.0)
    epoch = 3
    if written:
        store.append([Write("suppliers", epochs, Batch(0, written, b"..."))])
    (answer,) = store.append([Write("suppliers", epoch, Batch(after, after + 1, b"..."))])
    assert answer
    raise answer


def stale() -> None:
    refusal(epochs=3, written=41, after=38)


def lost() -> None:
    refusal(epochs=4, written=0, after=0)


def over_budget() -> None:
    with ind.open("agent.db") as store, store.run("suppliers", Research, "Find three suppliers", budget_usd=5) as run:
        with run.cycle():
            consult("Which supplier?")
        with run.cycle():
            consult("Which supplier?")


PROVOKED: list[tuple[type[errors.IndelibleError], Callable[[], None]]] = [
    (errors.Misuse, misuse),
    (errors.NotStorable, not_storable),
    (errors.RunMismatch, mismatch),
    (errors.StoreUnavailable, unavailable),
    (errors.UnknownRun, unknown),
    (errors.StateInvalid, older_code),
    (errors.RunBusy, busy),
    (errors.BudgetExceeded, over_budget),
    (errors.StaleWriter, stale),
    (errors.LeaseLost, lost),
]


def example_of(name: str) -> str:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    found = re.search(rf"(?ms)^## `{name}`.*?^```\n(.*?)^```$", page)
    assert found, name
    return found[1].rstrip()


def settled(text: str, here: Path) -> str:
    """The text without what differs between two machines: the directory, the process, the host, the seconds left."""
    text = text.replace(f"{here}{os.sep}", "")
    text = re.sub(r"process \d+ on host [^,]+", "process N on host H", text)
    text = re.sub(r"\S*test_errors_examples\.py", "agent.py", text)
    return re.sub(r"[\d.]+ s \[", "S s [", text)


@pytest.mark.parametrize(("kind", "provoke"), PROVOKED)
def test_the_example_is_what_the_error_says(
    kind: type[errors.IndelibleError], provoke: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind) as caught:
        provoke()
    assert type(caught.value) is kind
    assert settled(str(caught.value), tmp_path) == settled(example_of(kind.__name__), tmp_path)
