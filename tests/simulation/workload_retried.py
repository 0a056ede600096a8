"""An agent whose run fails in an outage and is then taken up again, for the sweep."""

from __future__ import annotations

import indelible as ind
from indelible.core import events as ev
from indelible.core.record import FAILED
from indelible.runtime.agents import Agent
from indelible.runtime.runs import Outcome
from indelible.runtime.runstore import RunStore
from indelible.testing.simulate import Rule, Workload
from tests.simulation.workload_sync import charge, fax, mail, model, put_row

RULES = {
    "model": Rule("repeatable"),
    "mail": Rule("irreversible"),
    "fax": Rule("irreversible"),
    "row": Rule("idempotent"),
    "charge": Rule("irreversible"),
}


class Letters(ind.State):
    """What was written."""

    tasks: ind.Queue[str]
    written: ind.Log[str]


def writing(outage: bool) -> Agent[Letters]:
    """The agent, while the model is out of reach or after that."""

    @ind.agent(state=Letters, name="writing", attempts=2, on_failure="fail")
    def agent(run: ind.Run[Letters]) -> None:
        task = run.state.tasks.take()
        text = model(f"draft {task}") + mail(task)
        if task == "second":
            text += put_row(task) + fax(task) + charge(9) + str(run.ask("Is it right?"))
            if outage:
                raise ConnectionError("the model is out of reach")
            text += model("polish")
        run.state.written.append(text)
        if not run.state.tasks:
            run.finish(list(run.state.written))

    @agent.start
    def start(run: ind.Run[Letters]) -> None:
        run.state.tasks.extend(["first", "second", "third"])

    return agent


def program(store: RunStore) -> Outcome:
    """One process: it retries what has failed, and by then the outage is over."""
    begun = any(entry.head for entry in store.entries())
    failed = begun and store.recover("run").record.status == FAILED
    over = failed or (begun and any(isinstance(event, ev.RunReopened) for _, event in store.events("run")))
    return writing(not over).run("Write letters", store=store, run_id="run", retry=failed)


WORKLOAD = Workload(
    "retried",
    program,
    RULES,
    probed=frozenset({"mail", "charge"}),
    must_do=frozenset({("mail", "first"), ("mail", "second"), ("mail", "third"), ("fax", "second"), ("charge", "9")}),
    retried=True,
)
