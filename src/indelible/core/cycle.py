"""One entry into one cycle, and the scopes in which its actions are called.

Owns: `Live` (a run in this process), `Entry` (one time its cycle is entered), `Scope`
(where a call stands: in the cycle, or inside another action).
Must never: append to the journal; that is the protocol's work.
Invariant: a scope gives the nth call with the same name and arguments the same identity on
every entry, whichever other calls ran, in whatever order.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from indelible.core.actions import Spec
from indelible.core.costs import Prompt, Rule
from indelible.core.journal import Journal
from indelible.core.record import COMPLETED, CallRecord, Record
from indelible.core.requests import Park
from indelible.core.state import Shape, Workspace
from indelible.core.usage import Answer
from indelible.errors import LeaseLost, Misuse


@dataclass
class AgentSpec:
    """An agent as declared: one cycle's body, the state it works on, and how it fails."""

    name: str
    shape: Shape
    version: int
    body: Callable[..., Any] | None = None
    start: Callable[..., Any] | None = None
    migrations: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = field(default_factory=dict)
    invariants: list[Callable[[Any], Any]] = field(default_factory=list)
    attempts: int = 3
    on_failure: str = "continue"
    backoff_s: float = 1.0


@dataclass
class Live:
    """A run in this process: the record, the journal that extends it, and the working copy of its state."""

    agent: AgentSpec
    record: Record
    journal: Journal
    workspace: Workspace
    epoch: int
    resolve: Callable[[str], Spec | None]
    handle: Any = None
    commit_cost_s: float = 0.0005
    rule: Rule = field(default_factory=Prompt)
    """When a repeatable result is made durable before its cycle ends."""
    waited: float = 0.0
    """Seconds in which a durable write was under way, since the last commit."""
    price: Callable[[Answer, str], float | None] = lambda _answer, _provider: None
    lost: str = ""
    snapshot_size: int = 0
    stored_at_snapshot: int = 0
    actions: dict[str, Spec] = field(default_factory=dict)
    entry: Entry | None = None
    reserved: dict[str, Any] = field(default_factory=dict)
    """What calls under way are expected to cost, by call, while there is a budget."""
    warnings: list[str] = field(default_factory=list)
    """What was found damaged and passed over, one sentence each."""

    def know(self, spec: Spec) -> None:
        """Refuse two different functions under one action name in the same run."""
        known = self.actions.setdefault(spec.name, spec)
        if known is spec:
            return
        if (known.fn.__module__, known.fn.__qualname__) != (spec.fn.__module__, spec.fn.__qualname__):
            raise Misuse(
                f"two actions are called {spec.name}: {known.fn.__module__}.{known.fn.__qualname__} "
                f"and {spec.fn.__module__}.{spec.fn.__qualname__}",
                hint=f'@action(name="another_{spec.name}")',
            )
        self.actions[spec.name] = spec


class Scope:
    """Where a call stands. `call` is "" in the cycle itself, else the enclosing action's identity."""

    __slots__ = ("_counts", "_unused", "call", "driver", "effect", "ended", "entry", "heard", "parent", "random",
                 "reports", "usage")  # fmt: skip

    def __init__(
        self, entry: Entry, driver: Any, parent: Scope | None = None, call: str = "", effect: str = ""
    ) -> None:
        self.entry = entry
        self.driver = driver
        self.parent = parent
        self.call = call
        self.effect = effect
        self.usage: dict[str, Any] | None = None
        self.reports: dict[Any, tuple[Answer, float | None]] | None = None
        self.heard: tuple[Answer, ...] = ()
        """The answers that actions called from here have got, and that are counted there."""
        self.random: Any = None
        self.ended = not call
        """False while the action it stands for is being performed, for which the end of a cycle waits."""
        self._counts: dict[Any, count[int]] = {}
        self._unused: dict[Any, list[int]] = {}

    def nth(self, what: Any) -> int:
        """How often `what` was asked for here before; safe to call from several threads."""
        if self._unused:
            with suppress(LookupError):
                return self._unused[what].pop()
        return next(self._counts.setdefault(what, count()))

    def give_back(self, what: Any, nth: int) -> None:
        """Let the next one who asks for `what` be the nth: it is the same call, made again."""
        self._unused.setdefault(what, []).append(nth)

    def child(self, call: str, effect: str) -> Scope:
        """The scope inside an action called from here."""
        return Scope(self.entry, self.driver, self, call, effect)

    def must_be_open(self, what: str) -> None:
        """Refuse what comes too late: after the cycle has ended, and the action that calls it, if any, with it."""
        if self.ended:
            self.entry.must_be_open(what)
        self.entry.must_hold()

    def calls(self) -> tuple[str, ...]:
        """The actions that this scope stands inside of, the innermost first."""
        found: list[str] = []
        scope: Scope | None = self
        while scope is not None:
            if scope.call:
                found.append(scope.call)
            scope = scope.parent
        return tuple(found)

    def deed(self) -> str:
        """The identity of the enclosing idempotent or irreversible action, or ""."""
        scope: Scope | None = self
        while scope is not None:
            if scope.effect in ("idempotent", "irreversible"):
                return scope.call
            scope = scope.parent
        return ""


class Entry:
    """One entry into the open cycle: what this entry has claimed, and whether it is still open."""

    def __init__(self, live: Live, driver: Any) -> None:
        self.live = live
        self.scope = Scope(self, driver)
        self.claimed: set[str] = set()
        self._holders: dict[str, object] = {}
        self.recalled: list[str] = []
        """The calls that were answered from the journal."""
        self.open = True
        self.signal: Park | None = None
        """Why this entry must wait; kept, for `gather(return_exceptions=True)` and task groups hold a signal back."""
        self.astray: dict[str, Any] = {}
        """What made it wait because the code and the world have diverged, by the wait's name."""
        self.left: dict[str, Any] = {}
        """What left a deed in doubt in this entry, by call."""
        self.result: bytes | None = None
        """What `finish` was given, packed; None until then."""

    def wait(self, signal: Park) -> Park:
        """Keep `signal`, which the caller raises."""
        self.signal = self.signal or signal
        return signal

    def hold(self, call: str, holder: object) -> bool:
        """Make the call `holder`'s, unless another call of this entry has it; safe in several threads."""
        return self._holders.setdefault(call, holder) is holder

    def let_go(self, call: str) -> None:
        """Let another call of this entry have it."""
        self._holders.pop(call, None)

    def covers(self, call: CallRecord) -> bool:
        """True if this entry asked for the call, or took the recorded result of an action it was part of."""
        step: CallRecord | None = call
        while step is not None:
            if step.call in self.claimed:
                return step is call or step.status == COMPLETED
            step = self.live.record.find(step.within)
        return False

    def must_hold(self) -> None:
        """Refuse what comes after the run was taken over."""
        live = self.live
        if live.lost:
            raise LeaseLost(live.lost, hint=f"indelible show {live.record.run_id}", run=live.record.run_id)

    def must_be_open(self, what: str) -> None:
        """Refuse what comes after the cycle has ended."""
        live = self.live
        if not self.open:
            raise Misuse(
                f"{what} was called after its cycle had ended (run {live.record.run_id}, cycle {live.record.cycle})",
                hint="await every task you start before the cycle ends",
            )
