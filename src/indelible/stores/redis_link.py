"""The connections to one Redis or Valkey server.

Owns: every connection, what the server at its other end is, the sending of several commands as one, and forks.
Must never: carry a connection through a fork, hand one to two threads, or send anything twice that may have been done.
Invariant: each connection knows the server it was made to, and one whose server no longer keeps what was asked of it
is not used.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from indelible.errors import FormatTooNew, Misuse, StoreUnavailable
from indelible.stores import refusals
from indelible.stores.redis_faults import ERRORS, translate
from indelible.stores.redis_scripts import ALL, Script
from indelible.stores.redis_server import Server
from indelible.stores.redis_url import Place

FORMAT = 1
MAX_IDLE = 16
MAX_BULK = 512 * 1024 * 1024
"""What a server takes as one value, unless it was told otherwise."""
SCANS = 20
AS_THEY_ARE = 8
ONE_PIECE = 4 << 20
"""Bytes that are put together to be sent in one piece."""
_FOREIGN = "another prefix: ?prefix=agents"

Command = tuple[Any, ...]


class Link:
    """Connections to the server at `place`, made when needed. Safe from any thread and across forks."""

    def __init__(self, place: Place, durability: str, readonly: bool) -> None:
        self.place = place
        self.readonly = readonly
        self._durability = durability
        self._closed = False
        self._index = f"{place.prefix}:{{index}}"
        self._reset()
        self.server: Server = self._look()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._idle: list[_Wire] = []

    def ask(self, *commands: Command) -> list[Any]:
        """The answers to `commands`, sent in one go; an error of the server stands in its place.

        Raises `StoreUnavailable` if they do not come back; what was done of them is then unknown.
        """
        return self._talk(lambda _: commands)

    def one(self, *command: Any) -> Any:
        """The answer to one command. Raises what the server's error means."""
        return self.good(self.ask(command)[0])

    def good(self, answer: Any) -> Any:
        """`answer`, unless it is an error: then that is raised, translated."""
        if isinstance(answer, Exception):
            raise translate(answer, self.place) from answer
        return answer

    def write(self, make: Callable[[str], Sequence[Command]], wait: bool = True) -> list[Any]:
        """As `ask`, for commands that write; `make` is given the stamp of the server they go to.

        With `wait` it returns when they are as durable as was asked for.
        """
        if self.readonly:
            self.check_open()
            raise refusals.read_only(self.place.shown)
        wanted: tuple[int, int] | None = None

        def both(server: Server) -> Sequence[Command]:
            nonlocal wanted
            commands = make(server.stamp().text())
            wanted = server.awaited or (0, self.place.wait)
            if not wait or wanted == (0, 0):
                wanted = None
                return commands
            if server.awaited is not None:
                return [*commands, ("WAITAOF", *wanted, self.place.timeout_ms)]
            return [*commands, ("WAIT", wanted[1], self.place.timeout_ms)]

        answers = self._talk(both)
        if wanted is not None:
            reached = answers.pop()
            if not any(isinstance(answer, Exception) for answer in answers):
                self._must_reach(wanted, self.good(reached))
        return answers

    @property
    def waits(self) -> bool:
        """True if a write is not as durable as was asked for when the server has answered it."""
        return self.server.awaited is not None or self.place.wait > 0

    def _must_reach(self, wanted: tuple[int, int], reached: Any) -> None:
        local, replicas = reached if isinstance(reached, list) else (0, reached)
        if local < wanted[0] or replicas < wanted[1]:
            raise StoreUnavailable(
                f"the server at {self.place.named} has the write, but within {self.place.timeout_ms} ms only "
                f"{replicas} of {wanted[1]} replicas and {local} of {wanted[0]} disks confirmed it",
                hint="redis-cli info replication",
                store=self.place.shown,
            )

    def _talk(self, make: Callable[[Server], Sequence[Command]]) -> list[Any]:
        wire = self._take()
        try:
            # Another connection may have looked at the same server since.
            commands = make(self.server if self.server.run_id == wire.server.run_id else wire.server)
            answers = wire.exchange(commands)
            missing = [at for at, answer in enumerate(answers) if isinstance(answer, exceptions.NoScriptError)]
            if missing:  # the server was told to forget its scripts: these have not been run
                wire.load()
                if commands[-1][0] in ("WAIT", "WAITAOF"):
                    missing.append(len(commands) - 1)
                again = wire.exchange([commands[at] for at in missing])
                for at, answer in zip(missing, again, strict=True):
                    answers[at] = answer
            if any(isinstance(answer, exceptions.ReadOnlyError) for answer in answers):
                wire.close()  # it has become a replica: whoever asks next may find the new primary
                self._drop()
            return answers
        except ERRORS as error:
            self._drop()
            raise translate(error, self.place) from error
        finally:
            self._give(wire)

    def look_again(self) -> Server:
        """The server as it is now, asked anew."""
        wire = self._take()
        try:
            wire.look()
            self.server = wire.server = wire.server.under(self.place, self._durability, self.readonly)
            return wire.server
        except ERRORS as error:
            raise translate(error, self.place) from error
        except StoreUnavailable:
            wire.close()
            self._drop()
            raise
        finally:
            self._give(wire)

    def check_open(self) -> None:
        """Raise `Misuse` if the store was closed."""
        if self._closed:
            raise refusals.closed(self.place.shown)

    def close(self) -> None:
        """End all connections; idempotent."""
        self._closed = True
        if os.getpid() == self._pid:
            self._drop()

    def _look(self) -> Server:
        wire = self._take()
        self._give(wire)
        return wire.server

    def _take(self) -> _Wire:
        self.check_open()
        if os.getpid() != self._pid:
            self._reset()  # a fork: the connections are the parent's
        while True:
            with self._mutex:
                wire = self._idle.pop() if self._idle else None
            if wire is None:
                break
            if wire.is_sound():
                return wire
            wire.close()
        wire = _Wire(self.place)
        try:
            wire.open(self)
        except ERRORS as error:
            wire.close()
            raise translate(error, self.place) from error
        except BaseException:
            wire.close()
            raise
        return wire

    def _give(self, wire: _Wire) -> None:
        if not wire.clean:
            wire.close()
            return
        with self._mutex:
            if not self._closed and len(self._idle) < MAX_IDLE:
                self._idle.append(wire)
                return
        wire.close()

    def _drop(self) -> None:
        with self._mutex:
            idle, self._idle = self._idle, []
        for wire in idle:
            wire.close()

    def admit(self, wire: _Wire) -> None:
        """Look at the server of a new connection, and at whose key space it is. Raises what speaks against it."""
        wire.look()
        server = wire.server.under(self.place, self._durability, self.readonly)
        wire.server = server
        # Deleting what is not there tells whether this user may write, also where there is no memory for more.
        probe = [] if self.readonly else [("DEL", f"{self._index}:probe")]
        found, *may = wire.exchange([("GET", f"{self._index}:format"), *probe])
        if may and isinstance(may[0], Exception):
            raise may[0]
        if found is None and not self.readonly:
            self._must_be_free(wire)
            made, found = wire.exchange([("SETNX", f"{self._index}:format", FORMAT), ("GET", f"{self._index}:format")])
            found = made if isinstance(made, Exception) else found
        if isinstance(found, Exception):
            raise found
        if found is not None and not (found.isdigit() and len(found) < 9):
            raise self._foreign("format")
        if found is not None and int(found) > FORMAT:
            raise FormatTooNew(
                f"the store at {self.place.named}, prefix {self.place.prefix!r}, has format {int(found)}; this release "
                f"knows up to {FORMAT}",
                hint="pip install --upgrade indelible",
                store=self.place.shown,
            )
        self.server = server

    def _must_be_free(self, wire: _Wire) -> None:
        """A bounded look at whether somebody else's keys bear our prefix."""
        cursor: Any = b"0"
        for _ in range(SCANS):
            answer = wire.exchange([("SCAN", cursor, "MATCH", f"{self.place.prefix}:*", "COUNT", 1000)])[0]
            if isinstance(answer, Exception):
                return  # SCAN is not for this user; a key of another type will be refused when it is met
            cursor, found = answer
            foreign = [key for key in found if not key.startswith(self._index.encode())]
            if foreign and wire.exchange([("EXISTS", f"{self._index}:format")])[0] != 1:
                raise self._foreign(ascii(foreign[0].decode("utf-8", "replace")[len(self.place.prefix) + 1 :][:40]))
            if foreign or cursor == b"0":  # another process has just made the store, and written to it
                return

    def _foreign(self, key: str) -> Misuse:
        return Misuse(
            f"the key space {self.place.prefix!r} at {self.place.named} holds something else: {key}",
            hint=_FOREIGN,
            store=self.place.shown,
        )


