"""Lengths of time as a person writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indelible.cli.durations import seconds_of, shown
from indelible.errors import Misuse


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30d", 2_592_000), ("12h", 43_200), ("90m", 5400), ("45s", 45), ("2w", 1_209_600), ("1d12h", 129_600),
     ("1.5h", 5400), (" 30D ", 2_592_000), ("0s", 0)],
)  # fmt: skip
def test_what_is_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "30", "d", "-1d", "30 days", "1e3d", "nan", "inf", "1.2.3d", "٣d", "999999999999d", "3d;", "1d 2h"]
)
def test_what_is_refused(text: str) -> None:
    """With the option's name and what to write instead."""
    with pytest.raises(Misuse, match="--ttl") as caught:
        seconds_of(text, "--ttl")
    assert caught.value.hint.startswith("--ttl 30d")


@given(st.integers(min_value=0, max_value=10**9))
def test_what_is_shown_can_be_read(seconds: int) -> None:
    assert seconds_of(shown(seconds)) == seconds
