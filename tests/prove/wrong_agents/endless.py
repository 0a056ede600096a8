"""WRONG on purpose: three agents that come to an end only if nobody takes them up again.

The fault: which process began the run is remembered in a global, and any other one waits for something that never
comes: `hanging` in a loop of its own, `circling` cycle after cycle, `asking` with a question that is new each time.
"""

import random

import indelible as ind

begun: list[bool] = []


class Nothing(ind.State):
    cycles: int = 0


@ind.action
def look() -> str:
    return "seen"


@ind.agent(state=Nothing)
def hanging(run: ind.Run[Nothing]) -> None:
    look()
    while not begun:
        pass
    run.finish()


@ind.agent(state=Nothing)
def circling(run: ind.Run[Nothing]) -> None:
    run.state.cycles += 1
    look()
    if begun:
        run.finish()


@ind.agent(state=Nothing)
def asking(run: ind.Run[Nothing]) -> None:
    look()
    if not begun:
        run.ask(f"Am I number {random.random()}?")
    run.finish()


def start(run: ind.Run[Nothing]) -> None:
    begun.append(True)


for agent in (hanging, circling, asking):
    agent.start(start)
