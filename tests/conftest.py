"""What holds for all tests."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from indelible.drive.context import current
from tests import figures

# A shell that starts the tests in the background has Ctrl-C ignored, and whoever is started from here inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _outside_any_cycle() -> None:
    """No test begins inside a cycle that an interrupted one has left."""
    current.set(None)


@pytest.fixture(autouse=True)
def _figures(record_property: Callable[[str, object], None]) -> None:
    """What a test tells goes with its report, from whichever process it runs in."""
    figures.begin(record_property)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what the tests have told."""
    reports = [report for some in terminalreporter.stats.values() for report in some]
    told = [
        (report.nodeid, text)
        for report in reports if getattr(report, "when", "") == "call"
        for name, text in report.user_properties if name == figures.NAME
    ]  # fmt: skip
    if told:
        terminalreporter.section("figures")
    for _, text in sorted(told):
        terminalreporter.write_line(text)
