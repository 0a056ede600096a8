"""Power loss on a SQLite store: which bytes of its files are still there afterwards.

Owns: the model of a disk with a volatile cache, and what each write may leave behind.
Must never: lose a byte that was synced, or keep more order among unsynced writes than SQLite asks for.
Invariant: an image is made from what was durable and from writes that were under way, nothing else.

The model is the one SQLite is written for: writes between two syncs reach the disk in any
order, or not, or in part, sector by sector; the size of a file and the names in a folder
have a cache of their own. A folder is synced with the first sync of a new log or journal,
as SQLite's VFS does, and by a deletion that asks for it.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import apsw

from indelible.core import events as ev
from indelible.core.codec import pack
from indelible.drive.clock import Random, SystemClock, seeded
from indelible.errors import IndelibleError, StoreUnavailable
from indelible.runtime.runstore import RunStore
from indelible.stores.base import INBOX
from indelible.stores.sqlite import SqliteStore
from indelible.testing import checkers
from indelible.testing.vfs import Disk, Operation, raised
from indelible.testing.witness import Witness
from indelible.testing.world import Deed

_SYNCS_FOLDER = (
    apsw.SQLITE_OPEN_WAL
    | apsw.SQLITE_OPEN_MAIN_JOURNAL
    | apsw.SQLITE_OPEN_SUPER_JOURNAL
)  # fmt: skip
_CHANGES = frozenset({Operation.WRITE, Operation.TRUNCATE, Operation.SYNC, Operation.DELETE})


class Fate(StrEnum):
    """What becomes of everything that was not synced."""

    LOST = "lost"
    KEPT = "kept"
    TORN = "torn"
    """Each write by itself is lost, kept, or cut into sectors that are old, new or rubbish."""


class _Change(NamedTuple):
    """A write of `data` at `offset`, or without data a truncation to `offset`."""

    offset: int
    data: bytes | None


@dataclass
class _Inode:
    durable: bytes = b""
    changes: list[_Change] = field(default_factory=list)
    names_folder: bool = False
    """True until its first sync, which makes its name durable as well."""


class CutDisk(Disk):
    """A disk whose power goes at the start of the sync of that number, counted from 1; then every operation fails.

    With `every_change` each write, truncation and deletion is counted as well. `fails_at`: the
    sync of that number fails, and as some systems do, the disk forgets what it had to write
    and lets later syncs succeed.
    """

    def __init__(
        self,
        cut_at: int,
        *,
        every_change: bool = False,
        fails_at: int = 0,
        sector: int = 4096,
        powersafe: bool = True,
    ) -> None:
        super().__init__(sector=sector, powersafe=powersafe)
        self.cut_at = cut_at
        self._fails_at = fails_at
        self.is_off = False
        self.has_failed = False
        self.counted = 0
        self._counts = _CHANGES if every_change else frozenset({Operation.SYNC})
        self._names: dict[str, _Inode | None] = {}
        self._durable_names: dict[str, _Inode | None] = {}
        self._moves: list[tuple[str, _Inode | None]] = []

    def meet(self, operation: Operation, path: str) -> None:
        """Count, and cut the power when the time has come."""
        if not self.is_off and operation in self._counts:
            self.counted += 1
            self.is_off = self.counted == self.cut_at
        if self.is_off:
            raise raised(apsw.IOError, apsw.SQLITE_IOERR, "the power is off")
        if operation is Operation.SYNC and self.counted == self._fails_at:
            self.has_failed = True
            self._inode(path).changes = []
            raise raised(apsw.IOError, apsw.SQLITE_IOERR_FSYNC, "the sync failed")

    def opened(self, path: str, existed: bool, flags: int) -> None:
        """A file that was there before is durable; a new one has neither content nor a durable name."""
        if self._names.get(path) is not None:
            return
        if existed:
            with open(path, "rb") as file:
                inode = _Inode(file.read())
            self._names[path] = self._durable_names[path] = inode
        else:
            inode = _Inode(names_folder=bool(flags & _SYNCS_FOLDER))
            self._bind(path, inode)

    def wrote(self, path: str, offset: int, data: bytes) -> None:
        """Into the cache."""
        self._inode(path).changes.append(_Change(offset, data))

    def truncated(self, path: str, size: int) -> None:
        """Into the cache."""
        self._inode(path).changes.append(_Change(size, None))

    def has_synced(self, path: str) -> None:
        """Out of the cache."""
        inode = self._inode(path)
        inode.durable, inode.changes = _applied(inode), []
        if inode.names_folder:
            inode.names_folder = False
            self._sync_names(os.path.dirname(path))

    def deleted(self, path: str, durably: bool) -> None:
        """The name is gone from the cache of the folder, or for good."""
        self._bind(path, None)
        if durably:
            self._sync_names(os.path.dirname(path))

    def image(self, folder: str, fate: Fate, seed: int = 0) -> None:
        """Write into `folder` the files that are there when the power comes back. Repeatable from the seed."""
        rng = seeded(f"{self.counted} {fate} {seed}".encode())
        for path in sorted(self._names):
            inode = self._bound(path, fate, rng)
            if inode is None:
                continue
            if fate is Fate.LOST:
                content = inode.durable
            elif fate is Fate.KEPT:
                content = _applied(inode)
            else:
                content = _torn(inode, self.sector, self.powersafe, rng)
            copy = os.path.join(folder, os.path.basename(path))
            with open(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(content)

    def _bound(self, path: str, fate: Fate, rng: Random) -> _Inode | None:
        bindings = [self._durable_names.get(path), *(inode for name, inode in self._moves if name == path)]
        if fate is Fate.TORN:
            return bindings[rng.randrange(len(bindings))]
        return bindings[0] if fate is Fate.LOST else bindings[-1]

    def _inode(self, path: str) -> _Inode:
        inode = self._names[path]
        assert inode is not None, f"{path} is used after it was deleted"
        return inode

    def _bind(self, path: str, inode: _Inode | None) -> None:
        self._names[path] = inode
        self._moves.append((path, inode))

    def _sync_names(self, folder: str) -> None:
        left = []
        for path, inode in self._moves:
            if os.path.dirname(path) == folder:
                self._durable_names[path] = inode
            else:
                left.append((path, inode))
        self._moves = left


def _applied(inode: _Inode) -> bytes:
    content = bytearray(inode.durable)
    for offset, data in inode.changes:
        if data is None:
            del content[offset:]
        else:
            _put(content, offset, data)
    return bytes(content)


def _torn(inode: _Inode, sector: int, powersafe: bool, rng: Random) -> bytes:
    content = bytearray(inode.durable)
    for offset, data in inode.changes:
        chance = rng.randrange(3)
        if chance == 0:
            continue
        if data is None:
            del content[offset:]
        elif chance == 1:
            _put(content, offset, data)
        else:
            _tear(content, offset, data, sector, powersafe, rng)
    grown = len(content) - len(inode.durable)
    if grown > 0 and rng.randrange(2):
        del content[len(inode.durable) + rng.randrange(grown + 1) :]
    return bytes(content)


def _tear(content: bytearray, offset: int, data: bytes, sector: int, powersafe: bool, rng: Random) -> None:
    """Of the sectors that a write touches some are as before, some as written, and some hold rubbish."""
    end = offset + len(data)
    for start in range(offset - offset % sector, end, sector):
        first, last = max(start, offset), min(start + sector, end)
        chance = rng.randrange(3)
        if chance == 1:
            _put(content, first, data[first - offset : last - offset])
        elif chance == 2 and powersafe:
            _put(content, first, rng.randbytes(last - first))
        elif chance == 2:
            _put(content, start, rng.randbytes(sector))


def _put(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


@dataclass
class Outside:
    """What lies outside the machine that loses its power: it remembers everything."""

    ledger: list[Deed] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    """Receipts that irreversible actions returned to the agent."""
    premature: list[str] = field(default_factory=list)
    """Deeds that began before their intent was acknowledged."""


class Hasty(SystemClock):
    """The machine's clock, but nobody ever waits."""

    def sleep(self, seconds: float) -> None:
        """Return at once."""

    async def asleep(self, seconds: float) -> None:
        """Return at once."""


