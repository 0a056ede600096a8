"""The URL of a Redis store: where the server is, and the options that are ours.

Owns: taking it apart, and what it looks like without its password.
Must never: let a password into `shown` or into an error.
Invariant: `parse(place.shown)` names the same store, but for the password.

`redis://user:password@host:port/database?prefix=indelible&wait=1`. A password may stand in the environment instead, as
INDELIBLE_REDIS_PASSWORD; `rediss://` and `valkeys://` are TLS.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from indelible.errors import Misuse

PASSWORD = "INDELIBLE_REDIS_PASSWORD"
OPTIONS = ("prefix", "wait", "waitaof", "timeout_ms", "lost", "ca", "durability")
_HINT = "--store 'redis://user@host:6379/0?prefix=indelible'"
_PREFIX = re.compile(r"[A-Za-z0-9._:-]{1,100}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """A server, a database on it, and how much it must acknowledge.

    `wait` replicas must have a write in memory, or `waitaof` (local, replicas) have it on disk, before it counts.
    """

    shown: str
    host: str
    port: int
    database: int
    user: str
    password: str
    tls: bool
    prefix: str
    wait: int
    waitaof: tuple[int, int] | None
    timeout_ms: int
    accept_loss: bool
    ca: str
    durability: str
    """In place of what the store is opened with, if not empty."""

    @property
    def named(self) -> str:
        """The server and its database in words."""
        return f"{self.host}:{self.port}, database {self.database}"


def parse(url: str) -> Place:
    """What the URL says. Raises `Misuse`, naming the part that is wrong."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Misuse("the port of that redis:// URL is not a number below 65536", hint=_HINT) from None
    scheme = parts.scheme.lower()
    if parts.fragment or not parts.hostname:
        raise Misuse(f"{scheme}:// without a host names no server", hint=_HINT)
    number = parts.path.strip("/")
    if number and not (number.isascii() and number.isdigit() and len(number) < 6):
        raise Misuse(f"{scheme}://{parts.hostname}/…: the database is a number, not {_named(number)}", hint=_HINT)
    options = _options(parts.query)
    # The name stays in the URL, as it may in any; only the password goes.
    who = f"{parts.username}@" if parts.username else ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    shown = f"{scheme}://{who}{host}:{port or 6379}/{int(number or 0)}"
    if options:
        shown += "?" + urlencode(options, quote_via=quote, safe=",:/")
    wait, waitaof = _whole(options, "wait", 0, 1000), _waitaof(options)
    if wait and waitaof is not None:
        raise Misuse("wait=… and waitaof=… together: a write waits for the one or the other", hint="?waitaof=1,1")
    return Place(
        shown=shown,
        host=parts.hostname,
        port=port or 6379,
        database=int(number or 0),
        user=unquote(parts.username or ""),
        password=unquote(parts.password or "") or os.environ.get(PASSWORD, ""),
        tls=scheme in ("rediss", "valkeys"),
        prefix=options.get("prefix", "indelible"),
        wait=wait,
        waitaof=waitaof,
        timeout_ms=_whole(options, "timeout_ms", 10_000, 3_600_000, least=1),
        accept_loss="lost" in options,
        ca=options.get("ca", ""),
        durability=options.get("durability", ""),
    )


def _named(part: str) -> str:
    # Behind a '/', '?' or '#' that a password holds unwritten, the rest of the password looks like this part.
    if "@" in part:
        return "what stands there (in a password '/', '?', '#' and '@' are written %2F, %3F, %23 and %40)"
    return ascii(part[:40])


def _options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in OPTIONS:
            raise Misuse(
                f"the option {_named(name)} of a redis:// URL is not known; known are {', '.join(OPTIONS)}", hint=_HINT
            )
        if name in options:
            raise Misuse(f"the option {name!r} is there twice", hint=_HINT)
        options[name] = value
    if not _PREFIX.fullmatch(options.get("prefix", "x")):
        raise Misuse("prefix=… is letters, digits and any of . _ : -, at most 100 of them", hint="?prefix=indelible")
    if options.get("lost", "accept") != "accept":
        raise Misuse("lost=… has one value, accept", hint="?lost=accept")
    if options.get("durability", "os") not in ("os", "full"):
        raise Misuse("durability=… is full or os", hint="?durability=os")
    return options


def _whole(options: dict[str, str], name: str, default: int, most: int, least: int = 0) -> int:
    text = options.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 9 and least <= int(text) <= most):
        raise Misuse(
            f"{name}={text[:40]!a} is not a whole number from {least} to {most}", hint=f"?{name}={default or 1}"
        )
    return int(text)


def _waitaof(options: dict[str, str]) -> tuple[int, int] | None:
    text = options.get("waitaof")
    if text is None:
        return None
    match = re.fullmatch(r"([01]),([0-9]{1,3})", text, re.ASCII)
    if match is None or text == "0,0":
        raise Misuse(
            f"waitaof={text[:40]!a}: how many must have a write on disk, this server (0 or 1) and replicas",
            hint="?waitaof=1,0",
        )
    return int(match[1]), int(match[2])
