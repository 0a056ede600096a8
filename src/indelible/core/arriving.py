"""A run on its way into a store: the mark that keeps everybody from taking it up before all of it is there.

Owns: the mark, which stands where the store keeps the run's newest snapshot, and what is said of a run that is
elsewhere.
Must never: be passed over by whoever is to go on with a run: what lies beside a mark is the beginning of a journal
whose end tells that the run has ended, or is somewhere else.
Invariant: a snapshot is never taken for a mark, nor a mark for a snapshot; an older mark below a snapshot means
nothing.
"""

from __future__ import annotations

from shlex import quote
from typing import NamedTuple

import msgspec

from indelible.core.record import MOVED, Record
from indelible.errors import RunMoved

ARRIVING = "arriving"
"""The status in the label of a run that is on its way here."""
BEGINS_LATER = b"What stands before the snapshot that this journal begins at."
"""The batch that takes the place of those, until the journal is told to begin there."""

_MAGIC = b"im"
_FORMAT = 1


class Mark(NamedTuple):
    """Where a run comes from, and up to which event."""

    origin: str
    upto: int


def mark(origin: str, upto: int) -> bytes:
    """The mark of a run that comes from there, to be put as a snapshot at `upto`."""
    return _MAGIC + bytes((_FORMAT,)) + msgspec.msgpack.encode((origin, upto))


def marked(data: bytes) -> Mark | None:
    """The mark that these bytes are; None if they are none. One that cannot be read is a mark all the same."""
    if data[:2] != _MAGIC:
        return None
    try:
        return Mark(*msgspec.msgpack.decode(data[3:], type=tuple[str, int]))
    except msgspec.DecodeError:
        return Mark("", 0)


def must_be_here(run_id: str, data: bytes) -> None:
    """Raise `RunMoved` if that newest snapshot is a mark."""
    found = marked(data)
    if found is None:
        return
    origin = found.origin or "another store"
    raise RunMoved(
        f"run {run_id!r} is being brought here from {origin}, and not all of it has arrived",
        hint=f"indelible copy {quote(found.origin or 'SRC')} DST --run {quote(run_id)}   # DST is this store",
        run=run_id,
        origin=found.origin,
    )


def must_not_be_elsewhere(record: Record, url: str = "") -> None:
    """Raise `RunMoved` if the run lives somewhere else, naming the command that finishes a move. `url`: this store."""
    if record.status != MOVED:
        return
    run_id, to = record.run_id, record.moved_to
    what = f"run {run_id!r} was moved to {to}"
    hint = f"indelible copy {quote(url or 'HERE')} {quote(to)} --run {quote(run_id)}   # if it is not there"
    raise RunMoved(what, hint=hint, run=run_id, to=to)
