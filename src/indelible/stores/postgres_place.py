"""Where a PostgreSQL database is: its URL, and how to connect to it.

Owns: reading the URL, the settings of a connection, and the name that messages use.
Must never: let a password into `url` or `name`, or into a message about a URL that cannot be read.
Invariant: `place_of(place.url)` is the same place, but for its passwords.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from psycopg import OperationalError, pq
from psycopg.conninfo import make_conninfo

from indelible.errors import Misuse

CONNECT_S = 5
# A server that is cut off is noticed within half a minute, and not after the two hours that systems wait by themselves.
_DEFAULTS = {
    "connect_timeout": str(CONNECT_S),
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "client_encoding": "UTF8",
    "application_name": "indelible",
}
_SECRET = b"*"
_HINT = "store='postgresql://user@host:5432/database' (the password: PGPASSWORD or ~/.pgpass; in a URL '@' is %40)"


class Place(NamedTuple):
    """A database. `conninfo` may hold passwords; `url` and `name`, which is "host:port/database", do not."""

    conninfo: str
    url: str
    name: str


def place_of(url: str, readonly: bool = False) -> Place:
    """Read a URL as libpq does, without showing what may be a password: raises `Misuse`.

    Of several hosts the one that takes writes is wanted, unless `readonly`.
    """
    scheme, mark, rest = url.partition("://")
    url = scheme.lower() + mark + rest  # as every other store
    front = url.partition("?")[0].split("://", 1)[-1]
    if front.count("@") > 1 or "@" in front.partition("/")[2]:
        raise _unreadable("a '@' or '/' in a user name or password must be written %40 or %2F")
    try:
        options = pq.Conninfo.parse(url.encode())
        standing = pq.Conninfo.get_defaults()
    except (OperationalError, UnicodeError):
        raise _unreadable("it cannot be read as a URL of a database") from None  # its words may quote a password
    given = {one.keyword.decode(): one.val.decode() for one in options if one.val is not None}
    if not all(port.isdigit() or not port for port in given.get("port", "").split(",")):
        raise _unreadable("its port is not a number")
    hidden = {one.keyword.decode() for one in options if (one.dispchar or b"").startswith(_SECRET)}
    shown = {key: value for key, value in given.items() if key not in hidden}
    wanted = {**_DEFAULTS, **given}
    if "," in given.get("host", "") and not readonly:
        wanted.setdefault("target_session_attrs", "read-write")  # after a failover, the one that was promoted
    usual = {one.keyword.decode(): one.val.decode() for one in standing if one.val is not None}
    return Place(make_conninfo(**wanted), _url(shown), _name({**usual, **given}))


def _unreadable(what: str) -> Misuse:
    return Misuse(f"the store's postgresql:// URL: {what}", hint=_HINT)


def _name(known: dict[str, str]) -> str:
    host = known.get("host") or known.get("hostaddr") or "this machine"
    port = known.get("port") or "5432"
    where = f"{host} port {port}" if "," in host or host.startswith("/") else f"{host}:{port}"
    return f"{where}/{known.get('dbname') or known.get('user', '')}"


def _url(shown: dict[str, str]) -> str:
    rest = dict(shown)
    user, database = rest.pop("user", ""), rest.pop("dbname", "")
    host = "" if any(mark in rest.get("host", "") for mark in ",/:") else rest.pop("host", "")
    port = rest.pop("port", "") if host else ""
    who = f"{quote(user, safe='')}@" if user else ""
    at = quote(host, safe="") + (f":{port}" if port else "")
    asked = "&".join(f"{key}={quote(value, safe='/,:')}" for key, value in sorted(rest.items()))
    return f"postgresql://{who}{at}/{quote(database, safe='')}" + (f"?{asked}" if asked else "")
