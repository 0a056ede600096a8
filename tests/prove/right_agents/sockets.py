"""An agent that does several deeds at once over sockets of its own event loop, and that nobody can probe.

Owns: requests that are still on their way when another one returns, or when the process dies.
"""

import asyncio
import json
import os
from typing import Any
from urllib.parse import urlsplit

import indelible as ind


async def post(path: str, body: Any) -> Any:
    url, data = urlsplit(os.environ["INDELIBLE_WORLD"]), json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write(f"POST {path} HTTP/1.1\r\nHost: desk\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.close()
    return json.loads(answer.partition(b"\r\n\r\n")[2])


@ind.action(effect="irreversible")
async def pay(order: str, amount: int) -> str:
    return str((await post("/payments", {"order": order, "amount": amount}))["id"])


class Desk(ind.State):
    orders: ind.Queue[str]
    paid: ind.Map[str, str]


@ind.agent(state=Desk)
async def agent(run: ind.Run[Desk]) -> None:
    orders = [run.state.orders.take() for _ in range(len(run.state.orders))]
    for order, receipt in zip(orders, await asyncio.gather(*(pay(order, 250) for order in orders)), strict=True):
        run.state.paid[order] = receipt
    run.finish(len(orders))


@agent.start
def start(run: ind.Run[Desk]) -> None:
    run.state.orders.extend(run.objective.split())
