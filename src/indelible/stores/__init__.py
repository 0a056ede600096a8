"""Where journals live, and how a store is opened by its URL.

Owns: the dispatch from a URL to a store.
Must never: import a store's library before it is asked for.
Invariant: `open_store(store.url, ...)` opens the same store again, if it is shared.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from urllib.parse import unquote

from indelible.errors import Misuse
from indelible.stores.addresses import shown
from indelible.stores.base import Store
from indelible.stores.memory import MemoryStore
from indelible.stores.patience import Patient

__all__ = ["open_store"]

KNOWN = (
    "agent.db (a path)", "sqlite:///agent.db", "postgresql://user@host/database", "redis://host/0",
    "s3://bucket/folder", "gs://bucket/folder", "az://container/folder", "file:///srv/folder", "memory:",
)  # fmt: skip
# One letter before a colon is a Windows drive; a scheme without slashes is one only if we know it.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://|(memory|file|sqlite):", re.ASCII)

_POSTGRES = frozenset({"postgres", "postgresql"})
_REDIS = frozenset({"redis", "rediss", "valkey", "valkeys"})
_OBJECTS = frozenset({"s3", "gs", "az", "file"})


def open_store(
    url: str | os.PathLike[str],
    *,
    clock: Callable[[], float],
    durability: str = "full",
    readonly: bool = False,
    pause: Callable[[float], None] | None = None,
) -> Store:
    """Open the store at `url`, making it if need be; it is checked before this returns.

    A path, `sqlite:///relative.db` or `sqlite:////absolute.db` names a SQLite file; `memory:` is a
    new store in memory, whose clock is `clock` (epoch seconds); `postgresql://`, `redis://`,
    and `s3://`, `gs://`, `az://` or `file:///folder` (object storage) need the extra of that name.
    `durability` is "full" or "os" (see the store's class). With `pause` (sleeps so many seconds) a server that
    goes away later is waited for, `patience.REMOTE_S` seconds; opening does not wait. Raises `Misuse` for a URL that
    names no store, and what the store raises.
    """
    text = os.fspath(url)
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise Misuse(f"store={url!r} names no store", hint="store='agent.db'")
    if text == ":memory:":
        raise Misuse("store=':memory:' is SQLite's name for it", hint="store='memory:'")
    match = _SCHEME.match(text)
    scheme = (match[1] or match[2]).lower() if match else "path"
    if scheme == "memory":
        if text != "memory:" or readonly:
            raise Misuse(f"store={text!r}: a store in memory has no name and starts empty", hint="store='memory:'")
        return MemoryStore(clock)
    if scheme in _POSTGRES | _REDIS | _OBJECTS:
        store = _open_remote(scheme, text, durability, readonly)
        return store if pause is None or scheme == "file" else Patient(store, pause)
    path = text if match is None else _path_of(text, scheme)
    from indelible.stores.sqlite import SqliteStore

    return SqliteStore(path, durability=durability, readonly=readonly)


def _open_remote(scheme: str, url: str, durability: str, readonly: bool) -> Store:
    extra = "postgres" if scheme in _POSTGRES else "redis" if scheme in _REDIS else "objects"
    try:
        if extra == "postgres":
            from indelible.stores.postgres import PostgresStore

            return PostgresStore(url, durability=durability, readonly=readonly)
        if extra == "redis":
            from indelible.stores.redis import RedisStore

            return RedisStore(url, durability=durability, readonly=readonly)
        from indelible.stores.objects import ObjectStore

        return ObjectStore(url, durability=durability, readonly=readonly)
    except ImportError as error:
        if (error.name or "").startswith("indelible"):
            raise
        raise Misuse(
            f"a store at {scheme}:// needs the extra {extra!r}, which is not installed",
            hint=f"pip install 'indelible[{extra}]'",
        ) from error


def _path_of(url: str, scheme: str) -> str:
    if scheme != "sqlite":
        raise Misuse(
            f"store={shown(url)!r}: {scheme} is not known; known are {', '.join(KNOWN)}", hint="store='agent.db'"
        )
    rest = url.split(":", 1)[1]
    if "?" in rest or "#" in rest:
        raise Misuse(f"store={shown(url)!r}: no options are read from a URL", hint="open_store(path, readonly=True)")
    if rest.startswith("//"):
        # sqlite:///x is relative and sqlite:////x absolute.
        host, _, path = rest[2:].partition("/")
        if host not in ("", "localhost") or not path:
            raise Misuse(f"store={shown(url)!r}: a SQLite file is on this machine", hint="store='sqlite:///agent.db'")
        rest = path
    if not rest:
        raise Misuse(f"store={url!r} names no file", hint="store='agent.db'")
    return unquote(rest)
