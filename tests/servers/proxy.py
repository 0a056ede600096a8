"""An address that leads to one server today and to another tomorrow, as after a failover.

Owns: the listening socket, and a thread for each connection through it.
Must never: outlive the test; wait for a time.
"""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress


class Proxy:
    """Listens on `port` of this machine, and passes connections on to `target`, another port of it."""

    def __init__(self, target: int) -> None:
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._mutex = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, target: int) -> None:
        """From now on connections go there; those that are open are cut."""
        with self._mutex:
            self.target = target
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                with self._mutex:
                    far = socket.create_connection(("127.0.0.1", self.target))
                    self._pairs.append((near, far))
            except OSError:
                near.close()
                continue
            threading.Thread(target=_carry, args=(near, far), daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.lead_to(0)


def _carry(near: socket.socket, far: socket.socket) -> None:
    with near, far, selectors.DefaultSelector() as both, suppress(OSError):
        both.register(near, selectors.EVENT_READ, far)
        both.register(far, selectors.EVENT_READ, near)
        while True:
            for key, _ in both.select():
                assert isinstance(key.fileobj, socket.socket)
                data = key.fileobj.recv(1 << 16)
                if not data:
                    return
                key.data.sendall(data)
