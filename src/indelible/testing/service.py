"""A fake outside world for tests: a small HTTP service of mails and payments, in a process of its own.

Owns: the service's life (start, stop, start again on the same port), and the test's way of talking to it.
Must never: leave a process behind, or be reachable from another machine.
Invariant: what the service did is in its ledger file, and can be read there whether it lives or not.

    with FakeWorld(tmp_path) as world:
        world.misbehave(deeds={1: Misbehaviour.DROP_AFTER})  # the first deed is done, its answer is lost
        monkeypatch.setenv("INDELIBLE_WORLD", world.url)
        my_agent.run("Pay order A-1", store=str(tmp_path / "agent.db"), run_id="a")
        assert [deed.body["order"] for deed in world.deeds("payments")] == ["A-1"]

By hand: `python -m indelible.testing.service --port 8025 --ledger world.jsonl`. `service_server` lists the requests it
understands, `service_plan` what it can do wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from indelible.errors import Misuse
from indelible.testing.service_ledger import Done, read_ledger, read_lines
from indelible.testing.service_plan import Misbehaviour, Plan, Series
from indelible.testing.service_server import ServiceServer

__all__ = ["Done", "FakeWorld", "Misbehaviour", "Plan", "Request", "Series"]

ANSWER_WITHIN_S = 60.0


class Request(NamedTuple):
    """One line of the service's log.

    series: `deeds` or `looks`, in which `number` counts from 1 since the last plan.
    wrong: the misbehaviour it met, or "".
    did: `applied`, `repeated` (the key was known, nothing was done), `looked`, or `nothing`.
    status: the HTTP status that was sent, or was about to be; 0 for none.
    """

    series: str
    number: int
    path: str
    key: str
    wrong: str
    did: str
    status: int


class FakeWorld:
    """The service as a child process, with its files in `folder`. Use it in a `with` block.

    `url` stays the same for its whole life, also while the service is stopped: connections are refused then.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.ledger = Path(folder, "world.jsonl")
        self._process: subprocess.Popen[str] | None = None
        # Bound and never listening: it keeps the port from others while the service is gone.
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._port.bind(("127.0.0.1", 0))
        self.port: int = self._port.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> FakeWorld:
        try:
            self.start()
        except BaseException:
            self._port.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._port.close()

    # Its life

    def start(self) -> None:
        """Start the service, on the ledger that is there. It behaves well, and it listens on return."""
        self.stop()
        command = [sys.executable, "-m", "indelible.testing.service", "--port", str(self.port),
                   "--ledger", str(self.ledger), "--until-eof"]  # fmt: skip
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != self.url:
            self.stop()
            raise Misuse("the fake world did not start; see above", hint=" ".join(command[1:-1]))

    def stop(self) -> None:
        """Kill the service, if it lives. Connections are refused from here on; what it has done stays done."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()

    def wait_until_gone(self) -> None:
        """Return once the service has died as it was told to by `GONE_BEFORE` or `GONE_AFTER`."""
        if self._process is not None:
            self._process.wait(ANSWER_WITHIN_S)

    # What it is told

    def misbehave(
        self,
        *,
        deeds: Mapping[int, Misbehaviour] | None = None,
        looks: Mapping[int, Misbehaviour] | None = None,
        deed_odds: Mapping[Misbehaviour, float] | None = None,
        look_odds: Mapping[Misbehaviour, float] | None = None,
        seed: int = 0,
    ) -> None:
        """Do wrong from here on what is given, and nothing else.

        deeds, looks: the misbehaviour of the n-th request that does something, or that only looks, counted from 1.
        deed_odds, look_odds: the probability of each misbehaviour at the other requests, decided by `seed`.
        """
        plan = Plan(Series(deeds or {}, deed_odds or {}), Series(looks or {}, look_odds or {}), seed)
        self._control("/control/plan", plan.to_json())

    def wait_held(self, number: int = 1) -> None:
        """Return once just that many requests are held by `ANSWER_LATE` or `APPLY_LATE`; 0 waits until none is."""
        self._control(f"/control/held?n={number}")

    def release(self) -> int:
        """Let go of all that is held; returns how many requests that were, when they have been applied."""
        return int(self._control("/control/release")["released"])

    # What it did

    def deeds(self, kind: str | None = None) -> list[Done]:
        """Every deed, oldest first, or those of one kind: `mails`, `payments`, `refunds`."""
        return [done for done in read_ledger(self.ledger) if kind in (None, done.kind)]

    def requests(self, series: str | None = None) -> list[Request]:
        """What was done with each request, oldest first, or with those of one series: `deeds`, `looks`."""
        found = (Request(**entry) for entry in read_lines(f"{self.ledger}.requests"))
        return [request for request in found if series in (None, request.series)]

    def _control(self, path: str, data: Any = None) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_WITHIN_S)
        try:
            connection.request("POST", path, json.dumps(data))
            answer = connection.getresponse()
            found = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != 200:
            raise Misuse(f"the fake world refused {path}: {found['error']}", hint="FakeWorld.misbehave(deeds={1: ...})")
        return found


def main(arguments: list[str] | None = None) -> None:
    """Serve until the process is ended. Prints the service's address as its first line."""
    parser = argparse.ArgumentParser(prog="python -m indelible.testing.service")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--ledger", required=True, help="the file of what was done; made if it is missing")
    parser.add_argument("--plan", help="a JSON file of what is to go wrong, as Plan.to_json writes it")
    parser.add_argument("--until-eof", action="store_true", help="end when standard input does")
    given = parser.parse_args(arguments)
    plan = Plan.from_json(json.loads(Path(given.plan).read_text(encoding="utf-8"))) if given.plan else None
    with ServiceServer(given.port, given.ledger, plan) as server:
        if given.until_eof:
            # A parent that is killed cannot stop its child; its end of the pipe is closed all the same.
            threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
        try:
            sys.stdout.write(f"{server.url}\n")
            sys.stdout.flush()
            server.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
