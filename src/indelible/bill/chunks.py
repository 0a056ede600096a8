"""A state kept by its content: each item once under its digest, and a list of digests for each loop.

Owns: what an item is, and the manifest.
Must never: write an item whose digest is there already.
Invariant: the newest manifest and the items say all of the state.

An item is an element of a list, or an entry of an object, that stands in a field of the state; any other field is one
item. The manifest is JSON: for each field the digest, or the list or object of the digests, of its items.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from time import process_time
from typing import Any

from indelible.bill.costs import Footprint, Sizes
from indelible.bill.course import Encoded
from indelible.bill.document import dump, keys_of

DIGEST_BYTES = 16


class Chunks:
    """What was written so far."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._manifest: dict[str, Any] | None = None
        self._items: list[int] = []
        self._manifests: list[int] = []
        self._saved: list[int] = []
        self._cpu_s = 0.0

    def take(self, number: int, patch: Iterable[dict[str, Any]], state: dict[str, Any]) -> None:
        """Write what is new in `state`, the one after loop `number`, to which `patch` has led."""
        began = process_time()
        if self._manifest is None:
            self._manifest = {}
            touched: dict[str, int | None] = dict.fromkeys(state, None)
        else:
            touched = _touched(patch)
        for name, added in touched.items():
            self._file(self._manifest, name, added, state)
        self._manifests.append(len(dump({name: self._manifest[name] for name in state})))
        self._saved.append(number)
        self._cpu_s += process_time() - began

    def encoded(self, strategy: str) -> Encoded:
        """All of it: each item is an object that stays, each manifest replaces the one before."""
        footprint = Footprint(
            Sizes.of(self._items + self._manifests),
            kept=Sizes.of(self._items + self._manifests[-1:]),
            replaced=Sizes.of(self._manifests[:-1]),
        )
        return Encoded(strategy, footprint, self._cpu_s, tuple(self._saved))

    def _file(self, manifest: dict[str, Any], name: str, added: int | None, state: dict[str, Any]) -> None:
        """Bring one field of the manifest up to date; `added` new items at the end of a list are all that changed."""
        if name not in state:
            manifest.pop(name, None)
            return
        value = state[name]
        if added is not None and isinstance(value, list) and isinstance(manifest.get(name), list):
            manifest[name] += [self._digest(item) for item in value[len(value) - added :]]
        elif isinstance(value, list):
            manifest[name] = [self._digest(item) for item in value]
        elif isinstance(value, dict):
            manifest[name] = {key: self._digest(item) for key, item in value.items()}
        else:
            manifest[name] = self._digest(value)

    def _digest(self, item: Any) -> str:
        text = dump(item)
        digest = blake2b(text, digest_size=DIGEST_BYTES).hexdigest()
        if digest not in self._known:
            self._known.add(digest)
            self._items.append(len(text))
        return digest


def _touched(patch: Iterable[dict[str, Any]]) -> dict[str, int | None]:
    """The fields that a patch changes, and by how many items at the end if by nothing else."""
    touched: dict[str, int | None] = {}
    for operation in patch:
        name, *rest = keys_of(operation["path"])
        so_far = touched.get(name, 0)
        touched[name] = so_far + 1 if rest == ["-"] and so_far is not None else None
    return touched
