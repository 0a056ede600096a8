"""A local folder as object storage: one file for each object.

Owns: the files, their permissions, and when they are synced.
Must never: show an object that is not whole, or, if it is to be durable, that is not on the disk yet.
Invariant: files are 0600 and folders 0700; what a name leads to is complete.

An object is written to a file beside its place, synced, and then linked there, which fails if the name is taken: so
put-if-absent holds between processes, also on a network file system, and a power cut leaves the whole object or none.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from indelible.errors import IndelibleError, StoreUnavailable
from indelible.stores.objects_bucket import Found, Item

_UNFINISHED = ".unfinished-"
_ABANDONED_S = 3600.0


class Folder:
    """A `Bucket` in the folder `root`. With `sync` every change is on the disk when a method returns."""

    grain_s = 0.0

    def __init__(self, root: str, *, sync: bool) -> None:
        self.where = root
        self.root = root
        self.sync = sync

    def create(self, path: str, data: bytes) -> bool:
        """See `Bucket.create`."""
        place = self._place(path)
        try:
            staged = self._staged(place, data)
            try:
                os.link(staged, place)
            except FileExistsError:
                return False
            finally:
                os.unlink(staged)
            self._sync_folder(os.path.dirname(place))
        except OSError as error:
            raise self._translated(error, place) from error
        return True

    def put(self, path: str, data: bytes) -> None:
        """See `Bucket.put`."""
        place = self._place(path)
        try:
            staged = self._staged(place, data)
            try:
                os.replace(staged, place)
            except BaseException:
                os.unlink(staged)
                raise
            self._sync_folder(os.path.dirname(place))
        except OSError as error:
            raise self._translated(error, place) from error

    def get(self, path: str) -> Found | None:
        """See `Bucket.get`."""
        try:
            with open(self._place(path), "rb") as file:
                return Found(file.read(), os.fstat(file.fileno()).st_mtime)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._translated(error, path) from error

    def modified(self, path: str) -> float | None:
        """See `Bucket.modified`."""
        try:
            return os.stat(self._place(path)).st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._translated(error, path) from error

    def list(self, prefix: str, after: str = "") -> Iterator[Sequence[Item]]:
        """See `Bucket.list`; in one piece."""
        try:
            found = sorted(self._walk(prefix.rstrip("/"), after))
        except OSError as error:
            raise self._translated(error, prefix) from error
        if found:
            yield found

    def remove(self, paths: Sequence[str]) -> None:
        """See `Bucket.remove`."""
        try:
            for path in paths:
                with suppress(FileNotFoundError):
                    os.unlink(self._place(path))
            for folder in {os.path.dirname(self._place(path)) for path in paths}:
                with suppress(FileNotFoundError):
                    self._sync_folder(folder)
        except OSError as error:
            raise self._translated(error, paths[0]) from error

    def keep(self, path: str) -> None:
        """See `Bucket.keep`: a process that was killed may have linked a file, and not synced its folder."""
        with suppress(FileNotFoundError):
            self._sync_folder(os.path.dirname(self._place(path)))

    def time(self) -> float | None:
        """See `Bucket.time`: a file made elsewhere bears the same time, unless the folder is a server's."""
        with tempfile.TemporaryFile() as file:
            return os.fstat(file.fileno()).st_mtime

    def readable_by_others(self) -> Iterator[str]:
        """The files and folders that others may open; paths below the root."""
        for folder, _, names in os.walk(self.root):
            for place in (folder, *(os.path.join(folder, name) for name in names)):
                with suppress(FileNotFoundError):
                    if os.stat(place).st_mode & 0o077:
                        yield os.path.relpath(place, self.root)

    def sweep(self, now: float) -> int:
        """Remove what processes that were killed have left unfinished; the bytes that gives back."""
        freed = 0
        for folder, _, names in os.walk(self.root):
            for name in names:
                if name.startswith(_UNFINISHED):
                    place = os.path.join(folder, name)
                    with suppress(FileNotFoundError):
                        found = os.stat(place)
                        if found.st_mtime < now - _ABANDONED_S:
                            os.unlink(place)
                            freed += found.st_size
        return freed

    def _place(self, path: str) -> str:
        return os.path.join(self.root, path)

    def _staged(self, place: str, data: bytes) -> str:
        """A file beside its place with that content, as durable as it is to be."""
        folder = os.path.dirname(place)
        try:
            handle, staged = tempfile.mkstemp(prefix=_UNFINISHED, dir=folder)  # 0600
        except FileNotFoundError:
            self._make_folder(folder)
            handle, staged = tempfile.mkstemp(prefix=_UNFINISHED, dir=folder)
        try:
            with open(handle, "wb") as file:
                file.write(data)
                file.flush()
                if self.sync:
                    os.fsync(file.fileno())
        except BaseException:
            os.unlink(staged)
            raise
        return staged

    def _make_folder(self, folder: str) -> None:
        missing: list[str] = []
        while not os.path.isdir(folder) and len(folder) > len(self.root):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for new in reversed(missing):
            with suppress(FileExistsError):
                os.mkdir(new, 0o700)
            self._sync_folder(os.path.dirname(new))

    def _sync_folder(self, folder: str) -> None:
        if not self.sync:
            return
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _walk(self, prefix: str, after: str) -> Iterator[Item]:
        """Whatever lies below, except what is unfinished. A folder that goes meanwhile holds nothing."""
        try:
            entries = list(os.scandir(self._place(prefix)))
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            path = f"{prefix}/{entry.name}" if prefix else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(path, after)
            elif path > after and not entry.name.startswith(_UNFINISHED):
                with suppress(FileNotFoundError):
                    found = entry.stat()
                    yield Item(path, found.st_mtime, found.st_size, f"{found.st_ino}-{found.st_mtime_ns}")

    def _translated(self, error: OSError, place: str) -> IndelibleError:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = os.strerror(error.errno) if error.errno else type(error).__name__
        hint = f"df -h {Path(self.root)}" if full else f"ls -ld {Path(self.root)}   # it must be writable for this user"
        return StoreUnavailable(
            f"the folder {self.root} cannot be used: {what}", hint=hint, store=self.root,
            path=os.path.relpath(self._place(place), self.root),
        )  # fmt: skip
