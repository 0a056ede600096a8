"""What a server is at this moment, what it guarantees, and what may be lost when it comes back as another.

Owns: reading INFO, the stamp that each claim and append leaves with a run, and the judgment of an old stamp.
Must never: ask a server; call something safe that could have been lost.
Invariant: a stamp that is judged safe means that every write acknowledged under it is in the data of this server.

A server is started anew under another `run_id`. A replica that takes over has the replication id of its primary as the
second of its own; nothing else tells the two apart, so with replicas about the same address is asked for as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from indelible.errors import Misuse, StoreUnavailable
from indelible.stores.base import Fact
from indelible.stores.redis_url import Place

UNKNOWN = "unknown"
ALWAYS = "redis-cli CONFIG SET appendfsync always"
AOF_ON = f"redis-cli CONFIG SET appendonly yes; {ALWAYS}; redis-cli CONFIG REWRITE"
"""Commands by which the server keeps everything on disk."""


class Stamp(NamedTuple):
    """Under which server a run was last written, and who had a write on disk or in memory before it counted."""

    run_id: str
    replication: str
    address: str
    local: bool
    acknowledged: int
    replicas: int

    def text(self) -> str:
        """This stamp as the store keeps it."""
        return json.dumps(list(self), separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Stamp | None:
        """The stamp that `text` is, or None if it is none."""
        try:
            run_id, replication, address, local, acknowledged, replicas = json.loads(text)
            return cls(str(run_id), str(replication), str(address), local is True, int(acknowledged), int(replicas))
        except (ValueError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class Server:
    """One server as it described itself when a connection to it was made."""

    run_id: str
    replication: str
    before: str
    address: str
    version: str
    role: str
    primary: str
    loading: bool
    replicas: int
    aof: bool
    fsync: str
    maxmemory: int
    policy: str
    writing: str
    mode: str
    uptime_s: int
    memory: int
    waitaof: bool
    local: bool = False
    """What is acknowledged is on this server's disk."""
    awaited: tuple[int, int] | None = None
    """(local, replicas) for WAITAOF after each group of writes."""
    acknowledged: int = 0
    """So many replicas have a write before it counts."""

    @classmethod
    def read(cls, info: dict[str, str], fsync: str | None, address: str) -> Server:
        """From the answer to INFO; `fsync` is None where the server does not tell."""
        version = info.get("valkey_version") or info.get("redis_version", UNKNOWN)
        major = [int(part) for part in info.get("redis_version", "0.0").split(".")[:2] if part.isdigit()]
        replica = info.get("role") == "slave"
        return cls(
            run_id=info.get("run_id", ""),
            replication=info.get("master_replid", ""),
            before=info.get("master_replid2", ""),
            address=address,
            version=f"{'Valkey' if 'valkey_version' in info else 'Redis'} {version}",
            role="replica" if replica else "primary",
            primary=f"{info.get('master_host', '')}:{info.get('master_port', '')}" if replica else "",
            loading=info.get("loading", "0") != "0",
            replicas=int(info.get("connected_slaves", "0")),
            aof=info.get("aof_enabled", "0") == "1",
            fsync=UNKNOWN if fsync is None else fsync,
            maxmemory=int(info.get("maxmemory", "0")),
            policy=info.get("maxmemory_policy", UNKNOWN),
            writing=info.get("aof_last_write_status", "ok"),
            mode=info.get("server_mode") or info.get("redis_mode", "standalone"),
            uptime_s=int(info.get("uptime_in_seconds", "0")),
            memory=int(info.get("used_memory_rss", "0")),
            waitaof=major >= [7, 2],
        )

    def under(self, place: Place, durability: str, readonly: bool) -> Server:
        """This server with what a write will wait for. Raises `StoreUnavailable` if it cannot keep what is asked."""
        if self.mode != "standalone":
            raise Misuse(
                f"the server at {place.named} runs as {self.mode}; this release speaks to single servers",
                hint="cluster-enabled no   # or the address of the primary, if that is a sentinel",
                store=place.shown,
            )
        if self.loading:
            raise StoreUnavailable(
                f"the server at {place.named} is still loading its data", hint="run again in a moment",
                store=place.shown,
            )  # fmt: skip
        if self.role == "replica" and not readonly:
            raise StoreUnavailable(
                f"the server at {place.named} is a replica of {self.primary}, and takes no writes",
                hint=f"--store with the address of the primary, {self.primary}",
                store=place.shown,
            )
        if durability == "full" and not readonly:
            self._must_keep(place)
        safe = self.aof and self.fsync == "always"
        awaited = place.waitaof
        if awaited is None and durability == "full" and self.aof and not safe and self.waitaof:
            awaited = (1, 0)
        if awaited is not None and not self.waitaof and not readonly:
            raise _no_waitaof(self, place)
        local = safe or (awaited is not None and awaited[0] > 0)
        acknowledged = place.wait if awaited is None else awaited[1]
        return replace(self, local=local, awaited=awaited, acknowledged=acknowledged)

    def _must_keep(self, place: Place) -> None:
        elsewhere = place.waitaof is not None and place.waitaof[1] > 0
        if self.policy.startswith("allkeys") and self.maxmemory:
            raise StoreUnavailable(
                f"the server at {place.named} drops keys when its memory is full (maxmemory-policy {self.policy}): "
                "runs would vanish",
                hint="redis-cli CONFIG SET maxmemory-policy noeviction   # or, if runs may be lost: ?durability=os",
                store=place.shown,
            )
        if not self.aof and not elsewhere:
            raise StoreUnavailable(
                f"the server at {place.named} keeps nothing on disk (no append-only file), so what it acknowledges is "
                "lost when it ends",
                hint=f"{AOF_ON}   # or, if runs may be lost: ?durability=os in the URL",
                store=place.shown,
            )
        if self.fsync != "always" and not self.waitaof:
            raise _no_waitaof(self, place)

    @property
    def when(self) -> str:
        """When its file is synced, in words."""
        if self.fsync == UNKNOWN:
            return "the server does not tell when it syncs its file"
        return f"the server syncs its file: {self.fsync}"

    @property
    def durable(self) -> bool:
        """An acknowledged write is on a disk."""
        return self.local or (self.awaited is not None and self.awaited[1] > 0)

    def stamp(self) -> Stamp:
        """What is left with a run that is written now."""
        return Stamp(self.run_id, self.replication, self.address, self.local, self.acknowledged, self.replicas)

    def has_all_of(self, old: Stamp) -> bool:
        """True if nothing that was acknowledged under `old` can be missing here."""
        if old.run_id and old.run_id == self.run_id:
            return True
        everywhere = 0 < old.replicas <= old.acknowledged
        promoted = old.replication != "" and old.replication in (self.before, self.replication)
        if promoted:
            return everywhere
        if old.replicas and old.address != self.address:
            return old.local and everywhere
        return old.local

    def became(self, old: Stamp) -> str:
        """How this server differs from the one of `old`, in words."""
        if old.replication != "" and old.replication in (self.before, self.replication):
            return "a replica has taken the place of the server"
        kept = "" if old.local else ", and what was acknowledged was not all on its disk"
        return f"the server was started anew {self.uptime_s} s ago{kept}"

    def promise(self) -> str:
        """What an acknowledged write survives, in one sentence."""
        on = "what is acknowledged"
        if self.local and self.awaited is None:
            return f"{on} is on the server's disk"
        if self.awaited is not None:
            return f"{on} is on disk (servers, replicas: {self.awaited[0]}, {self.awaited[1]})"
        copies = f", but {self.acknowledged} replicas have it in memory" if self.acknowledged else ""
        if not self.aof:
            return f"this server keeps nothing on disk: when it ends, every run on it is lost{copies}"
        if self.fsync == "everysec":
            return f"a power failure of the server may take the last second or two of every run{copies}"
        return f"a power failure of the server may take what its system has not yet written to disk{copies}"

    def facts(self) -> Iterator[Fact]:
        """See `Upkeep.facts`."""
        yield Fact("server", f"{self.version}, {self.role}, {self.replicas} replicas, up for {self.uptime_s} s")
        if self.role == "replica":
            yield Fact("role", f"replica of {self.primary}", "note", f"runs are written at {self.primary}")
        yield Fact(
            "append-only file", "on" if self.aof else "off", "ok" if self.aof else "bad", "" if self.aof else AOF_ON
        )
        if self.aof:
            always = self.fsync == "always"
            waited = ": each commit waits for the disk" if self.local and not always else ""
            verdict: Literal["ok", "note", "bad"] = "ok" if always else "note" if waited else "bad"
            yield Fact("appendfsync", self.fsync + waited, verdict, "" if always else ALWAYS)
        if self.writing != "ok":
            yield Fact("writing to disk", self.writing, "bad", "df -h   # on the server")
        evicts = self.policy.startswith("allkeys")
        yield Fact(
            "maxmemory-policy", f"{self.policy}, maxmemory {self.maxmemory or 'unlimited'}",
            "bad" if evicts and self.maxmemory else "note" if evicts else "ok",
            "redis-cli CONFIG SET maxmemory-policy noeviction" if evicts else "",
        )  # fmt: skip
        if self.role == "primary":
            yield Fact("durability", self.promise(), "ok" if self.durable else "bad", "" if self.durable else AOF_ON)


def _no_waitaof(server: Server, place: Place) -> StoreUnavailable:
    return StoreUnavailable(
        f"{place.named}: {server.when}, and is too old ({server.version}) for WAITAOF, "
        "by which a write could wait for the disk (Redis 7.2, Valkey 7.2)",
        hint=ALWAYS,
        store=place.shown,
    )
