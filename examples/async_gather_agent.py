"""Asks several models at once, and buys the data they need in the same breath.

    python -m indelible.testing.service --port 8025 --ledger world.jsonl      # a fake bank
    INDELIBLE_WORLD=http://127.0.0.1:8025 indelible run examples/async_gather_agent.py:agent "rain wind tides"

Kill it at any moment and run the last line again with the run's id (`--run-id`). The order in which the answers come
does not matter, what was answered is not asked again, and a purchase is sent again with the same key, which the bank
knows.
"""

import asyncio
import json
import os
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import indelible as ind

TIMEOUT_S = 30.0
MODELS = ("small", "medium", "large")


def post(path: str, body: Any, key: str) -> Any:
    """One request to the service."""
    with closing(HTTPConnection(urlsplit(os.environ["INDELIBLE_WORLD"]).netloc, timeout=TIMEOUT_S)) as connection:
        connection.request("POST", path, json.dumps(body), {"Idempotency-Key": key})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status >= 400:
            raise OSError(f"the service answered {answer.status}")
        return json.loads(content)


@ind.action
async def complete(model: str, question: str) -> str:
    """Stands for a model. Repeatable: its answer is kept, so it is paid for once."""
    for _ in range(len(MODELS) - MODELS.index(model)):
        await asyncio.sleep(0)  # the larger one answers first
    ind.usage(usd=0.001 * (1 + MODELS.index(model)), model=model)
    return f"{model} on {question}"


@ind.action(effect="idempotent", key=lambda topic, cents, **_: f"data-{topic}")
async def buy_data(topic: str, cents: int, *, key: str = "") -> str:
    """Idempotent: the bank ignores a second request with the same key, so it may be sent as often as need be."""
    paid = await asyncio.to_thread(post, "/payments", {"order": topic, "amount": cents}, key)
    return str(paid["id"])


class Panel(ind.State):
    topics: ind.Queue[str]
    opinions: ind.Log[str]
    bought: ind.Map[str, str]


@ind.agent(state=Panel, attempts=8)
async def agent(run: ind.Run[Panel]) -> None:
    """One topic."""
    if not run.state.topics:
        run.finish(f"{len(run.state.opinions)} opinions, {len(run.state.bought)} purchases")
        return
    topic = run.state.topics.take()
    *opinions, receipt = await asyncio.gather(*(complete(model, topic) for model in MODELS), buy_data(topic, 250))
    run.state.opinions.extend(opinions)
    run.state.bought[topic] = receipt


@agent.start
def start(run: ind.Run[Panel]) -> None:
    run.state.topics.extend(dict.fromkeys(run.objective.split()))
