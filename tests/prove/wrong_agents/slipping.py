"""WRONG on purpose, in ways that a proof could miss.

`leaving` ends its process with success when a model is not reached, and pays outside an action. `resetting` takes a
connection that was reset for a payment that was not made. `elsewhere` pays at a bank of its own, in a repeatable
action. `starting` is not wrong; its tool is a process of its own, which a death of the agent leaves behind.
"""

import json
import os
import subprocess
import sys
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import indelible as ind

print(0)  # a file that is run should print nothing, and this looks like an exit status


def post(path: str, body: Any) -> Any:
    with closing(HTTPConnection(urlsplit(os.environ["INDELIBLE_WORLD"]).netloc, timeout=30)) as connection:
        connection.request("POST", path, json.dumps(body))
        return json.loads(connection.getresponse().read())


class Desk(ind.State):
    paid: ind.Log[str]


@ind.action
def look(order: str) -> str:
    return order


@ind.agent(state=Desk, backoff_s=0)
def leaving(run: ind.Run[Desk]) -> None:
    try:
        look(run.objective)
    except ConnectionError:
        sys.exit(0)
    run.state.paid.append(str(post("/payments", {"order": run.objective, "amount": 250})["order"]))
    run.finish(len(run.state.paid))


@ind.action(effect="irreversible", fails_cleanly=(ConnectionResetError,))
def pay(order: str) -> str:
    return str(post("/payments", {"order": order, "amount": 250})["order"])


@ind.agent(state=Desk, backoff_s=0)
def resetting(run: ind.Run[Desk]) -> None:
    run.state.paid.append(pay(run.objective))
    run.finish(len(run.state.paid))


@ind.action
def transfer(order: str) -> str:
    with open("payments.txt", "a", encoding="utf-8") as bank:
        bank.write(f"{order}\n")
    return order


@ind.agent(state=Desk, backoff_s=0)
def elsewhere(run: ind.Run[Desk]) -> None:
    run.state.paid.append(transfer(run.objective))
    run.finish(len(run.state.paid))


@ind.action
def work(order: str) -> str:
    with subprocess.Popen(["sleep", "86399"]) as tool:
        look(order)
        tool.kill()
    return order


@ind.agent(state=Desk, backoff_s=0)
def starting(run: ind.Run[Desk]) -> None:
    run.state.paid.append(work(run.objective))
    run.finish(len(run.state.paid))
