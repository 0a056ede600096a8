"""The fake outside world as a proof uses it: in this process, emptied for each case, and watched.

Owns: the book that knows which calls were under way at each of its entries.
Must never: do a deed for a process that is dead already.
Invariant: after `settle()` nothing of a dead process is on its way any more.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from indelible.testing.prove_evidence import Entry
from indelible.testing.service_ledger import Done, Refused, ServiceLedger
from indelible.testing.service_server import ServiceServer

VARIABLE = "INDELIBLE_WORLD"
UnderWay = Callable[[], tuple[str, ...] | None]


class Book(ServiceLedger):
    """A ledger in memory. `under_way` tells the calls being performed; None means that whoever asks is dead."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._whole = threading.Lock()
        self.under_way: UnderWay = tuple
        self.clear()

    def clear(self) -> None:
        """Be empty."""
        self._done: list[Done] = []
        self._keys: dict[tuple[str, str], Done] = {}
        self._nth: Counter[tuple[str, str]] = Counter()
        self.entries: list[Entry] = []

    def apply(self, kind: str, key: str, body: dict[str, Any]) -> tuple[Done, bool] | Refused:
        """See `ServiceLedger.apply`."""
        with self._whole:
            under_way = self.under_way()
            if under_way is None:
                raise ConnectionAbortedError("its sender is dead")
            before = len(self._done)
            answer = super().apply(kind, key, body)
            if len(self._done) > before:
                self.entries.append(Entry(kind, body, key, under_way))
            return answer

    def _keep(self, done: Done) -> None:
        """It lasts as long as the case does."""

    def close(self) -> None:
        """There is no file."""


class _Server(ServiceServer):
    """Counts the requests that are being served."""

    def __init__(self, ledger: str) -> None:
        self.quiet = threading.Condition()
        self.busy = 0
        super().__init__(0, ledger)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.quiet:
            self.busy += 1
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.quiet:
                self.busy -= 1
                self.quiet.notify_all()


class Outside:
    """The service, with its log in `folder`. Use it in a `with` block."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.book = Book()
        self._server = _Server(str(folder / "world"))
        self._server.book.close()
        self._server.book = self.book
        self.url = self._server.url
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def settle(self) -> None:
        """Return when every request that was sent before has been served."""
        with closing(HTTPConnection("127.0.0.1", self._server.server_address[1], timeout=60)) as connection:
            connection.request("GET", "/ledger")  # connections are taken up in the order in which they were made
            connection.getresponse().read()
        with self._server.quiet:
            self._server.quiet.wait_for(lambda: self._server.busy == 0, 60)

    def __enter__(self) -> Outside:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Environment:
    """The variable by which agents find the world, set for a while in this process."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._before: str | None = None

    def __enter__(self) -> None:
        self._before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = self._url

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = self._before
