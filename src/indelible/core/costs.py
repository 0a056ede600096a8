"""When a result is worth a write: what a crash would cost by now, against the price of one flush.

Owns: the two rules by which a repeatable result is made durable before its cycle ends.
Must never: decide about a deed's intent or outcome, or about a commit; those are durable always.
Invariant: what has no known price is written at once, for nobody can say that it may be lost.

The economic rule is the online form of the optimum checkpoint interval sqrt(2 C M / r) for a flush of price C, a
mean time between failures M, and value that grows at the rate r (J. W. Young, "A first order approximation to the
optimum checkpoint interval", CACM 17(9), 1974; J. T. Daly, "A higher order estimate of the optimum checkpoint
interval for restart dumps", FGCS 22(3), 2006). With V(t) the value at risk, the loss to be expected since the last
flush is the integral of V(t) dt / M, which for V = r t reaches C exactly after that interval. The integral needs
no rate, so results may come unevenly and cost what they like.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

SECONDS_PER_HOUR = 3600.0
WORTH_COMMITS = 20
"""A result that took longer than this many commits is made durable at once, unless the rule is economic."""
_NEWEST = 0.2
"""The share of the newest pause in the usual one."""


class Where(NamedTuple):
    """Where a journal stands: its last seq, up to which one it is durable, and what a flush takes (seconds)."""

    seq: int
    durable_seq: int
    flush_s: float


class Rule(Protocol):
    """Decides for one run; it is asked about each repeatable result, in the order in which they come."""

    def due(self, at: float, took_s: float, usd: float | None, where: Where) -> bool:
        """Whether to flush now, together with the result that is about to be appended.

        `at` is when it came, in epoch seconds, `took_s` how long it took; `usd` its price in dollars, None if it has
        one that nobody knows.
        """
        ...


class Prompt:
    """The rule where nothing else was asked for: what was paid for, or took long, is written at once."""

    def due(self, at: float, took_s: float, usd: float | None, where: Where) -> bool:  # noqa: ARG002
        """See `Rule.due`."""
        return usd != 0 or took_s > WORTH_COMMITS * where.flush_s


@dataclass(frozen=True, slots=True)
class Economy:
    """What a crash and a write are reckoned at: mean seconds between failures, the dollars an hour of the agent's
    time is worth, and the dollars that the store charges for a write."""

    mtbf_s: float
    usd_per_hour: float
    usd_per_write: float = 0.0

    def price(self, flush_s: float) -> float:
        """Dollars for one flush: its time and its charge."""
        return self.usd_per_write + flush_s * self.usd_per_hour / SECONDS_PER_HOUR


class Economic:
    """Flush when the loss to be expected has grown to the price of a flush.

    Asked by several threads at once it may flush a little early or late, and nothing worse.
    """

    def __init__(self, economy: Economy) -> None:
        self.economy = economy
        self._last = 0
        """The seq of the newest result."""
        self._value = 0.0
        """The dollars of what is not durable yet, as far as is known."""
        self._risk = 0.0
        """Their integral over time since the last flush, in dollar-seconds."""
        self._at = 0.0
        self._pause = 0.0
        """The usual time between two results, in seconds."""

    def due(self, at: float, took_s: float, usd: float | None, where: Where) -> bool:
        """See `Rule.due`."""
        if where.durable_seq >= self._last:
            self._value = self._risk = 0.0  # flushed: by this rule, with a deed's intent, or with the cycle
        self._last = where.seq + 1
        elapsed = at - self._at if self._at and at >= self._at else took_s  # the clock may have been set back
        self._pause += _NEWEST * (elapsed - self._pause) if self._at else elapsed
        self._at = at
        if usd is None:
            return True
        self._risk += self._value * elapsed
        self._value += usd + took_s * self.economy.usd_per_hour / SECONDS_PER_HOUR
        # To wait for the next result adds its pause to the risk, and nothing can be decided in between.
        risk = self._risk + self._value * self._pause
        return risk >= self.economy.price(where.flush_s) * self.economy.mtbf_s
