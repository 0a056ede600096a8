"""What goes wrong between a Redis store and its server, in words.

Owns: turning the library's errors and the server's into ours.
Must never: show a password, or what was sent: a server's complaint may repeat its arguments.
Invariant: `StoreUnavailable` is for what may pass by itself or by a hand on the server; `Misuse` is for what will not.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import redis
from redis import exceptions

from indelible.errors import IndelibleError, Misuse, StoreUnavailable
from indelible.stores.redis_url import PASSWORD, Place

ERRORS = (redis.RedisError, OSError)

_ARGUMENTS = re.compile(r"(, with args| with args beginning|, sha: |script: |'[^']*').*", re.S)


class _Known(NamedTuple):
    code: str
    kind: type[IndelibleError]
    what: str
    hint: str


# The code stands first in an answer, or inside one about a script, so the order counts.
_KNOWN = (
    _Known("WRONGPASS", Misuse, "does not take that user and password", f"export {PASSWORD}=…"),
    _Known("invalid username-password", Misuse, "does not take that user and password", f"export {PASSWORD}=…"),
    _Known("invalid password", Misuse, "does not take that password", f"export {PASSWORD}=…"),
    _Known("called without any password configured", Misuse, "has no password, and was given one",
           f"unset {PASSWORD}, and no password in the URL"),
    _Known("Authentication required", Misuse, "asks for a password", f"export {PASSWORD}=…"),
    _Known("NOPERM", Misuse, "does not let this user do that",
           "redis-cli ACL SETUSER indelible on '>PASSWORD' '~PREFIX:*' +@read +@write +@scripting +@connection"
           " +@transaction +info +time +wait +waitaof '+memory|purge'"),
    _Known("WRONGTYPE", Misuse, "holds something else under a key of this store", "another prefix: ?prefix=agents"),
    _Known("MOVED", Misuse, "is part of a cluster; this release speaks to single servers",
           "a server with cluster-enabled no"),
    _Known("CROSSSLOT", Misuse, "is part of a cluster; this release speaks to single servers",
           "a server with cluster-enabled no"),
    _Known("DB index", Misuse, "has no database of that number", "redis://host:6379/0"),
    _Known("CLUSTERDOWN", StoreUnavailable, "is part of a cluster that is down", "redis-cli cluster info"),
    _Known("READONLY", StoreUnavailable, "is a replica, and takes no writes", "redis-cli info replication"),
    _Known("MISCONF", StoreUnavailable, "cannot write to its disk, and takes no writes until it can",
           "redis-cli info persistence; df -h   # on the server"),
    _Known("NOREPLICAS", StoreUnavailable, "has fewer replicas than it must have to take writes",
           "redis-cli info replication"),
    _Known("OOM", StoreUnavailable, "has no memory left (maxmemory) for another write",
           "redis-cli CONFIG SET maxmemory …; or: indelible prune"),
    _Known("LOADING", StoreUnavailable, "is still loading its data", "run again in a moment"),
    _Known("MASTERDOWN", StoreUnavailable, "is a replica without a primary", "redis-cli info replication"),
    _Known("BUSY", StoreUnavailable, "is busy with somebody's script", "redis-cli script kill"),
    _Known("max number of clients", StoreUnavailable, "takes no more connections",
           "redis-cli CONFIG SET maxclients 10000"),
    _Known("WAITAOF cannot be used", StoreUnavailable, "keeps nothing on disk any more (no append-only file)",
           "redis-cli CONFIG SET appendonly yes"),
)  # fmt: skip


# The library takes these codes off.
_CODES = (
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.MovedError, "MOVED"),
    (exceptions.ClusterCrossSlotError, "CROSSSLOT"),
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
)


def translate(error: Exception, place: Place) -> IndelibleError:
    """Our error for one of the library's or of the server's."""
    text = " ".join([*(code for kind, code in _CODES if isinstance(error, kind)), str(error)])
    refused = isinstance(error, redis.ResponseError) or not _is_network(error)
    if refused:
        for known in _KNOWN:
            if known.code in text:
                hint = known.hint.replace("PREFIX", place.prefix)
                return known.kind(f"the server at {place.named} {known.what}", hint=hint, store=place.shown)
        shown = _ARGUMENTS.sub("", text.splitlines()[0] if text else type(error).__name__)[:200]
        return StoreUnavailable(
            f"the server at {place.named} answered: {shown}", hint="redis-cli info", store=place.shown
        )
    why, hint = _reason(error, text, place)
    return StoreUnavailable(f"the server at {place.named} {why}", hint=hint, store=place.shown)


def _is_network(error: Exception) -> bool:
    if isinstance(error, redis.AuthenticationError | exceptions.BusyLoadingError):
        return False
    return isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError)


def _reason(error: Exception, text: str, place: Place) -> tuple[str, str]:
    ping = f"redis-cli -h {place.host} -p {place.port} ping"
    if "max number of clients" in text:
        return "takes no more connections", "redis-cli CONFIG SET maxclients 10000"
    if isinstance(error, redis.TimeoutError):
        other = (
            "redis:// instead of rediss:// if it does not speak TLS" if place.tls else "more time: ?timeout_ms=60000"
        )
        return f"did not answer within {place.timeout_ms} ms", f"{ping}; or {other}"
    if "CERTIFICATE_VERIFY" in text:
        return "has a certificate that is not trusted here", "?ca=/path/to/ca.pem"
    if "SSL" in text or "WRONG_VERSION_NUMBER" in text:
        return "does not speak TLS on that port", "redis:// instead of rediss://"
    if "Name or service not known" in text or "getaddrinfo" in text or "name resolution" in text:
        return "cannot be found by that name", f"getent hosts {place.host}"
    if "refused" in text:
        return "refuses connections: nothing listens there", ping
    if place.tls is False and "closed by server" in text:
        return "closed the connection", f"{ping}; rediss:// instead of redis:// if it speaks TLS"
    return "cannot be reached, or has gone away", ping
