"""Writes the golden journals of the present format: `python -m tests.golden.make NAME`.

Run it once for each released format, and never over an existing file: what is in
tests/golden/journals was written by the release it is named after, and every later
release must read it.
"""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import indelible as ind
from indelible.core import events as ev
from indelible.core.inbox import inbox_of
from indelible.drive.clock import SystemClock
from indelible.runtime.runstore import RunStore
from indelible.stores.memory import MemoryStore

FOLDER = Path(__file__).parent / "journals"


class TickingClock(SystemClock):
    """A clock that moves by a second whenever it is read, and never waits."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0
        self.drawn = 0

    def now(self) -> float:
        """One second later than the last time."""
        self.time += 1.0
        return self.time

    def sleep(self, seconds: float) -> None:
        """Moves the time on."""
        self.time += seconds

    def entropy(self, size: int) -> bytes:
        """Counts up."""
        self.drawn += 1
        return self.drawn.to_bytes(size, "big")


@dataclass
class Finding:
    """What is found."""

    task: str
    score: float


class Research(ind.State):
    """One field of each kind."""

    tasks: ind.Queue[str]
    findings: ind.Log[Finding]
    prices: ind.Map[str, int]
    done: int = 0
    labels: dict[str, tuple[int, ...]] = {}  # noqa: RUF012 - copied for each run


def agent() -> Any:
    """An agent that makes every kind of event happen."""
    flaky = [True]

    @ind.action
    def look(text: str) -> float:
        ind.usage(tokens_in=3, tokens_out=5, usd=0.25, model="golden")
        if text == "bad":
            raise ValueError("never found")
        return len(text) / 2

    @ind.action(effect="idempotent", key=lambda name: f"price-{name}")
    def fetch(name: str, *, key: str = "") -> int:
        return len(name + key)

    @ind.action(effect="irreversible", undo=lambda text, result: None)
    def book(text: str) -> str:
        return f"booked {text}"

    @ind.action(effect="irreversible")
    def send(text: str) -> str:
        if flaky:
            flaky.pop()
            raise TimeoutError("no reply")
        return f"sent {text}"

    @ind.agent(state=Research, name="golden", attempts=2, backoff_s=0)
    def golden(run: ind.Run[Research]) -> None:
        state = run.state
        task = state.tasks.take()
        if task == "bad":
            book("a seat")
        state.findings.append(Finding(task, look(task)))
        state.prices[task] = fetch("apple")
        state.labels[task] = (run.attempt, len(run.new_id()), run.now().year)
        state.done += 1
        if task == "last":
            who = run.ask("To whom?")
            run.sleep(60)
            run.finish([send(who), len(state.findings)])

    @golden.start
    def start(run: ind.Run[Research]) -> None:
        run.state.tasks.extend(["first", "bad", "last"])

    return golden


def play() -> RunStore:
    """The whole life of the golden run, in an open store."""
    clock = TickingClock()
    store = RunStore(MemoryStore(clock.now), clock)
    golden = agent()
    golden.run("find gold", store=store, run_id="golden")
    store.answer("golden", "ada")
    golden.run(store=store, run_id="golden")
    store.settle("golden", "send", happened=False, by="bob")
    golden.run(store=store, run_id="golden")
    return store


def kinds(store: RunStore) -> list[str]:
    """The event kinds of the golden run, in order."""
    return [ev.kind_of(event) for _, event in store.events("golden")]


def main(name: str) -> None:
    """Write the file, unless it is there."""
    store = play()
    stored: dict[str, Any] = {
        "kinds": kinds(store),
        "journals": {
            run_id: [[b.after_seq, b.last_seq, base64.b64encode(b.data).decode()] for b in store.store.read(run_id)]
            for run_id in ("golden", inbox_of("golden"))
        },
    }
    store.close()
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{name}.json").open("x", encoding="utf-8") as file:
        json.dump(stored, file, indent=1)


if __name__ == "__main__":
    main(sys.argv[1])
