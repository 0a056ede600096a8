"""A small agent whose deeds are counted outside, for disks that fail.

Owns: the agent, and how its run is carried to the end.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import indelible as ind
from indelible.core.actions import ProbeAnswer
from indelible.runtime.runs import Outcome
from indelible.runtime.runstore import RunStore
from indelible.testing.ledger import receipt
from indelible.testing.powerloss import Outside
from indelible.testing.witness import Witness
from indelible.testing.world import Deed

RUN_ID = "books"
FULL = os.environ.get("INDELIBLE_FULL_SWEEPS") == "1"
"""More cuts, faults and bytes than `make test` has time for."""


@dataclass
class _Here:
    """What the functions of the agent reach for: set by `to_the_end`."""

    outside: Outside
    witness: Witness | None = None


_here = _Here(Outside())


class Books(ind.State):
    orders: ind.Queue[str]
    receipts: ind.Log[str]
    tally: ind.Map[str, int]
    approved_by: str = ""


@ind.action
def price(order: str) -> int:
    return len(order) * 100


def _was_charged(order: str, amount: int, *, key: str) -> ProbeAnswer:
    found = [deed for deed in _here.outside.ledger if deed.key == key]
    return ind.happened(receipt("charge", found[0].what)) if found else ind.did_not_happen()


@ind.action(effect="irreversible", probe=_was_charged)
def charge(order: str, amount: int, *, key: str = "") -> str:
    if _here.witness is not None and key not in _here.witness.intents(RUN_ID):
        _here.outside.premature.append(order)
    _here.outside.ledger.append(Deed("charge", order, key, 0.0, 0, False))
    return receipt("charge", order)


@ind.agent(state=Books, name="bookkeeper", backoff_s=0.0)
def bookkeeper(run: ind.Run[Books]) -> None:
    order = run.state.orders.take()
    amount = price(order)
    if order == "beta":
        run.state.approved_by = run.ask("May beta be charged?")
    told = charge(order, amount)
    _here.outside.seen.append(told)
    run.state.receipts.append(f"{told} {'.' * 600}")
    run.state.tally[order] = amount
    if not run.state.orders:
        run.finish(sorted(run.state.tally.items()))


@bookkeeper.start
def _start(run: ind.Run[Books]) -> None:
    run.state.orders.extend(["alpha", "beta", "gamma"])


def to_the_end(store: RunStore, outside: Outside) -> Outcome:
    """Start the run, or resume it, answer what it asks, and return when it is finished."""
    _here.outside = outside
    _here.witness = store.store if isinstance(store.store, Witness) else None
    outcome = bookkeeper.run("Charge three orders", store=store, run_id=RUN_ID)
    while outcome.status == "parked":
        store.answer(RUN_ID, "the owner", wait=outcome.wait)
        outcome = bookkeeper.run("Charge three orders", store=store, run_id=RUN_ID)
    assert outcome.is_finished, outcome
    return outcome
