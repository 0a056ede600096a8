"""WRONG on purpose: an action that is declared repeatable and is not harmless to repeat.

The fault: `pay` makes a payment without a key, and nothing says that it is a deed. A repeatable action has no intent on
the disk before it is called, so whenever the process dies between the payment and the write of its result, it is called
again, and paid again.
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


@ind.action  # this should be @ind.action(effect="irreversible", probe=...)
def pay(order: str, amount: int) -> str:
    return str(post("/payments", {"order": order, "amount": amount})["order"])


class Desk(ind.State):
    orders: ind.Queue[str]
    paid: ind.Log[str]


@ind.agent(state=Desk, backoff_s=0)
def agent(run: ind.Run[Desk]) -> None:
    run.state.paid.append(pay(run.state.orders.take(), 250))
    if not run.state.orders:
        run.finish(len(run.state.paid))


@agent.start
def start(run: ind.Run[Desk]) -> None:
    run.state.orders.extend(run.objective.split())
