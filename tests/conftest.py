"""What holds for all tests."""

from __future__ import annotations

import signal

import pytest

from indelible.drive.context import current

# A shell that starts the tests in the background has Ctrl-C ignored, and whoever is started from here inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _outside_any_cycle() -> None:
    """No test begins inside a cycle that an interrupted one has left."""
    current.set(None)
