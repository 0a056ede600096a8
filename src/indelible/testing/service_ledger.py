"""What the fake service has done: mails, payments and refunds, and the keys they came with.

Owns: the ledger file, one synced line of JSON per deed, and the rule for idempotency keys.
Must never: answer for a deed whose line is not on the disk, or change a line.
Invariant: the file alone holds everything; a service that is started on it goes on as if it had never stopped.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from indelible.testing.world import Deed

KINDS = ("mails", "payments", "refunds")
"""The kinds of deed; also the paths under which they are asked for."""


class Done(NamedTuple):
    """One deed as it stands in the ledger.

    kind: `mails`, `payments` or `refunds`.
    id: made from the kind, the body without its `message_id`, and how often that came before; so the same deeds have
        the same ids, in whatever order they were done.
    key: the idempotency key of the request, "" without one.
    body: the request's JSON.
    """

    kind: str
    id: str
    key: str
    body: dict[str, Any]

    @property
    def answer(self) -> dict[str, Any]:
        """What the service answered, and answers again to the same key."""
        return {**self.body, "id": self.id, "key": self.key}

    def as_deed(self) -> Deed:
        """The deed in the words of the checkers; a payment's `usd` is its amount in cents by 100."""
        usd = self.body["amount"] / 100 if self.kind == "payments" else 0.0
        return Deed(self.kind, _canonical(self.body), self.key, usd, 0, False)


class Refused(NamedTuple):
    """Why nothing was done: an HTTP status and a sentence."""

    status: int
    why: str


class ServiceLedger:
    """The ledger at `path`, held by one process at a time. Called from any thread."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._mutex = threading.Lock()
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        self._cut_torn_tail()
        self._done = read_ledger(path)
        self._keys = {(done.kind, done.key): done for done in self._done if done.key}
        self._nth = Counter((done.kind, _digest(done.body)) for done in self._done)

    def apply(self, kind: str, key: str, body: dict[str, Any]) -> tuple[Done, bool] | Refused:
        """Do the deed, and say whether it is a repeat of one with that key, for which nothing was done.

        The same key with another body is refused (422). Without a key every request is a deed of its own. What was
        done is synced to the disk on return.
        """
        with self._mutex:
            known = self._keys.get((kind, key)) if key else None
            if known is not None:
                return (known, True) if _canonical(known.body) == _canonical(body) else _other_body()
            refused = self._check(kind, body)
            if refused is not None:
                return refused
            digest = _digest(body)
            done = Done(kind, f"{kind[:-1]}-{digest}-{self._nth[kind, digest] + 1}", key, body)
            self._keep(done)
            self._done.append(done)
            self._nth[kind, digest] += 1
            if key:
                self._keys[kind, key] = done
            return done, False

    def find(self, kind: str, wanted: Mapping[str, str]) -> list[Done]:
        """The deeds of that kind whose answer has all these values, oldest first; changes nothing."""
        with self._mutex:
            return [
                done
                for done in self._done
                if done.kind == kind and all(str(done.answer.get(name)) == value for name, value in wanted.items())
            ]

    def all(self) -> list[Done]:
        """Every deed, oldest first."""
        with self._mutex:
            return self._done.copy()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def _keep(self, done: Done) -> None:
        os.write(self._file, json.dumps(done._asdict()).encode() + b"\n")
        os.fsync(self._file)

    def _check(self, kind: str, body: dict[str, Any]) -> Refused | None:
        if kind == "mails" and not (isinstance(body.get("to"), str) and body["to"]):
            return Refused(400, 'a mail needs "to", a text')
        if kind == "payments" and not (type(body.get("amount")) is int and body["amount"] > 0):
            return Refused(400, 'a payment needs "amount", a whole number of cents above 0')
        if kind == "refunds":
            paid = any(done.kind == "payments" and done.id == body.get("payment") for done in self._done)
            if not paid:
                return Refused(404, 'a refund needs "payment", the id of a payment that was made')
            if any(done.kind == "refunds" and done.body["payment"] == body["payment"] for done in self._done):
                return Refused(409, "that payment was refunded before")
        return None

    def _cut_torn_tail(self) -> None:
        # A line without its end was never answered for: the service died while it wrote.
        size = os.fstat(self._file).st_size
        content = os.pread(self._file, size, 0)
        whole = content.rfind(b"\n") + 1
        if whole < size:
            os.ftruncate(self._file, whole)
            os.fsync(self._file)


def read_ledger(path: str | os.PathLike[str]) -> list[Done]:
    """Every deed in the ledger file at `path`, oldest first, whether the service lives or not."""
    return [Done(**entry) for entry in read_lines(path)]


def read_lines(path: str | os.PathLike[str]) -> Iterator[Any]:
    """The values of a file of JSON lines; none if there is no file. A last line without an end is left out."""
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):
                    yield json.loads(line)
    except FileNotFoundError:
        return


def _other_body() -> Refused:
    return Refused(422, "this idempotency key came with another body before")


def _canonical(body: dict[str, Any]) -> str:
    return json.dumps(body, sort_keys=True)


def _digest(body: dict[str, Any]) -> str:
    # The sender makes a Message-ID up; a test that compares two runs could never find them alike.
    same = {name: value for name, value in body.items() if name != "message_id"}
    return blake2b(_canonical(same).encode(), digest_size=4).hexdigest()