Program = Callable[[RunStore, Outside], object]
"""Starts or resumes runs, answers what they ask, and returns when all have ended."""


class Model(NamedTuple):
    """Which disk, which cuts and which remains of them are tried.

    `torn`: so many seeds for each cut; `stride`: every n-th cut; `failed`: a sync so many before the cut fails.
    """

    durability: str = "full"
    every_change: bool = False
    sector: int = 4096
    powersafe: bool = True
    torn: int = 2
    stride: int = 1
    failed: int = 0


@dataclass
class Report:
    """What was tried, and what was wrong. `losses` counts acknowledged writes that an image lacked."""

    cuts: int = 0
    images: int = 0
    losses: int = 0
    lossy_images: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.cuts} power cuts, {self.images} images, {self.losses} acknowledged writes lost"


def cut_everywhere(program: Program, folder: str, model: Model = Model()) -> Report:  # noqa: B008
    """Run `program` on a new store in `folder` again and again, cutting the power one sync later each time.

    Ends when it gets through. Every image of every cut is opened by a new store on a disk
    without faults, compared with what had been acknowledged, and the program is run on it to its end. With
    `durability="os"` acknowledged writes may be missing, but only all those after some moment.
    """
    report = Report()
    wanted = _Expected(program, folder)
    at = 1
    while True:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            disk = CutDisk(
                at,
                every_change=model.every_change,
                fails_at=at - model.failed if model.failed else 0,
                sector=model.sector,
                powersafe=model.powersafe,
            )
            with disk:
                outside, witness = _run_until_dark(program, os.path.join(place, "agent.db"), disk, model)
            if not (disk.is_off or disk.has_failed):
                return report
            report.cuts += 1
            fates = [(Fate.LOST, 0), (Fate.KEPT, 0), *((Fate.TORN, seed) for seed in range(model.torn))]
            for fate, seed in fates:
                with tempfile.TemporaryDirectory(dir=folder) as image:
                    disk.image(image, fate, seed)
                    report.images += 1
                    where = f"cut {at}, {fate} (seed {seed})"
                    judged = _Judged(report, where, os.path.join(image, "agent.db"), model)
                    judged.judge(program, copy.deepcopy(outside), witness, wanted)
        at += model.stride


