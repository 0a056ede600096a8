"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import indelible as ind
from indelible.runtime.runstore import RunStore


@pytest.fixture
def store() -> Iterator[RunStore]:
    """An open store in memory."""
    with ind.open("memory:") as opened:
        yield opened
