"""What an undo that fails leaves in the world is listed for a person, also under a business key."""

from __future__ import annotations

import pytest

import indelible as ind
from indelible.core import events as ev


class Cart(ind.State):
    """What was ordered."""

    tasks: ind.Queue[str]


def send_back(item: str) -> None:
    raise ConnectionError("the shop is closed")


@ind.action(effect="irreversible", key=lambda item: f"order-{item}", undo=send_back)
def order_item(item: str) -> str:
    return item


@ind.agent(state=Cart, attempts=1)
def shopping(run: ind.Run[Cart]) -> None:
    raise NotImplementedError


@shopping.start
def fill(run: ind.Run[Cart]) -> None:
    run.state.tasks.append("pens")


def test_a_keyed_deed_whose_undo_fails_is_listed() -> None:
    with ind.open("memory:") as store:
        with store.run("run", shopping, "Buy pens") as run, pytest.raises(ValueError, match="never"), run.cycle():
            run.state.tasks.take()
            order_item("pen")
            raise ValueError("this never works")
        events = [event for _, event in store.events("run")]
    gave_up = [event for event in events if isinstance(event, ev.CycleRolledBack)]
    ordered = next(event for event in events if isinstance(event, ev.ActionIntended))
    assert gave_up[0].gave_up
    assert gave_up[0].orphaned == (ordered.call,)