class _Wire:
    """One connection, and the server at its other end."""

    server: Server

    def __init__(self, place: Place) -> None:
        timeout = place.timeout_ms / 1000
        kind: Any = redis.SSLConnection if place.tls else redis.Connection
        extra: dict[str, Any] = {}
        if place.tls:
            extra = {"ssl_cert_reqs": "required", "ssl_check_hostname": True, "ssl_ca_certs": place.ca or None}
        # A wait on the server's side takes up to `timeout` by itself.
        self._connection: Any = kind(
            host=place.host, port=place.port, db=place.database, username=place.user or None,
            password=place.password or None, socket_timeout=timeout + 2, socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0), protocol=2, **extra,
        )  # fmt: skip
        self.clean = False

    def open(self, link: Link) -> None:
        """Connect, and be let in."""
        self._connection.connect()
        self.clean = True
        if not link.readonly:
            self.load()
        link.admit(self)

    def load(self) -> None:
        """Have the server know the scripts."""
        for answer in self.exchange([("SCRIPT", "LOAD", str(script)) for script in ALL]):
            if isinstance(answer, Exception):
                raise answer

    def look(self) -> None:
        """Ask the server what it is. A managed server may keep some of it to itself."""
        info, fsync, me = self.exchange([("INFO",), ("CONFIG", "GET", "*appendfsync*"), ("CLIENT", "INFO")])
        if isinstance(info, Exception):
            raise info
        told = dict(line.split(":", 1) for line in info.decode("utf-8", "replace").splitlines() if ":" in line)
        policy = None
        if isinstance(fsync, list):
            settings = {name.decode(): value.decode() for name, value in zip(fsync[::2], fsync[1::2], strict=True)}
            policy = settings.get("appendfsync")
            if settings.get("no-appendfsync-on-rewrite") == "yes":
                policy = f"{policy}, but not while it is rewritten"
        words = me.decode().split() if isinstance(me, bytes) else []
        address = next((word[6:] for word in words if word.startswith("laddr=")), "")
        self.server = Server.read(told, policy, address)

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send them all, then read as many answers. What ends it in between leaves a connection that is not used.

        Many writes go as a transaction: else the server would sync its file once for each piece that it reads of them.
        """
        if len(commands) <= AS_THEY_ARE or commands[-1][0] == "HMGET":
            return self._exchange(commands)
        after = 1 if commands[-1][0] in ("WAIT", "WAITAOF") else 0
        inner = commands[: len(commands) - after]
        answers = self._exchange([("MULTI",), *inner, ("EXEC",), *commands[len(inner) :]])
        done = answers[len(inner) + 1]
        if isinstance(done, Exception):  # one was refused before any of them was begun
            done = [next((answer for answer in answers if isinstance(answer, Exception)), done)] * len(inner)
        return [*done, *answers[len(answers) - after :]] if after else list(done)

    def _exchange(self, commands: Sequence[Command]) -> list[Any]:
        connection = self._connection
        self.clean = False
        pieces = connection.pack_commands(commands)
        if sum(map(len, pieces)) < ONE_PIECE:
            pieces = [b"".join(pieces)]
        connection.send_packed_command(pieces, check_health=False)
        answers: list[Any] = []
        for _ in commands:
            try:
                answers.append(connection.read_response())
            except redis.ResponseError as error:
                answers.append(error)
        self.clean = True
        return answers

    def is_sound(self) -> bool:
        """False if the other side has closed it."""
        try:
            return not self._connection.can_read(0)
        except ERRORS:
            return False

    def close(self) -> None:
        """End it."""
        self.clean = False
        self._connection.disconnect()


def evalsha(script: Script, keys: Sequence[str], *arguments: Any) -> Command:
    """The command that runs a script on these keys."""
    return ("EVALSHA", script.sha, len(keys), *keys, *arguments)
