"""WRONG on purpose: state that is kept in a global of the module, and not in the State.

The fault: `notes` lives in the memory of one process. A process that takes the run up later starts with an empty list,
so the answers of the earlier cycles are missing from the result, though their cycles were committed. And a cycle that
is tried again notes its answer a second time, because no roll-back reaches a global.
"""

import indelible as ind

notes: list[str] = []  # this should be a field of the State


class Plan(ind.State):
    tasks: ind.Queue[str]


@ind.action
def complete(prompt: str) -> str:
    ind.usage(usd=0.001)
    return f"about {prompt}"


@ind.agent(state=Plan, backoff_s=0)
def agent(run: ind.Run[Plan]) -> None:
    notes.append(complete(run.state.tasks.take()))
    if not run.state.tasks:
        run.finish("\n".join(notes))


@agent.start
def start(run: ind.Run[Plan]) -> None:
    notes.clear()  # for several runs in one process, one after another; it hides the fault from a simple test
    run.state.tasks.extend(run.objective.split())
