"""The fixture `crash_everywhere`, for the tests of people who write agents.

Owns: what pytest is told.
Must never: import the rest of Indelible before a test asks for the fixture.
Invariant: a proof's files lie below the test's own `tmp_path`.

    def test_my_agent_survives(crash_everywhere):
        proof = crash_everywhere("agent.py:research", "Find three suppliers")
        assert proof.holds, str(proof)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def crash_everywhere(tmp_path: Path) -> Callable[..., Any]:
    """`indelible.testing.prove.crash_everywhere`, at work in this test's `tmp_path`."""
    from indelible.testing import prove

    return partial(prove.crash_everywhere, folder=tmp_path)
