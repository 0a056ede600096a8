"""An agent that asks, sleeps, needs approval, and does a deed that no probe can find again.

Owns: every kind of wait that a person or a time ends, in one short run.
"""

import json
import os
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import indelible as ind


def post(path: str, body: Any) -> Any:
    with closing(HTTPConnection(urlsplit(os.environ["INDELIBLE_WORLD"]).netloc, timeout=30)) as connection:
        connection.request("POST", path, json.dumps(body))
        return json.loads(connection.getresponse().read())


@ind.action(effect="irreversible")
def pay(order: str, amount: int) -> str:
    """No key and no probe: only a person who looks into the bank's book can tell whether it happened."""
    return str(post("/payments", {"order": order, "amount": amount})["id"])


@ind.action(effect="irreversible", approve=True)
def announce(text: str) -> str:
    return str(post("/mails", {"to": "all@example.org", "text": text})["id"])


class Desk(ind.State):
    orders: ind.Queue[str]
    paid: ind.Map[str, str]
    at: float = 0.0


@ind.agent(state=Desk)
def agent(run: ind.Run[Desk]) -> None:
    order = run.state.orders.take()
    if run.ask(f"Pay {order}?") == "yes":
        run.state.paid[order] = pay(order, 250)
    run.sleep(3600)
    run.state.at = run.now().timestamp()
    if not run.state.orders:
        run.finish(announce(f"{len(run.state.paid)} paid"))


@agent.start
def start(run: ind.Run[Desk]) -> None:
    run.state.orders.extend(run.objective.split())
