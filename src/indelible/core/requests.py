"""What the protocol asks of the world: the values its generators yield.

Owns: the request classes and the control signals that leave a cycle early.
Must never: answer a request; that is a driver's work.
Invariant: between two yields a generator touches nothing outside memory, so that every
yield, and nothing else, is a point at which a crash can make a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from indelible.core.cycle import Scope
    from indelible.core.events import Event

T = TypeVar("T")
Steps = Generator[Any, Any, T]
"""A durable operation: yields requests, is sent their answers, returns its result."""


class Append:
    """Take `event` into the journal; with `durable`, go on only when it is on disk. Answer: its seq."""

    __slots__ = ("durable", "event")

    def __init__(self, event: Event, durable: bool = False) -> None:
        self.event = event
        self.durable = durable


class Flush:
    """Go on only when everything appended so far is on disk. Answer: None."""

    __slots__ = ()


class Call:
    """Run user code in `scope` (None: outside any run), awaiting an awaitable. Answer: `Called`."""

    __slots__ = ("args", "fn", "kwargs", "scope")

    def __init__(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], scope: Scope | None
    ) -> None:
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
        self.scope = scope


class Called:
    """A returned call: its value, how long it took in seconds on a monotonic clock, and when it was back (epoch)."""

    __slots__ = ("at", "took", "value")

    def __init__(self, value: Any, took: float, at: float) -> None:
        self.value = value
        self.took = took
        self.at = at


class Alone:
    """Run `step`, which touches memory only, while no other such step of this run runs. Answer: what it returns."""

    __slots__ = ("step",)

    def __init__(self, step: Callable[[], Any]) -> None:
        self.step = step


class Now:
    """Answer: epoch seconds."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Entropy:
    """Answer: this many random bytes."""

    size: int


@dataclass(frozen=True, slots=True)
class Sleep:
    """Go on after this many seconds. Answer: None."""

    seconds: float


@dataclass(frozen=True, slots=True)
class StoreCall:
    """Call one of the store's methods. Answer: what it returns."""

    method: str
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Enter:
    """Wait until nobody else in this process performs the keyed action `call`, then hold it.

    `within`: the actions being performed from which it is called, which go on only after it.
    Answer: what lets go of it. With `must` False it is None where waiting would never end, in place of an error.
    """

    call: str
    within: tuple[str, ...] = ()
    must: bool = True


@dataclass(frozen=True, slots=True)
class Leave:
    """Let go of the keyed action `call`."""

    call: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Go on only when no action of this cycle is still being performed. Answer: None."""

    scope: Scope


NOW = Now()
FLUSH = Flush()


class ControlSignal(BaseException):
    """Leaves a cycle early on purpose. Not an `Exception`, so that no handler swallows it."""


class Park(ControlSignal):
    """The cycle must wait, for a person (`wake_at` None) or until `wake_at`."""

    def __init__(self, wait: str, kind: str, question: str, wake_at: float | None = None, detail: bytes = b"") -> None:
        question = question.encode("utf-8", "replace").decode()  # it may come from a model, cut in half
        super().__init__(question)
        self.wait = wait
        self.kind = kind
        self.question = question
        self.wake_at = wake_at
        self.detail = detail