def _run_until_dark(program: Program, path: str, disk: CutDisk, model: Model) -> tuple[Outside, Witness | None]:
    outside, witness = Outside(), None
    try:
        store = SqliteStore(path, durability=model.durability, vfs=disk.name)
        witness = Witness(store)
        with RunStore(witness, Hasty()) as runs:
            program(runs, outside)
    except StoreUnavailable:
        if not (disk.is_off or disk.has_failed):
            raise
    return outside, witness


class _Expected:
    """How the program ends when nothing goes wrong."""

    def __init__(self, program: Program, folder: str) -> None:
        self.outside = Outside()
        with tempfile.TemporaryDirectory(dir=folder) as place:
            store = SqliteStore(os.path.join(place, "agent.db"))
            with RunStore(store, Hasty()) as runs:
                program(runs, self.outside)
                self.ends = {e.run_id: runs.recover(e.run_id).record for e in runs.entries()}


class _Judged:
    def __init__(self, report: Report, where: str, path: str, model: Model) -> None:
        self._report, self._where, self._path, self._model = report, where, path, model

    def judge(self, program: Program, outside: Outside, witness: Witness | None, wanted: _Expected) -> None:
        try:
            with Disk() as disk, RunStore(self._open(disk), Hasty()) as runs:
                if witness is not None:
                    self._compare(runs, outside, witness)
                program(runs, outside)
                self._compare_end(runs, outside, wanted)
        except IndelibleError as error:
            self._note([f"{type(error).__name__}: {error.what}"])

    def _open(self, disk: Disk) -> SqliteStore:
        return SqliteStore(self._path, durability=self._model.durability, vfs=disk.name)

    def _compare(self, runs: RunStore, outside: Outside, witness: Witness) -> None:
        self._note(witness.invented(runs.store))
        found = witness.found_in(runs.store)
        lost = found.count(False)
        self._report.losses += lost
        self._report.lossy_images += lost > 0
        if self._model.durability == "full":
            self._note(witness.forgotten(runs.store))
            self._note(_unseen(runs, outside))
        elif any(found[found.index(False) :] if lost else ()):
            self._note(["lost: a write in the middle, though a later one is there"])
        for run_id in witness.offered:
            if not run_id.endswith(INBOX) and any(runs.store.read(run_id)):
                self._note(runs.recover(run_id).notices)

    def _compare_end(self, runs: RunStore, outside: Outside, wanted: _Expected) -> None:
        for run_id, end in wanted.ends.items():
            record = runs.recover(run_id).record
            self._note(checkers.same_state(record.doc, end.doc, frozenset()))
            self._note(checkers.conserved(record.doc))
            if (record.status, record.result) != (end.status, end.result):
                self._note([f"{run_id} {record.status} with another result than without the cut"])
        self._note(f"{deed} began before its intent was acknowledged" for deed in outside.premature)
        done = Counter((deed.kind, deed.what) for deed in outside.ledger)
        for deed in {(deed.kind, deed.what) for deed in wanted.outside.ledger} | set(done):
            # An intent that power loss may take cannot keep a deed from being done again.
            if done[deed] < 1 or (done[deed] > 1 and self._model.durability == "full"):
                self._note([f"{deed[0]} {deed[1]} was done {done[deed]} times"])

    def _note(self, problems: Iterable[str]) -> None:
        self._report.problems += [f"{self._where}: {problem}" for problem in problems]


def _unseen(runs: RunStore, outside: Outside) -> Iterator[str]:
    completed = {
        event.result
        for entry in runs.entries()
        for _, event in runs.events(entry.run_id)
        if isinstance(event, ev.ActionCompleted)
    }
    return (f"lost: the agent was told: {seen}" for seen in outside.seen if pack(seen) not in completed)
