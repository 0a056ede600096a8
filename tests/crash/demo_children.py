"""Processes of the demonstration with something wrong in them, which its table must bring to light.

Owns: the faults. Which one it is stands in the environment.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from indelible.agents import delivery
from indelible.agents.models import Completion, Message, Schema
from indelible.cli import demo_child

FAULT = "INDELIBLE_TEST_FAULT"


def find_nothing(*args: Any, **kwargs: Any) -> None:
    """A probe that is wrong."""


class Twice(demo_child.CountedModel):
    """A model that is asked twice for each answer."""

    def complete(
        self, messages: Sequence[Message], *, schema: Schema | None = None, max_tokens: int = 120
    ) -> Completion:
        super().complete(messages, schema=schema, max_tokens=max_tokens)
        return super().complete(messages, schema=schema, max_tokens=max_tokens)


class Moody(demo_child.CountedModel):
    """A model whose answers depend on the process that asks."""

    def complete(
        self, messages: Sequence[Message], *, schema: Schema | None = None, max_tokens: int = 120
    ) -> Completion:
        return super().complete([{"role": "system", "content": str(os.getpid())}, *messages], schema=schema)


if __name__ == "__main__":
    fault = os.environ[FAULT]
    if fault == "probe":
        delivery.in_maildir = find_nothing
    elif fault == "twice":
        demo_child.CountedModel = Twice  # type: ignore[misc]
    elif fault == "moody":
        demo_child.CountedModel = Moody  # type: ignore[misc]
    demo_child.main(demo_child.research)
