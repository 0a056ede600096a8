"""The agent that is measured: three repeatable results a cycle, and on demand a deed.

Owns: its State, its actions, and the body of its cycle.
Must never: spend time on making data; that is laid ready before the clock starts.
Invariant: what the actions return goes into the state, as in an agent that means it.
"""

from __future__ import annotations

from typing import ClassVar

import indelible as ind
from material import Results


class Memory(ind.State):
    """Everything the agent knows: it grows by what each cycle learned."""

    tasks: ind.Queue[str]
    texts: ind.Log[str]
    passages: ind.Log[str]
    embeddings: ind.Log[bytes]
    iteration: int = 0


class Ready:
    """What the actions of the next cycle of a run will return, by the run's id."""

    by_run: ClassVar[dict[str, Results]] = {}


@ind.action
def write(run_id: str, task: str) -> str:  # noqa: ARG001
    """2 KB of text."""
    return Ready.by_run[run_id].text


@ind.action
def look_up(run_id: str, task: str) -> tuple[str, bytes]:  # noqa: ARG001
    """1 KB of text and its embedding."""
    ready = Ready.by_run[run_id]
    return ready.passage, ready.embedding


@ind.action
def plan(run_id: str, task: str) -> list[str]:  # noqa: ARG001
    """Three new tasks."""
    return Ready.by_run[run_id].tasks


@ind.action(effect="irreversible")
def deliver(run_id: str, task: str) -> str:  # noqa: ARG001
    """A deed that takes no time, so that only what surrounds it is measured."""
    return "delivered"


@ind.action
async def awrite(run_id: str, task: str) -> str:  # noqa: ARG001
    """As `write`."""
    return Ready.by_run[run_id].text


@ind.action
async def alook_up(run_id: str, task: str) -> tuple[str, bytes]:  # noqa: ARG001
    """As `look_up`."""
    ready = Ready.by_run[run_id]
    return ready.passage, ready.embedding


@ind.action
async def aplan(run_id: str, task: str) -> list[str]:  # noqa: ARG001
    """As `plan`."""
    return Ready.by_run[run_id].tasks


@ind.agent(state=Memory)
def worker(run: ind.Run[Memory]) -> None:
    """One cycle: a task in, a text, a passage with its embedding, and three tasks out."""
    task = run.state.tasks.take()
    text = write(run.run_id, task)
    passage, embedding = look_up(run.run_id, task)
    learn(run.state, text, passage, embedding, plan(run.run_id, task))


@ind.agent(state=Memory)
async def aworker(run: ind.Run[Memory]) -> None:
    """As `worker`."""
    task = run.state.tasks.take()
    text = await awrite(run.run_id, task)
    passage, embedding = await alook_up(run.run_id, task)
    learn(run.state, text, passage, embedding, await aplan(run.run_id, task))


@worker.start
@aworker.start
def start(run: ind.Run[Memory]) -> None:
    """The task that the others grow from."""
    run.state.tasks.append(f"Make a plan for: {run.objective}")


def learn(memory: Memory, text: str, passage: str, embedding: bytes, tasks: list[str]) -> None:
    """Keep all of it."""
    memory.texts.append(text)
    memory.passages.append(passage)
    memory.embeddings.append(embedding)
    memory.tasks.extend(tasks)
    memory.iteration += 1


class Count(ind.State):
    """A state of one number."""

    n: int = 0


@ind.agent(state=Count)
def counter(run: ind.Run[Count]) -> None:
    """The smallest cycle there is."""
    run.state.n += 1


@ind.agent(state=Count)
async def acounter(run: ind.Run[Count]) -> None:
    """As `counter`."""
    run.state.n += 1
