"""WRONG on purpose: an irreversible deed that is not declared as an action.

The fault: the payment is a plain HTTP request in the body of the cycle, and the bank is given no key. Nothing is on the
disk before it, so whenever the process dies between the payment and the cycle's commit, it is paid again.
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


class Desk(ind.State):
    orders: ind.Queue[str]
    paid: ind.Log[str]


@ind.agent(state=Desk, backoff_s=0)
def agent(run: ind.Run[Desk]) -> None:
    order = run.state.orders.take()
    receipt = post("/payments", {"order": order, "amount": 250})  # this should be an action
    run.state.paid.append(f"{order}: {receipt['order']}")
    if not run.state.orders:
        run.finish(len(run.state.paid))


@agent.start
def start(run: ind.Run[Desk]) -> None:
    run.state.orders.extend(run.objective.split())
