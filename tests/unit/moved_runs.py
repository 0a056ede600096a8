"""Runs to be moved, and stores that die under the mover.

Owns: an agent that parks, does deeds and fails; a store that ends the process at its N-th call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import indelible as ind
from indelible.errors import IndelibleError, RunMoved, UnknownRun
from indelible.runtime.agents import Agent
from indelible.runtime.runstore import RunStore
from indelible.stores.base import Batch, Page, Query, Store, Write
from tests.unit.simple_agents import Death, Memory, agent_of

DEEDS: list[str] = []


@ind.action(effect="irreversible")
def deed(what: str) -> str:
    DEEDS.append(what)
    return f"did {what}"


def _body(run: ind.Run[Memory]) -> None:
    task = run.state.tasks.take()
    if task == "ask":
        task = run.ask("Which one?")
    elif task == "bad":
        raise ValueError("no luck")
    run.state.notes.append(deed(task))
    run.state.count += 1
    if not run.state.tasks:
        run.finish(run.state.count)


def mover(*tasks: str) -> Agent[Memory]:
    """An agent whose tasks are these; `ask` parks, `bad` fails the run."""
    return agent_of(_body, tasks=tasks, name="mover", attempts=1, on_failure="fail")


class Dying:
    """A store in a process that dies at its `at`-th call: before it, or behind it. `calls` counts on for ever."""

    def __init__(self, store: Store, clock: Dying | None = None, at: int = 0, after: bool = False) -> None:
        self.store = store
        self.url, self.durable, self.shared = store.url, store.durable, store.shared
        self.count: list[int] = [0] if clock is None else clock.count
        self.at, self.after = at, after

    def _call(self, name: str, *args: object) -> object:
        self.count[0] += 1
        if self.at and (self.count[0] > self.at or (self.count[0] == self.at and not self.after)):
            raise Death
        answer = getattr(self.store, name)(*args)
        if self.count[0] == self.at:
            raise Death
        return answer

    def append(self, writes: Sequence[Write]) -> list[IndelibleError | None]:
        answer = self._call("append", writes)
        assert isinstance(answer, list)
        return answer

    def read(self, run_id: str, after_seq: int = 0) -> Iterator[Batch]:
        answer = self._call("read", run_id, after_seq)
        assert isinstance(answer, Iterator)
        return answer

    def list_runs(self, query: Query, cursor: str | None = None) -> Page:
        answer = self._call("list_runs", query, cursor)
        assert isinstance(answer, Page)
        return answer

    def claim(self, run_id: str, owner: str, ttl_s: float) -> int:
        answer = self._call("claim", run_id, owner, ttl_s)
        assert isinstance(answer, int)
        return answer

    def put_snapshot(self, run_id: str, seq: int, data: bytes, begins: bool = False) -> None:
        self._call("put_snapshot", run_id, seq, data, begins)

    def get_snapshot(self, run_id: str, at_most_seq: int) -> tuple[int, bytes] | None:
        answer = self._call("get_snapshot", run_id, at_most_seq)
        assert answer is None or isinstance(answer, tuple)
        return answer

    def delete(self, run_id: str) -> None:
        self._call("delete", run_id)

    def close(self) -> None:
        self.store.close()


def goes_on(runs: RunStore, run_id: str = "r") -> bool:
    """Whether the run can be gone on with in this store."""
    try:
        record = runs.recover(run_id).record
    except (RunMoved, UnknownRun):
        return False
    return record.status in ("running", "parked")


def try_to_work(runs: RunStore, run_id: str = "r") -> bool:
    """What a worker does with a run that it finds: open it, and see whether it may. Nothing is called."""
    try:
        with runs.run(run_id, mover()) as run:
            return run.is_active or run.outcome.status == "parked"
    except (RunMoved, UnknownRun):
        return False


def two_files(folder: Path) -> tuple[RunStore, RunStore]:
    """Two SQLite stores."""
    return ind.open(folder / "a.db"), ind.open(folder / "b.db")
