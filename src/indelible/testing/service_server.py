"""The fake service itself: HTTP in front of its ledger, misbehaving as planned.

Owns: the answers, the numbering of requests, and the log that says what was done with each.
Must never: be reachable from another machine, wait on a clock, or send a byte before its log line is written.
Invariant: what a request did does not depend on whether its client lived to read the answer.

`POST /mails {"to": ...}`, `POST /payments {"amount": cents}`, `POST /refunds {"payment": id}`: a deed, answered by
201. With an `Idempotency-Key` that is known: 200 and the recorded answer, or 422 if the body is another one.

`GET /mails?key=...`, `GET /payments?order=...` and so on: the deeds of that kind whose answer has these values.
`GET /ledger`: every deed. It never misbehaves, and nor does what follows.

`POST /control/plan {...}`: misbehave like this from here on; requests are counted anew.
`POST /control/held?n=2`: answered once just so many requests are held.
`POST /control/release`: let go of all that is held; answered when they have been applied.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from indelible.testing.service_ledger import KINDS, Refused, ServiceLedger
from indelible.testing.service_plan import Misbehaviour, Plan

MAX_BODY_BYTES = 1_000_000
IDLE_CLIENT_S = 60.0
RETRY_AFTER_S = 1
DIED = 70
"""The exit status of a service that was told to be gone."""

Answer = tuple[int, Any]

UNAPPLIED: Mapping[Misbehaviour | None, int] = {
    Misbehaviour.DROP_BEFORE: 0,
    Misbehaviour.GONE_BEFORE: 0,
    Misbehaviour.TOO_MANY: 429,
    Misbehaviour.ERROR_BEFORE: 500,
}
"""What is answered, with 0 for nothing, where nothing is applied."""


class Gate:
    """Where requests are held. Called from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: dict[object, socket.socket] = {}

    def hold(self, client: socket.socket | None) -> object:
        """Wait until released, or until `client` has hung up; the ticket is given back with `passed`."""
        ticket = object()
        here, bell = socket.socketpair()
        with here, bell:
            with self._changed:
                self._held[ticket] = bell
                self._changed.notify_all()
            watched = [here] if client is None else [here, client]
            while here not in (ready := select.select(watched, [], [])[0]):
                if _has_hung_up(ready[0]):
                    break
                watched = [here]  # it sends more than it should; it can no longer be watched
        return ticket

    def passed(self, ticket: object) -> None:
        """What was to be done after the wait is done."""
        with self._changed:
            del self._held[ticket]
            self._changed.notify_all()

    def release(self) -> int:
        """Let go of all that is held now; returns how many, when all of them have passed."""
        with self._changed:
            tickets = list(self._held)
            for ticket in tickets:
                try:
                    self._held[ticket].send(b"\0")
                except OSError:
                    pass  # its client has hung up, so it is on its way
            self._changed.wait_for(lambda: not any(ticket in self._held for ticket in tickets))
        return len(tickets)

    def wait_for(self, number: int) -> None:
        """Return once just that many are held."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._held) == number)


def _has_hung_up(client: socket.socket) -> bool:
    try:
        return client.recv(1, socket.MSG_PEEK) == b""
    except OSError:
        return True


class ServiceServer(ThreadingMixIn, TCPServer):
    """The service, listening on 127.0.0.1; one thread for each request."""

    daemon_threads = True
    allow_reuse_address = True
    allow_reuse_port = True  # whoever started it may keep the port reserved while it is gone
    request_queue_size = 128

    def __init__(self, port: int, ledger: str, plan: Plan | None = None) -> None:
        self.book = ServiceLedger(ledger)
        self.gate = Gate()
        self._mutex = threading.Lock()
        self._log = os.open(f"{ledger}.requests", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.follow(plan or Plan())
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def url(self) -> str:
        """Where it can be reached."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def follow(self, plan: Plan) -> None:
        """From here on do wrong what the plan says; its requests are counted from 1."""
        with self._mutex:
            self._plan, self._counts = plan, Counter[str]()

    def next(self, series: str) -> tuple[int, Misbehaviour | None]:
        """The number of a request that has come, and what it is to meet."""
        with self._mutex:
            self._counts[series] += 1
            number = self._counts[series]
            return number, self._plan.of(series, number)

    def log(self, **entry: Any) -> None:
        """Keep one line about a request; it outlives this process, though not the machine."""
        os.write(self._log, json.dumps(entry).encode() + b"\n")

    def server_close(self) -> None:
        """Stop listening and let go of the files."""
        super().server_close()
        self.book.close()
        os.close(self._log)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is nothing to report."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One request on a connection of its own."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_CLIENT_S

    @property
    def service(self) -> ServiceServer:
        """The server, by its own type."""
        assert isinstance(self.server, ServiceServer)
        return self.server

    def do_POST(self) -> None:
        """A deed, or a word to the service itself."""
        self.close_connection = True
        url = urlsplit(self.path)
        body = self._body()
        if url.path.startswith("/control/"):
            self._send(self._controlled(url.path, dict(parse_qsl(url.query)), body))
            return
        kind, key = url.path[1:], self.headers.get("Idempotency-Key", "")
        self._meet("deeds", key, lambda: self._deed(kind, key, body))

    def do_GET(self) -> None:
        """A look."""
        self.close_connection = True
        self._body()  # what is left unread when a connection is closed can cost the client its answer
        url = urlsplit(self.path)
        if url.path == "/ledger":
            self._send((200, {"ledger": [{"kind": done.kind, **done.answer} for done in self.service.book.all()]}))
            return
        kind, wanted = url.path[1:], dict(parse_qsl(url.query, keep_blank_values=True))
        self._meet("looks", wanted.get("key", ""), lambda: self._look(kind, wanted))

    def _meet(self, series: str, key: str, apply: Callable[[], tuple[str, Answer]]) -> None:
        """Serve one request of a series, with what goes wrong at it."""
        number, wrong = self.service.next(series)
        entry = {"series": series, "number": number, "path": self.path, "key": key, "wrong": wrong or ""}
        if wrong in UNAPPLIED:
            status = UNAPPLIED[wrong]
            self.service.log(**entry, did="nothing", status=status)
            if wrong is Misbehaviour.GONE_BEFORE:
                os._exit(DIED)
            if status:
                self._send((status, {"error": HTTPStatus(status).phrase}))
            return
        ticket = self.service.gate.hold(None) if wrong is Misbehaviour.APPLY_LATE else None
        did, answer = apply()
        if wrong is Misbehaviour.ERROR_AFTER:
            answer = 500, {"error": HTTPStatus(500).phrase}
        silent = wrong in (Misbehaviour.DROP_AFTER, Misbehaviour.GONE_AFTER)
        self.service.log(**entry, did=did, status=0 if silent else answer[0])
        if ticket is not None:
            self.service.gate.passed(ticket)
        if wrong is Misbehaviour.ANSWER_LATE:
            self.service.gate.passed(self.service.gate.hold(self.connection))
        if wrong is Misbehaviour.GONE_AFTER:
            os._exit(DIED)
        if not silent:
            self._send(answer, wrong)

    def _deed(self, kind: str, key: str, body: Any) -> tuple[str, Answer]:
        if kind not in KINDS:
            return "nothing", (404, {"error": f"nothing here; try /{', /'.join(KINDS)}"})
        if not isinstance(body, dict):
            return "nothing", (400, {"error": "the body must be a JSON object, as long as its Content-Length says"})
        outcome = self.service.book.apply(kind, key, body)
        if isinstance(outcome, Refused):
            return "nothing", (outcome.status, {"error": outcome.why})
        done, repeated = outcome
        return ("repeated", (200, done.answer)) if repeated else ("applied", (201, done.answer))

    def _look(self, kind: str, wanted: dict[str, str]) -> tuple[str, Answer]:
        if kind not in KINDS:
            return "nothing", (404, {"error": f"nothing here; try /{', /'.join(KINDS)}"})
        return "looked", (200, {kind: [done.answer for done in self.service.book.find(kind, wanted)]})

    def _controlled(self, path: str, query: dict[str, str], body: Any) -> Answer:
        try:
            if path == "/control/plan":
                self.service.follow(Plan.from_json(body))
                return 200, {}
            if path == "/control/release":
                return 200, {"released": self.service.gate.release()}
            if path == "/control/held":
                self.service.gate.wait_for(int(query.get("n", "1")))
                return 200, {}
        except (TypeError, ValueError, AttributeError) as error:
            return 400, {"error": str(error)}
        return 404, {"error": "nothing here"}

    def _body(self) -> Any:
        """The JSON that was sent; None if it is too long, cut short, or no JSON."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or int(length) > MAX_BODY_BYTES:
            return None
        raw = self.rfile.read(int(length))
        try:
            return json.loads(raw) if len(raw) == int(length) else None
        except ValueError:
            return None

    def _send(self, answer: Answer, wrong: Misbehaviour | None = None) -> None:
        status, data = answer
        body = json.dumps(data).encode()
        extra = f"Retry-After: {RETRY_AFTER_S}\r\n" if status == 429 else ""
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n{extra}Connection: close\r\n\r\n"
        )
        raw = head.encode() + body
        if wrong is Misbehaviour.ANSWER_HALF:
            raw = raw[: len(raw) - len(body) // 2]
        elif wrong is Misbehaviour.ANSWER_TWICE:
            raw += raw
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        """The log is kept elsewhere."""
