"""An agent that forks in the middle of a cycle: `forking_agent.py HOW`; `HOW` is what the child then tries.

Owns: what each of the two processes says on its standard output, one line each.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import indelible as ind
from indelible.testing.ledger import Ledger

ledger = Ledger("ledger")
HOW = sys.argv[1]
pid = -1
let_go = False


class Memory(ind.State):
    tasks: ind.Queue[str]
    notes: ind.Log[str]


def fork() -> bool:
    """True in the child."""
    global pid, let_go
    with warnings.catch_warnings():
        # Since 3.12 Python warns of forks in processes with threads, which is what this is about.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        with ind.open("agent.db", readonly=True) as runs:
            let_go = not next(runs.entries()).live
    return pid == 0


@ind.action(effect="irreversible")
def deed(what: str, *, key: str = "") -> str:
    if what == "within" and fork():
        return "the child comes out of a deed that it did not begin"
    return ledger.perform("deed", what, key=key)


@ind.action
def look(what: str) -> str:
    return ledger.perform("look", what)


def in_the_child(run: ind.Run[Memory]) -> None:
    if HOW == "deed":
        deed("by the child")
    elif HOW == "look":
        look("by the child")
    elif HOW == "swallow":
        try:
            deed("by the child")
        except Exception:
            run.state.notes.append("the child goes on")
    elif HOW == "raise":
        raise ConnectionError("the child's own")
    elif HOW == "ask":
        run.ask("the child's question?")
    elif HOW == "finish":
        run.finish("the child's result")
    elif HOW == "wait":
        run.state.tasks.append("later", not_before=9e9)
        run.state.tasks.take()
    elif HOW == "now":
        run.now()
    elif HOW == "reopen":
        ind.open("agent.db").run("r", agent).__enter__()


@ind.agent(state=Memory)
def agent(run: ind.Run[Memory]) -> None:
    run.state.tasks.take()
    run.state.notes.append(deed("before"))
    if HOW == "within":
        run.state.notes.append(deed("within"))
    elif fork():
        return in_the_child(run)
    run.state.notes.append(deed("after"))
    run.finish("the parent's")
    return None


@agent.start
def begin(run: ind.Run[Memory]) -> None:
    run.state.tasks.append("fork")


def main() -> Any:
    try:
        status = agent.run("o", store="agent.db", run_id="r").status
        return f"{status}, but its run was let go of meanwhile" if let_go else status
    except BaseException as error:
        return type(error).__name__


if __name__ == "__main__":
    said = main()
    os.write(1, f"{'child' if pid == 0 else 'parent'}: {said}\n".encode())
