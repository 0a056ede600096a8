"""What a test has measured, told at the end of all tests, whichever process it ran in.

Owns: the way from a test to the summary.
Must never: decide anything; a figure that must hold is asserted where it is measured.
Invariant: every figure told by a test that ran stands in the summary, once.
"""

from __future__ import annotations

from collections.abc import Callable

NAME = "told"
_sinks: list[Callable[[str, object], None]] = []


def tell(text: str) -> None:
    """Have `text` printed at the end."""
    _sinks[-1](NAME, text)


def begin(record_property: Callable[[str, object], None]) -> None:
    """A test begins, and what it tells goes with its report."""
    _sinks[:] = [record_property]
