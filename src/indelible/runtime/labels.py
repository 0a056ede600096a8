"""What a listing shows of a run without reading its journal.

Owns: the content of a label's `about`.
Must never: be needed to resume a run; it is a summary, written with each batch.
Invariant: a label tells of the record exactly as of the batch it was written with.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from indelible.core.codec import unpack
from indelible.core.record import Record
from indelible.stores.base import Label

MAX_TEXT = 200


class About(msgspec.Struct, array_like=True):
    """The opaque part of a label."""

    objective: str = ""
    version: int = 0
    cycle: int = 0
    kind: str = ""
    question: str = ""
    in_doubt: int = 0
    spent: float = 0.0
    budget: float | None = None
    failed_tasks: int = 0
    moved_to: str = ""
    """Where the run lives, if it was moved."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(About)


def label_of(record: Record) -> Label:
    """The label of a run as it stands."""
    wait = record.open_wait
    about = About(_text(record.objective), record.version, record.committed, in_doubt=len(record.doubts),
                  spent=record.usage.usd, budget=record.budget, failed_tasks=record.failed_tasks,
                  moved_to=record.moved_to)  # fmt: skip
    if wait is not None:
        about.kind, about.question = wait.kind, wait.question[:MAX_TEXT]
    wake_at = wait.wake_at or None if wait is not None else None
    return Label(record.agent, record.status, wake_at, _encoder.encode(about))


def about_of(label: Label | None) -> About:
    """What a label's opaque part says; empty if there is none or it cannot be read."""
    if label is None:
        return About()
    try:
        return _decoder.decode(label.about)
    except (msgspec.DecodeError, TypeError):  # TypeError: damage has made it something else than bytes
        return About()


@lru_cache(maxsize=1024)
def _text(packed: bytes) -> str:
    stored: Any = unpack(packed) if packed else ""
    text = stored if isinstance(stored, str) else str(stored)
    return text[:MAX_TEXT].encode("utf-8", "replace").decode()
