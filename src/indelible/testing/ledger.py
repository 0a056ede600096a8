"""The other side, for agents that really die: a file in which each deed is one synced line.

Owns: what a deed leaves behind in the world, and the way to look it up.
Must never: lose a line to the death of the process that wrote it, or know a journal.
Invariant: a line is written as a whole or not at all, and never changed.
"""

from __future__ import annotations

import json
import os

from indelible.testing.world import Deed


class Ledger:
    """Deeds in the file at `path`, which is made when the first one is done. For any number of processes.

    What a deed returns follows from what it is, so that a probe, or a person who looks here, can tell it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def perform(self, kind: str, what: str, *, key: str = "", usd: float = 0.0) -> str:
        """Do a deed of that kind; `what` says which one. It is on the disk when this returns its receipt."""
        return self._write(kind, what, key, usd, False)

    def upsert(self, kind: str, what: str, *, key: str) -> str:
        """As `perform`, but with a key that is known already it does nothing, as an idempotent service would."""
        return self._write(kind, what, key, 0.0, self.find(kind, key) is not None)

    def find(self, kind: str, key: str) -> Deed | None:
        """The deed that was done under that key; changes nothing."""
        return next((deed for deed in self.read() if (deed.kind, deed.key) == (kind, key)), None)

    def read(self) -> list[Deed]:
        """Every deed, oldest first."""
        try:
            with open(self.path, encoding="utf-8") as file:
                return [Deed(*json.loads(line)) for line in file]
        except FileNotFoundError:
            return []

    def _write(self, kind: str, what: str, key: str, usd: float, repeat: bool) -> str:
        line = json.dumps(Deed(kind, what, key, usd, os.getpid(), repeat)) + "\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
            os.fsync(file)
        finally:
            os.close(file)
        return receipt(kind, what)


def receipt(kind: str, what: str) -> str:
    """What a deed returns."""
    return f"{kind} {what}: done"
