"""Pays orders and mails a receipt for each; an order whose receipt cannot be sent is paid back.

    python -m indelible.testing.service --port 8025 --ledger world.jsonl      # a fake bank and post office
    INDELIBLE_WORLD=http://127.0.0.1:8025 indelible run examples/payments_agent.py:agent "A-1 A-2 A-3"

Kill it at any moment and run the last line again with the run's id (`--run-id`). No order is paid twice: before a
payment starts, its intent is on the disk; after a crash the bank is asked what became of it.
"""

import json
import os
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

import indelible as ind

TIMEOUT_S = 30.0


def ask(method: str, path: str, body: Any = None, key: str = "") -> Any:
    """One request to the service. It raises `DidNotHappen` for the one answer that proves that nothing was done."""
    with closing(HTTPConnection(urlsplit(os.environ["INDELIBLE_WORLD"]).netloc, timeout=TIMEOUT_S)) as connection:
        headers = {"Idempotency-Key": key} if key else {}
        connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status == 429:
            raise ind.DidNotHappen("the service is busy")
        if answer.status >= 400:
            raise OSError(f"the service answered {answer.status}")  # before or after it did it? Nobody knows
        return json.loads(content)


@ind.action
def price(order: str) -> int:
    """Stands for a paid model that reads an invoice: cents. Repeatable: its answer is kept, so it is paid for once."""
    ind.usage(usd=0.002)
    return 100 * len(order) + sum(map(ord, order))


def order_key(order: str, *_: Any, **__: Any) -> str:
    """A business key: one payment per order, in whatever cycle and attempt it is asked for."""
    return f"order-{order}"


def find(kind: str, key: str) -> Any:
    """The probe: a read-only question that may be asked any number of times."""
    found = ask("GET", f"/{kind}?" + urlencode({"key": key}))[kind]
    return ind.happened(found[0]["id"]) if found else ind.did_not_happen()


def refund(result: str, key: str) -> None:
    """The undo of a payment."""
    ask("POST", "/refunds", {"payment": result}, key)


@ind.action(
    effect="irreversible",
    key=order_key,
    probe=lambda order, amount, key: find("payments", key),
    undo=refund,
    fails_cleanly=(ConnectionRefusedError,),
)
def pay(order: str, amount: int, *, key: str = "") -> str:
    return str(ask("POST", "/payments", {"order": order, "amount": amount}, key)["id"])


@ind.action(effect="irreversible", probe=lambda to, text, key: find("mails", key))
def send_mail(to: str, text: str, *, key: str = "") -> str:
    return str(ask("POST", "/mails", {"to": to, "text": text}, key)["id"])


class Desk(ind.State):
    orders: ind.Queue[str]
    paid: ind.Map[str, str]


@ind.agent(state=Desk)
def agent(run: ind.Run[Desk]) -> None:
    """One order: read it, pay it, send the receipt."""
    if not run.state.orders:
        run.finish(f"{len(run.state.paid)} orders paid, {len(run.state.orders.failed)} given up")
        return
    order = run.state.orders.take()
    payment = pay(order, price(order))
    send_mail("books@example.org", f"{order} is paid: {payment}")
    run.state.paid[order] = payment


@agent.start
def start(run: ind.Run[Desk]) -> None:
    run.state.orders.extend(dict.fromkeys(run.objective.split()))  # the same order twice is one order
