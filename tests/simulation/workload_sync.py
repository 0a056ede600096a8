"""A `def` agent that does a bit of everything, for the sweep."""

from __future__ import annotations

import indelible as ind
from indelible.runtime.runstore import RunStore
from indelible.testing.simulate import Rule, Workload, world

RULES = {
    "model": Rule("repeatable"),
    "search": Rule("repeatable"),
    "mail": Rule("irreversible"),
    "greeting": Rule("irreversible"),
    "fax": Rule("irreversible"),
    "letter": Rule("irreversible"),
    "wire": Rule("irreversible"),
    "ping": Rule("irreversible", "assume_not"),
    "call": Rule("irreversible", "assume_happened"),
    "charge": Rule("irreversible"),
    "row": Rule("idempotent"),
    "booking": Rule("irreversible"),
    "cancel": Rule("undo"),
}


UNTOUCHED = 4
"""The process that comes to the task "whim" if nothing goes wrong."""


@ind.action
def model(prompt: str) -> str:
    ind.usage(tokens_in=10, tokens_out=5, usd=0.01)
    return world().perform("model", prompt, usd=0.01)


@ind.action
def search(query: str) -> str:
    return world().perform("search", query)


@ind.action
def research(topic: str) -> str:
    """An action that calls others."""
    return model(f"read {search(f'about {topic}')}")


def sent(to: str, *, key: str) -> object:
    """A probe that tells the truth."""
    found = world().find("mail", key)
    return ind.happened(f"mail {found.what}: done") if found else ind.did_not_happen()


@ind.action(effect="irreversible", probe=sent)
def mail(to: str, *, key: str = "") -> str:
    return world().perform("mail", to, key=key)


@ind.action(effect="irreversible", probe=lambda by, key: ind.happened("greeting") if world().find("greeting", key)
            else ind.did_not_happen())  # fmt: skip
def greet(by: int, *, key: str = "") -> str:
    world().perform("greeting", "everyone", key=key)
    return "greeting"


@ind.action(effect="irreversible")
def flag(colour: str, *, key: str = "") -> str:
    return world().perform("flag", colour, key=key)


def cannot_tell(to: str, *, key: str) -> object:
    """A probe that cannot tell."""
    world().find("fax", key)
    return ind.unknown("the other side keeps no list")


@ind.action(effect="irreversible", probe=cannot_tell)
def fax(to: str, *, key: str = "") -> str:
    return world().perform("fax", to, key=key)


@ind.action(effect="irreversible", fails_cleanly=(ConnectionRefusedError,))
def letter(to: str, *, key: str = "") -> str:
    """No probe at all."""
    return world().perform("letter", to, key=key)


def broken(amount: int, *, key: str) -> object:
    """A probe that fails."""
    raise OSError("the bank does not answer")


@ind.action(effect="irreversible", probe=broken, approve=True)
def wire(amount: int, *, key: str = "") -> str:
    return world().perform("wire", str(amount), key=key)


@ind.action(effect="irreversible", on_doubt="assume_not")
def ping(host: str, *, key: str = "") -> str:
    return world().perform("ping", host, key=key)


@ind.action(effect="irreversible", on_doubt="assume_happened")
def call(number: str, *, key: str = "") -> str | None:
    return world().perform("call", number, key=key)


def charged(order: int, *, key: str) -> object:
    found = world().find("charge", key)
    return ind.happened(f"charge {found.what}: done") if found else ind.did_not_happen()


@ind.action(effect="irreversible", key=lambda order: f"order-{order}", probe=charged)
def charge(order: int, *, key: str = "") -> str:
    return world().perform("charge", str(order), key=key)


@ind.action(effect="idempotent")
def put_row(row: str, *, key: str = "") -> str:
    return world().upsert("row", row, key=key)


def cancel(hotel: str, *, key: str) -> None:
    world().upsert("cancel", hotel, key=key)


def booked(hotel: str, *, key: str) -> object:
    found = world().find("booking", key)
    return ind.happened(f"booking {found.what}: done") if found else ind.did_not_happen()


@ind.action(effect="irreversible", probe=booked, undo=cancel)
def book(hotel: str, *, key: str = "") -> str:
    return world().perform("booking", hotel, key=key)


class Plan(ind.State):
    """The first version of the memory."""

    tasks: ind.Queue[str]
    findings: ind.Log[str]
    prefs: ind.Map[str, int]
    count: int = 0
    token: str = ""


