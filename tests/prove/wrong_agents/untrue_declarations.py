"""WRONG on purpose: three agents whose declarations are not true.

The faults: `lying` has a probe that never finds anything; `keyless` is declared idempotent and keeps its key to itself;
`dicey` takes a random number that nobody records.
"""

import json
import os
import random
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import indelible as ind


def post(path: str, body: Any) -> str:
    with closing(HTTPConnection(urlsplit(os.environ["INDELIBLE_WORLD"]).netloc, timeout=30)) as connection:
        connection.request("POST", path, json.dumps(body))
        return str(json.loads(connection.getresponse().read())["order"])


@ind.action(effect="irreversible", probe=lambda order: ind.did_not_happen())  # this should look into the bank's book
def pay(order: str) -> str:
    return post("/payments", {"order": order, "amount": 250})


@ind.action(effect="idempotent")  # this should take a `key` and send it along
def put(order: str) -> str:
    return post("/payments", {"order": order, "amount": 250})


class Desk(ind.State):
    orders: ind.Queue[str]
    paid: ind.Log[str]


def start(run: ind.Run[Desk]) -> None:
    run.state.orders.extend(run.objective.split())


@ind.agent(state=Desk)
def lying(run: ind.Run[Desk]) -> None:
    run.state.paid.append(pay(run.state.orders.take()))
    if not run.state.orders:
        run.finish()


@ind.agent(state=Desk)
def keyless(run: ind.Run[Desk]) -> None:
    run.state.paid.append(put(run.state.orders.take()))
    if not run.state.orders:
        run.finish()


@ind.agent(state=Desk)
def dicey(run: ind.Run[Desk]) -> None:
    pay(f"{run.state.orders.take()} {random.random()}")  # this should be run.random.random()
    if not run.state.orders:
        run.finish()


for agent in (lying, keyless, dicey):
    agent.start(start)
