"""The names of the keys of a Redis store.

Owns: how a run's id becomes a hash tag, and back.
Must never: give two runs one key, or the keys of one run two hash tags.
Invariant: whatever a run is called, nothing of its name is "{" or "}" in a key.
"""

from __future__ import annotations

from urllib.parse import quote

from indelible.stores.base import INBOX


class Keys:
    """The keys below a prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.order = f"{prefix}:{{index}}:order"
        """A sorted set of run ids by when they were last written, and the counter that numbers the writes."""
        self.count = f"{prefix}:{{index}}:count"

    def of(self, run_id: str) -> tuple[str, str]:
        """The hash and the log of a run or an inbox."""
        if run_id.endswith(INBOX):
            tag = self._tag(run_id[: -len(INBOX)])
            return f"{tag}:inbox", f"{tag}:inbox-log"
        tag = self._tag(run_id)
        return f"{tag}:run", f"{tag}:log"

    def snap(self, run_id: str) -> str:
        """The snapshots of a run."""
        return f"{self._tag(run_id)}:snap"

    def _tag(self, run_id: str) -> str:
        return f"{self._prefix}:{{{quote(run_id, safe='', errors='surrogatepass')}}}"


def packed(text: str) -> bytes:
    """A text as it is stored."""
    return text.encode("utf-8", "surrogatepass")


def plain(data: bytes) -> str:
    """The text that was stored."""
    return data.decode("utf-8", "surrogatepass")
