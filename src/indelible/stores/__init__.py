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
from indelible.stores.base import Store
from indelible.stores.memory import MemoryStore

__all__ = ["open_store"]

KNOWN = ("agent.db (a path)", "sqlite:///agent.db", "file:///srv/agent.db", "memory:")
PLANNED = frozenset({"postgres", "postgresql", "redis", "rediss", "valkey", "s3", "gs", "gcs", "az", "azure"})
# One letter before a colon is a Windows drive; a scheme without slashes is one only if we know it.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://|(memory|file|sqlite):", re.ASCII)


def open_store(
    url: str | os.PathLike[str], *, clock: Callable[[], float], durability: str = "full", readonly: bool = False
) -> Store:
    """Open the store at `url`, making it if need be; it is checked before this returns.

    A path, `sqlite:///relative.db`, `sqlite:////absolute.db` or `file:///absolute.db` names a
    SQLite file; `memory:` is a new store in memory, whose clock is `clock` (epoch seconds).
    `durability` is "full" or "os" (see `SqliteStore`). Raises `Misuse` for a URL that names
    no store, and what the store raises.
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
    path = text if match is None else _path_of(text, scheme)
    from indelible.stores.sqlite import SqliteStore

    return SqliteStore(path, durability=durability, readonly=readonly)


def _path_of(url: str, scheme: str) -> str:
    if scheme in PLANNED:
        raise Misuse(f"{scheme} stores are not in this release", hint=f"store={KNOWN[0].split()[0]!r}")
    if scheme not in ("sqlite", "file"):
        raise Misuse(f"store={url!r}: {scheme} is not known; known are {', '.join(KNOWN)}", hint="store='agent.db'")
    rest = url.split(":", 1)[1]
    if "?" in rest or "#" in rest:
        raise Misuse(f"store={url!r}: no options are read from a URL", hint="open_store(path, readonly=True)")
    if rest.startswith("//"):
        # sqlite:///x is relative and sqlite:////x absolute; file:///x is absolute.
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost") or not path:
            raise Misuse(f"store={url!r}: a SQLite file is on this machine", hint=f"store='{scheme}:///agent.db'")
        rest = path if scheme == "sqlite" else slash + path
    if not rest:
        raise Misuse(f"store={url!r} names no file", hint="store='agent.db'")
    return unquote(rest)
