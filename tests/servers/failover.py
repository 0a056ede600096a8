"""A Valkey primary with a replica that can be made to lag behind, and the address that leads to whichever is in charge.

Owns: both servers and the proxy before them.
Must never: wait for a time.
"""

from __future__ import annotations

from tests.servers.proxy import Proxy
from tests.servers.valkey import Aof, ValkeyServer


class Pair:
    """A primary with a replica, and the address by which a worker reaches the one that is in charge."""

    def __init__(self, aof: Aof = "always") -> None:
        self.primary, self.replica = ValkeyServer(aof), ValkeyServer(aof)

    def __enter__(self) -> Pair:
        self.primary.start()
        self.replica.start().follow(self.primary)
        self.proxy = Proxy(self.primary.port)
        self.url = f"redis://127.0.0.1:{self.proxy.port}/0"
        return self

    def __exit__(self, *_: object) -> None:
        self.proxy.__exit__()
        self.primary.close()
        self.replica.close()

    def part(self) -> None:
        """What is written from now on reaches the primary only."""
        # The replica has all that was written until now; then it looks for a primary where there is none.
        self.primary.run("WAIT", 1, 60_000)
        self.replica.run("REPLICAOF", "127.0.0.1", 1)

    def fail_over(self) -> None:
        """The primary dies, and the replica takes its place."""
        self.primary.kill()
        self.replica.run("REPLICAOF", "NO", "ONE")
        self.proxy.lead_to(self.replica.port)
