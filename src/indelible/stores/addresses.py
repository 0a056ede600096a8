"""What a store's URL looks like without its secrets.

Owns: `shown`, for URLs as they were typed, also those that no store can read.
Must never: let through what may be a password. Where that cannot be told, it goes.
Invariant: a text without "://" is a path, and stays as it is.
"""

from __future__ import annotations

import re

# To the last '@': a password may hold any mark that its owner forgot to write as %40 or %2F.
_PASSWORD = re.compile(r"(://[^:/?#@]*):.*@", re.S)
_OPTION = re.compile(r"([?&])[^=&]*(?:passw|secret|token|key)[^=&]*=[^&]*", re.I)


def shown(url: str) -> str:
    """The URL without passwords, for messages and for commands to paste."""
    if "://" not in url:
        return url
    bare = _OPTION.sub(r"\1", _PASSWORD.sub(r"\1@", url))
    return re.sub(r"&{2,}", "&", bare).replace("?&", "?").rstrip("?&") if bare != url else url
