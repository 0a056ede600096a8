"""An agent that looks at the clock, as a process of its own in some time zone: `zoned_agent.py STORE`."""

from __future__ import annotations

import sys

import indelible as ind


class Diary(ind.State):
    tasks: ind.Queue[str]
    entries: ind.Log[str]


@ind.agent(state=Diary, backoff_s=0)
def diarist(run: ind.Run[Diary]) -> None:
    task = run.state.tasks.take()
    run.state.entries.append(run.now().isoformat())
    if task == "ask":
        run.ask("Go on?")
        run.finish(list(run.state.entries))


@diarist.start
def start(run: ind.Run[Diary]) -> None:
    run.state.tasks.append("look", not_before=1_000_000_000)
    run.state.tasks.append("ask")


if __name__ == "__main__":
    sys.stdout.write(diarist.run("Keep a diary", store=sys.argv[1], run_id="r").kind)