class Plan2(ind.State):
    """The second one: `count` is called `steps`."""

    tasks: ind.Queue[str]
    findings: ind.Log[str]
    prefs: ind.Map[str, int]
    steps: int = 0
    token: str = ""


def first(run: ind.Run[Plan]) -> None:
    """Cycles of the first version."""
    state = run.state
    task = state.tasks.take()
    state.findings.append(work(run, task, state.tasks.attempts))
    state.prefs[task] = len(state.findings)
    state.count += 1


def second(run: ind.Run[Plan2]) -> None:
    """Cycles of the second version."""
    state = run.state
    task = state.tasks.take()
    state.findings.append(work(run, task, state.tasks.attempts))
    state.prefs[task] = len(state.findings)
    if task == "ids":
        state.token = run.new_id()
        mail(f"id {len(state.token)}")
        put_row(f"drawn {run.random.random() < 2}")
        state.findings.compact(2, "earlier ones")
    state.steps += 1
    if not state.tasks:
        run.finish(state.steps)


def work(run: ind.Run[Plan] | ind.Run[Plan2], task: str, attempt: int) -> str:
    """What each task is about."""
    if task == "plan":
        answer = model("plan")
        run.state.tasks.append("report", priority=9)
        run.state.tasks.extend(["mail", "retry", "doomed", "pay", "wait", "whim", "ids"])
        return answer
    if task == "mail":
        found = research("suppliers")
        return found + mail("ann") + put_row("ann") + fax("bob")
    if task == "retry":
        done = mail("carl") + model("try")
        if attempt == 1:
            raise ValueError("the first try fails")
        run.state.tasks.reprioritise(lambda value: 9 if value == "report" else 1)
        return done + letter("dora")
    if task == "doomed":
        book("grand hotel")
        charge(7)
        raise ValueError("this never works")
    if task == "pay":
        if run.ask("Shall it be paid?") != "yes":
            raise ind.errors.Misuse("the answer of the person was lost")
        return charge(7) + wire(100) + str(ping("host")) + str(call("112") is not None)
    if task == "wait":
        before = mail("before the pause")
        run.sleep(3600)
        stamp = run.now()
        return before + mail("after the pause") + str(stamp.year)
    if task == "whim":
        # Code that depends on what is not recorded: after a crash it wants another deed, or none.
        again = world().number > UNTOUCHED
        if not again:
            flag("red")
        return greet(int(again))
    return model(task)


v1 = ind.agent(state=Plan, name="everything", attempts=3)(first)
v2 = ind.agent(state=Plan2, name="everything", version=2, attempts=3)(second)


@v1.start
def begin(run: ind.Run[Plan]) -> None:
    run.state.tasks.append("plan")


@v1.invariant
def every_task_has_a_finding(state: Plan) -> bool:
    return len(state.findings) == len(state.prefs) == state.count


@v2.invariant
def every_task_is_counted(state: Plan2) -> bool:
    return state.tasks.done == len(state.prefs) == state.steps


@v2.migration(1)
def rename(state: dict[str, object]) -> dict[str, object]:
    state["steps"] = state.pop("count")
    return state


def program(store: RunStore) -> ind.Run[Plan] | object:
    """One process: the first version until four cycles stand, then the second."""
    committed = 0
    for entry in store.entries():
        if entry.head:
            committed = store.recover("run").record.committed
    if committed >= 3:
        return v2.run(store=store, run_id="run")
    done: list[object] = []

    def observe(event: object) -> None:
        if type(event).__name__ == "CycleCommitted":
            done.append(event)

    return v1.run("Do everything", store=store, run_id="run", observe=observe, stop=lambda: committed + len(done) >= 3)


DEEDS = (
    *("mail ann", "mail carl", "mail before the pause", "mail after the pause", "mail id 36", "fax bob", "letter dora"),
    *("row ann", "row drawn True", "booking grand hotel", "cancel grand hotel", "charge 7", "wire 100", "ping host"),
    *("call 112", "greeting everyone", "flag red"),
)

WORKLOAD = Workload(
    "def",
    program,
    RULES,
    probed=frozenset({"mail", "greet", "charge", "book"}),
    must_do=frozenset((deed.partition(" ")[0], deed.partition(" ")[2]) for deed in DEEDS),
    volatile=frozenset({"token"}),
)
