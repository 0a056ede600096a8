"""The few requests by which a store uses object storage, and what their failures mean.

Owns: the `Bucket` protocol, its form over `obstore`, and the translation of errors.
Must never: name a key or a password in an error; try for long: whoever waits sits above the store.
Invariant: `create` puts an object only where there is none; if it fails otherwise, its fate is unknown.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from indelible.errors import IndelibleError, Misuse, StoreUnavailable

__all__ = ["Bucket", "Found", "Item", "Remote"]

PER_LISTING = 1000
"""How many names one request lists, on S3 and its like."""


class Found(NamedTuple):
    """An object, and when it was written, in epoch seconds on the server's clock."""

    data: bytes
    modified: float


class Item(NamedTuple):
    """An object as a listing shows it; `tag` changes with its content."""

    path: str
    modified: float
    size: int
    tag: str


class Bucket(Protocol):
    """Objects by path. Safe from any thread; each method raises `StoreUnavailable` or `Misuse`."""

    where: str
    """The bucket, in words for errors."""
    grain_s: float
    """How coarse `modified` is, in seconds: the true time is less than that above it."""

    def create(self, path: str, data: bytes) -> bool:
        """Put an object where there is none; False, and nothing is changed, if there is one. Durable."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Put an object in place of what is there. Durable."""
        ...

    def get(self, path: str) -> Found | None:
        """An object, or None."""
        ...

    def modified(self, path: str) -> float | None:
        """When an object was written, or None."""
        ...

    def list(self, prefix: str, after: str = "") -> Iterator[Sequence[Item]]:
        """All objects below a prefix, which ends with "/" or is "", behind the path `after`, in order of their paths;
        one request for each 1,000."""
        ...

    def remove(self, paths: Sequence[str]) -> None:
        """Remove objects; those that are not there are none the less gone."""
        ...

    def keep(self, path: str) -> None:
        """Make durable what another process has put there, if it might not be."""
        ...

    def time(self) -> float | None:
        """The time now on the clock that `modified` goes by, if it can be learned without writing anything there."""
        ...


_used_by: int | None = None
"""The process in which `obstore` has started its threads, which a fork does not take along."""


class Remote:
    """A `Bucket` in a store of `obstore`. It cannot be used in a fork of a process that has used one: that would wait
    for ever, and is refused with `Misuse`."""

    grain_s = 1.0

    def __init__(self, store: Any, where: str) -> None:
        import obstore
        from obstore import exceptions

        self.where = where
        self._store = store
        self._obstore = obstore
        self._exists = exceptions.AlreadyExistsError
        self._refused = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
        self._failed = (exceptions.BaseError, OSError, ValueError)

    def create(self, path: str, data: bytes) -> bool:
        """See `Bucket.create`."""
        self._check_process()
        try:
            self._obstore.put(self._store, path, data, mode="create", use_multipart=False)
        except self._exists:
            return False
        except self._failed as error:
            raise self._translated(error, "written") from error
        return True

    def put(self, path: str, data: bytes) -> None:
        """See `Bucket.put`."""
        self._check_process()
        try:
            self._obstore.put(self._store, path, data, use_multipart=False)
        except self._failed as error:
            raise self._translated(error, "written") from error

    def get(self, path: str) -> Found | None:
        """See `Bucket.get`."""
        self._check_process()
        try:
            got = self._obstore.get(self._store, path)
            return Found(got.bytes().to_bytes(), got.meta["last_modified"].timestamp())
        except FileNotFoundError as error:
            if _lacks_bucket(error):
                raise self._translated(error, "read") from error
            return None
        except self._failed as error:
            raise self._translated(error, "read") from error

    def modified(self, path: str) -> float | None:
        """See `Bucket.modified`."""
        self._check_process()
        try:
            return float(self._obstore.head(self._store, path)["last_modified"].timestamp())
        except FileNotFoundError:
            return None
        except self._failed as error:
            raise self._translated(error, "read") from error

    def list(self, prefix: str, after: str = "") -> Iterator[Sequence[Item]]:
        """See `Bucket.list`."""
        self._check_process()
        try:
            chunks = self._obstore.list(
                self._store, prefix.rstrip("/") or None, offset=after or None, chunk_size=PER_LISTING
            )
            for chunk in chunks:
                yield [
                    Item(meta["path"], meta["last_modified"].timestamp(), meta["size"], meta["e_tag"] or "")
                    for meta in chunk
                ]
        except self._failed as error:
            if isinstance(error, FileNotFoundError) and not _lacks_bucket(error):
                return
            raise self._translated(error, "listed") from error

    def remove(self, paths: Sequence[str]) -> None:
        """See `Bucket.remove`."""
        self._check_process()
        for at in range(0, len(paths), PER_LISTING):
            try:
                self._obstore.delete(self._store, list(paths[at : at + PER_LISTING]))
            except FileNotFoundError:
                for path in paths[at : at + PER_LISTING]:
                    self._remove_one(path)
            except self._failed as error:
                raise self._translated(error, "written") from error

    def keep(self, path: str) -> None:
        """See `Bucket.keep`: what a server shows, it keeps."""

    def time(self) -> float | None:
        """See `Bucket.time`."""
        return None

    def _check_process(self) -> None:
        global _used_by
        pid = os.getpid()
        if _used_by is None:
            _used_by = pid
        elif _used_by != pid:
            raise Misuse(
                f"{self.where} cannot be used in a fork of a process that has used object storage",
                hint='multiprocessing.get_context("spawn"), or open no such store before the fork',
                store=self.where,
            )

    def _remove_one(self, path: str) -> None:
        try:
            self._obstore.delete(self._store, path)
        except FileNotFoundError:
            return
        except self._failed as error:
            raise self._translated(error, "written") from error

    def _translated(self, error: Exception, done: str) -> IndelibleError:
        text = str(error)
        if isinstance(error, self._refused) or any(word in text for word in _KEYS):
            return Misuse(
                f"{self.where} cannot be {done} with these credentials: {_reason(text) or 'access denied'}",
                hint="export AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=...   # or the like of your provider",
                store=self.where,
            )
        if _lacks_bucket(error):
            return Misuse(
                f"{self.where} cannot be {done}: there is no such bucket",
                hint="make the bucket, or correct its name in the URL",
                store=self.where,
            )
        reason = _reason(text) or _shortened(text)
        return StoreUnavailable(
            f"{self.where} cannot be {done} just now: {reason}",
            hint="see that the server is up, and that endpoint= and region= of the URL are right",
            store=self.where,
        )


_KEYS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied", "InvalidToken", "ExpiredToken",
         "AuthenticationFailed")  # fmt: skip


_SIGNS = {
    "ConnectionRefused": "connection refused",
    "dns error": "the name of the server is not known",
    "TimedOut": "no answer in time",
    "ertificate": "its certificate is not trusted",
    "InvalidContentType": "it does not speak TLS",
}


def _lacks_bucket(error: Exception) -> bool:
    text = str(error)
    return "NoSuchBucket" in text or "ContainerNotFound" in text or "specified bucket does not exist" in text


def _reason(text: str) -> str:
    """The code of an answer in XML: <Code>SlowDown</Code>."""
    _, found, rest = text.partition("<Code>")
    code = rest.partition("</Code>")[0]
    return code if found and code.isalnum() else ""


def _shortened(text: str) -> str:
    """What went wrong on the way, without the address, which may hold a signature."""
    for sign, words in _SIGNS.items():
        if sign in text:
            return words
    return " ".join(word.partition("?")[0] for word in text.split("\n", 1)[0].rpartition(" - ")[2].split())[:200]
