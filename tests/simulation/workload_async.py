"""An `async def` agent: actions side by side, nested ones, cancellation, and a loop of its own."""

from __future__ import annotations

import asyncio

import indelible as ind
from indelible.runtime.runs import Outcome
from indelible.runtime.runstore import RunStore
from indelible.testing.simulate import Rule, Workload, world

RULES = {
    "model": Rule("repeatable"),
    "page": Rule("repeatable"),
    "mail": Rule("irreversible"),
    "post": Rule("irreversible"),
    "order": Rule("irreversible"),
    "return": Rule("undo"),
    "row": Rule("idempotent"),
}


@ind.action
async def model(prompt: str) -> str:
    ind.usage(tokens_in=1, tokens_out=1, usd=0.02)
    await asyncio.sleep(0)
    return world().perform("model", prompt, usd=0.02)


@ind.action
async def page(url: str) -> str:
    return world().perform("page", url)


@ind.action
async def digest(topic: str) -> str:
    """Nested, and side by side inside."""
    parts = await asyncio.gather(page(f"{topic}/1"), page(f"{topic}/2"))
    return await model(" ".join(parts))


async def sent(to: str, *, key: str) -> object:
    found = world().find("mail", key)
    return ind.happened(f"mail {found.what}: done") if found else ind.did_not_happen()


@ind.action(effect="irreversible", probe=sent)
async def mail(to: str, *, key: str = "") -> str:
    await asyncio.sleep(0)
    return world().perform("mail", to, key=key)


@ind.action(effect="irreversible")
async def post(text: str, *, key: str = "") -> str:
    """No probe: a person is asked."""
    return world().perform("post", text, key=key)


@ind.action(effect="idempotent")
async def put_row(row: str, *, key: str = "") -> str:
    return world().upsert("row", row, key=key)


async def send_back(item: str, *, key: str) -> None:
    world().upsert("return", item, key=key)


@ind.action(effect="irreversible", key=lambda item: f"order-{item}", undo=send_back)
async def order(item: str, *, key: str = "") -> str:
    return world().perform("order", item, key=key)


class Notes(ind.State):
    """The memory of the agent."""

    tasks: ind.Queue[str]
    notes: ind.Log[str]
    seen: ind.Map[str, str]
    cycles: int = 0


@ind.agent(state=Notes, name="several", attempts=3, backoff_s=2.0)
async def several(run: ind.Run[Notes]) -> None:
    """Each task does several things at once."""
    state = run.state
    task = state.tasks.take()
    if task == "read":
        for text in await asyncio.gather(digest("a"), digest("b"), model("c")):
            state.notes.append(text)
        state.tasks.extend(["deliver", "flaky", "doomed", "end"])
    elif task == "deliver":
        done = await asyncio.gather(mail("ann"), mail("bob"), put_row("both"), model("d"))
        state.seen["deliver"] = " ".join(done)
    elif task == "flaky":
        first = await mail("carl")
        await asyncio.gather(model("e"), put_row("e"))
        if state.tasks.attempts < 2:
            raise RuntimeError("the first try fails")
        state.notes.append(first + await post("once"))
    elif task == "doomed":
        await asyncio.gather(order("book"), order("pen"))
        raise RuntimeError("this never works")
    else:
        answer = run.ask("Is that all?")
        state.notes.append(await post(f"all: {answer}"))
        run.finish(len(state.notes))
    state.cycles += 1


@several.start
def begin(run: ind.Run[Notes]) -> None:
    run.state.tasks.append("read")


async def program(store: RunStore) -> Outcome:
    """One process."""
    return await several.run("Several things", store=store, run_id="run")


async def own_loop(store: RunStore) -> Outcome:
    """One process that owns its loop, in which two tasks of the same cycle share a keyed action."""
    async with store.run("run", Notes, "By hand") as run:
        while run.is_active:
            async with run.cycle():
                number = run.cycle_number
                one, two = await asyncio.gather(order("shared"), order("shared"))
                assert one == two
                try:
                    async with asyncio.timeout(3):
                        await asyncio.gather(model(f"slow {number}"), asyncio.Event().wait())
                except TimeoutError:
                    run.state.notes.append(await mail(f"late {number}"))
                run.state.cycles += 1
                if number == 3:
                    run.finish(one)
        return run.outcome


WORKLOAD = Workload(
    "async def",
    program,
    RULES,
    probed=frozenset({"mail"}),
    must_do=frozenset({("mail", "ann"), ("mail", "carl"), ("order", "pen"), ("return", "pen"), ("post", "all: yes")}),
)
OWN_LOOP = Workload("own loop", own_loop, RULES, probed=frozenset({"mail"}))
