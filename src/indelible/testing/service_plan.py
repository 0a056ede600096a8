"""What the fake service does wrong, and at which request.

Owns: the misbehaviours, and the plan that says which request meets which.
Must never: do anything, or depend on the order in which requests happen to run.
Invariant: the n-th request of a series meets the same misbehaviour under the same plan, always.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from indelible.drive.clock import seeded


class Misbehaviour(StrEnum):
    """What can go wrong with one request. "Applies" means: the deed, if there is one, is in the ledger, synced."""

    ANSWER_LATE = "answer_late"
    """Applies, then holds the answer until it is released or the client has gone."""
    APPLY_LATE = "apply_late"
    """Holds the request until it is released, then applies it, even if the client has gone meanwhile."""
    DROP_BEFORE = "drop_before"
    """Closes the connection and applies nothing."""
    DROP_AFTER = "drop_after"
    """Applies, then closes the connection without a word."""
    TOO_MANY = "too_many"
    """Answers 429 with Retry-After and applies nothing."""
    ERROR_BEFORE = "error_before"
    """Answers 500 and applies nothing."""
    ERROR_AFTER = "error_after"
    """Applies, and answers 500 all the same."""
    ANSWER_HALF = "answer_half"
    """Applies, sends the first half of the answer, and closes the connection."""
    ANSWER_TWICE = "answer_twice"
    """Applies, and sends the answer's bytes two times in a row."""
    GONE_BEFORE = "gone_before"
    """Applies nothing, and the service dies: this connection breaks, later ones are refused until it is started."""
    GONE_AFTER = "gone_after"
    """Applies, then dies as above."""


@dataclass(frozen=True)
class Series:
    """What goes wrong in one numbered series of requests, counted from 1 since the plan was made.

    at: the misbehaviour of the n-th request.
    odds: for every other request, the probability from 0 to 1 of each misbehaviour.
    """

    at: Mapping[int, Misbehaviour] = field(default_factory=dict)
    odds: Mapping[Misbehaviour, float] = field(default_factory=dict)

    def of(self, number: int, seed: str) -> Misbehaviour | None:
        """What the request of that number meets; None if it is served as it should be."""
        if number in self.at:
            return self.at[number]
        if not self.odds:
            return None
        left = seeded(f"{seed}/{number}".encode()).random()
        for misbehaviour in sorted(self.odds):
            left -= self.odds[misbehaviour]
            if left < 0:
                return misbehaviour
        return None


@dataclass(frozen=True)
class Plan:
    """What goes wrong: with requests that do something, and with those that only look. `seed` decides the odds."""

    deeds: Series = field(default_factory=Series)
    looks: Series = field(default_factory=Series)
    seed: int = 0

    def of(self, series: str, number: int) -> Misbehaviour | None:
        """What the request of that number in the series `deeds` or `looks` meets."""
        chosen = self.deeds if series == "deeds" else self.looks
        return chosen.of(number, f"{self.seed}/{series}")

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON data."""
        return {"deeds": _plain(self.deeds), "looks": _plain(self.looks), "seed": self.seed}

    @staticmethod
    def from_json(data: Any) -> Plan:
        """The plan that `to_json` wrote. Raises `ValueError` or `TypeError` for anything else."""
        if not isinstance(data, dict):
            raise TypeError("a plan is a JSON object")
        return Plan(_series(data.get("deeds") or {}), _series(data.get("looks") or {}), int(data.get("seed") or 0))


def _plain(series: Series) -> dict[str, Any]:
    return {"at": {str(number): str(what) for number, what in series.at.items()},
            "odds": {str(what): odds for what, odds in series.odds.items()}}  # fmt: skip


def _series(data: Any) -> Series:
    at = {int(number): Misbehaviour(what) for number, what in dict(data.get("at") or {}).items()}
    odds = {Misbehaviour(what): float(value) for what, value in dict(data.get("odds") or {}).items()}
    if min(odds.values(), default=0) < 0 or sum(odds.values()) > 1:
        raise ValueError("odds are probabilities that add up to 1 at most")
    return Series(at, odds)
