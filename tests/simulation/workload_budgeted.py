"""An agent whose run has a budget that ends in the middle of a cycle, for the sweep."""

from __future__ import annotations

import indelible as ind
from indelible.runtime.runs import Outcome
from indelible.runtime.runstore import RunStore
from indelible.testing.simulate import ANSWERS, Rule, Workload, world
from tests.simulation.workload_sync import model, put_row, research

RULES = {
    "model": Rule("repeatable"),
    "search": Rule("repeatable"),
    "row": Rule("idempotent"),
    "letter": Rule("irreversible"),
}
BUDGET, RAISED = 0.055, 1.0


def delivered(to: str, *, key: str) -> object:
    found = world().find("letter", key)
    return ind.happened(f"letter {found.what}: done") if found else ind.did_not_happen()


@ind.action(effect="irreversible", probe=delivered, cost_usd=0.02)
def letter(to: str, *, key: str = "") -> str:
    """A deed that says what it costs, and reports nothing."""
    return world().perform("letter", to, usd=0.02, key=key)


class Post(ind.State):
    """What was written."""

    tasks: ind.Queue[str]
    written: ind.Log[str]


@ind.agent(state=Post, name="post", attempts=3)
def post(run: ind.Run[Post]) -> None:
    task = run.state.tasks.take()
    text = model(f"draft {task}") + letter(task)
    if task == "second":
        text += put_row(task)
        if run.state.tasks.attempts == 1:
            raise ConnectionError("the first try fails")
        text += research(task) + letter("carbon copy")
    run.state.written.append(text)
    if not run.state.tasks:
        run.finish(list(run.state.written))


@post.start
def begin(run: ind.Run[Post]) -> None:
    run.state.tasks.extend(["first", "second", "third"])


def program(store: RunStore) -> Outcome:
    """One process. It always gives the same budget, as a script does, and a person may have set a larger one."""
    return post.run("Write letters", store=store, run_id="run", budget_usd=BUDGET)


WORKLOAD = Workload(
    "budgeted",
    program,
    RULES,
    probed=frozenset({"letter"}),
    must_do=frozenset({("letter", "first"), ("letter", "second"), ("letter", "carbon copy"), ("letter", "third")}),
    answers={**ANSWERS, "budget": RAISED},
)
