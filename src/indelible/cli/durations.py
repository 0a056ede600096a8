"""How a person writes a length of time: 30d, 12h, 90m, 45s, 2w, or several of them: 1d12h.

Owns: the one place where such words are read and written.
Must never: take a bare number, whose unit would be a guess.
Invariant: `seconds_of(shown(n)) == n` for whole numbers of seconds.
"""

from __future__ import annotations

import re

from indelible.errors import Misuse

UNITS = {"w": 7 * 86_400, "d": 86_400, "h": 3600, "m": 60, "s": 1}
LONGEST_S = 1000 * 366 * 86_400

_WORD = re.compile(r"(?:[0-9]{1,12}(?:\.[0-9]{1,9})?[wdhms])+", re.ASCII)
_PART = re.compile(r"([0-9.]+)([wdhms])", re.ASCII)


def seconds_of(text: str, option: str = "--older-than") -> float:
    """The length of `text` in seconds, at least 0. Raises `Misuse`, which names `option`."""
    word = text.strip().lower()
    if _WORD.fullmatch(word):
        found = sum(float(number) * UNITS[unit] for number, unit in _PART.findall(word))
        if found <= LONGEST_S:
            return found
    raise Misuse(
        f"{option} {text[:40]!a} is no length of time; write a number and w, d, h, m or s",
        hint=f"{option} 30d    (or 12h, 90m, 1d12h)",
    )


def shown(seconds: float) -> str:
    """The length as a person would write it: "1d12h", and "0s"."""
    left, words = round(seconds), ""
    for unit, size in UNITS.items():
        number, left = divmod(left, size)
        words += f"{number}{unit}" if number else ""
    return words or "0s"
