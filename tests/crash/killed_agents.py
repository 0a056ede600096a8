"""Two agents that do a bit of everything, one `def` and one `async def`, to be killed by the sweep.

Owns: what they do; every deed and every paid answer is a line in a ledger that outlives them.
"""

from __future__ import annotations

import asyncio
from typing import Any

import indelible as ind
from indelible.core import snapshots
from indelible.testing.ledger import Ledger

# Their journals are short; this way they have snapshots all the same.
snapshots.FIRST_AFTER_BYTES = 700

ledger = Ledger("ledger")


class Memory(ind.State):
    tasks: ind.Queue[str]
    notes: ind.Log[str]
    count: int = 0


def look(kind: str, key: str) -> Any:
    found = ledger.find(kind, key)
    return ind.happened(f"{kind} {found.what}: done") if found else ind.did_not_happen()


# For the `def` agent


@ind.action
def complete(prompt: str) -> str:
    """Paid, so its result is durable at once."""
    ind.usage(tokens_in=10, tokens_out=5, usd=0.01)
    return ledger.perform("complete", prompt, usd=0.01)


@ind.action
def research(topic: str) -> str:
    """An action that calls another."""
    return complete(f"read about {topic}")


@ind.action(effect="idempotent")
def put_row(row: str, *, key: str = "") -> str:
    return ledger.upsert("row", row, key=key)


@ind.action(effect="irreversible", probe=lambda to, key: look("mail", key))
def mail(to: str, *, key: str = "") -> str:
    return ledger.perform("mail", to, key=key)


@ind.action(effect="irreversible", key=lambda order: f"order-{order}")
def charge(order: int, *, key: str = "") -> str:
    """It has no probe: a person looks into the ledger."""
    return ledger.perform("charge", str(order), key=key)


def cancel(hotel: str, key: str) -> None:
    ledger.upsert("cancel", hotel, key=key)


@ind.action(effect="irreversible", probe=lambda hotel, key: look("book", key), undo=cancel)
def book(hotel: str, *, key: str = "") -> str:
    return ledger.perform("book", hotel, key=key)


@ind.agent(state=Memory, attempts=2, backoff_s=0)
def steward(run: ind.Run[Memory]) -> None:
    state = run.state
    task = state.tasks.take()
    if task == "plan":
        state.notes.append(complete("plan") + research("suppliers") + put_row("plan") + charge(7))
        state.tasks.extend(["ask", "doomed", "report"])
    elif task == "ask":
        said = mail("ann")
        if run.ask("Shall it be sent?") == "yes":
            state.notes.append(said + mail("bob"))
    elif task == "doomed":
        book("grand hotel")
        state.notes.append("this is taken back")
        raise ConnectionError("no car is to be had")
    else:
        run.finish(state.count + 1)
    state.count += 1


@steward.start
def begin(run: ind.Run[Memory]) -> None:
    run.state.tasks.append("plan")


# For the `async def` agent


@ind.action
async def acomplete(prompt: str) -> str:
    ind.usage(tokens_in=10, tokens_out=5, usd=0.01)
    return await asyncio.to_thread(ledger.perform, "complete", prompt, usd=0.01)


@ind.action
async def aresearch(topic: str) -> str:
    return await acomplete(f"read about {topic}")


@ind.action(effect="idempotent")
async def aput_row(row: str, *, key: str = "") -> str:
    return ledger.upsert("row", row, key=key)


@ind.action(effect="irreversible", probe=lambda to, key: look("mail", key))
async def amail(to: str, *, key: str = "") -> str:
    return await asyncio.to_thread(ledger.perform, "mail", to, key=key)


@ind.action(effect="irreversible", key=lambda order: f"order-{order}")
async def acharge(order: int, *, key: str = "") -> str:
    return ledger.perform("charge", str(order), key=key)


async def acancel(hotel: str, key: str) -> None:
    ledger.upsert("cancel", hotel, key=key)


@ind.action(effect="irreversible", probe=lambda hotel, key: look("book", key), undo=acancel)
async def abook(hotel: str, *, key: str = "") -> str:
    return ledger.perform("book", hotel, key=key)


@ind.agent(state=Memory, attempts=2, backoff_s=0)
async def asteward(run: ind.Run[Memory]) -> None:
    state = run.state
    task = state.tasks.take()
    if task == "plan":
        parts = await asyncio.gather(acomplete("plan"), aresearch("suppliers"), aput_row("plan"), acharge(7))
        state.notes.append("".join(parts))
        state.tasks.extend(["ask", "doomed", "report"])
    elif task == "ask":
        said = await amail("ann")
        if run.ask("Shall it be sent?") == "yes":
            state.notes.append(said + "".join(await asyncio.gather(amail("bob"), amail("carl"))))
    elif task == "doomed":
        await asyncio.gather(abook("grand hotel"), acomplete("a car"))
        state.notes.append("this is taken back")
        raise ConnectionError("no car is to be had")
    else:
        run.finish(state.count + 1)
    state.count += 1


@asteward.start
def abegin(run: ind.Run[Memory]) -> None:
    run.state.tasks.append("plan")
