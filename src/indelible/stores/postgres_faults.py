"""What PostgreSQL's errors mean for someone who runs agents.

Owns: the way from a SQLSTATE, or a failed connection, to one of our errors with a hint.
Must never: pass on a text of the server that may quote stored values, or a password.
Invariant: every `psycopg.Error` becomes an `IndelibleError`, with psycopg's as its cause.
"""

from __future__ import annotations

import psycopg

from indelible.errors import IndelibleError, JournalDamaged, Misuse, StoreUnavailable
from indelible.stores.postgres_place import Place

_Words = tuple[str, str]

TRANSIENT = ("40001", "40P01")
"""Rolled back for the sake of another transaction: to be tried again, at once."""

# By SQLSTATE, or by its class (the first two characters).
_UNAVAILABLE: dict[str, _Words] = {
    "08": ("the connection broke", "run again; what was acknowledged is safe"),
    "25006": (
        "it takes no writes: it is a standby, or set to read-only",
        "give the primary's host (several, comma-separated, find it), or open with readonly=True",
    ),
    "28P01": ("wrong password for this user", "PGPASSWORD=... in the environment, or a line in ~/.pgpass"),
    "28": ("the server does not let this user in", "psql {url}    (the server's pg_hba.conf decides)"),
    "3D000": ("there is no such database", "createdb -E UTF8 -T template0 DATABASE"),
    "40": ("the transaction was rolled back for the sake of another one", "run again"),
    "42501": ("this role lacks a privilege", "GRANT what docs/stores/postgresql.md lists, or open with readonly=True"),
    "53100": ("there is no space left for the server's files", "free some space there; what was acknowledged is safe"),
    "53200": ("the server is out of memory", "give the server more memory, or lower max_connections"),
    "53300": ("the server has no connection left", "raise max_connections, or put a pooler (PgBouncer) before it"),
    "53": ("the server is out of a resource", "look into the server's log"),
    "55P03": ("a row stayed locked by another session", "SELECT * FROM pg_stat_activity WHERE state <> 'idle'"),
    "57014": ("the statement was cancelled", "run again; if it lasts, raise statement_timeout for this role"),
    "57P01": ("the server is shutting down", "start it again"),
    "57P03": ("the server is starting up or shutting down", "wait until it is up"),
    "57": ("the session was ended from the server's side", "run again"),
    "58": ("the server's file system reported an error", "look into the server's log, and at its disk"),
}  # fmt: skip
_DAMAGED: dict[str, str] = {
    "23": "its tables contradict each other",
    "42P01": "a table of ours is gone",
    "42703": "a table of ours has lost a column",
    "42883": "what our statements need is not there",
    "XX001": "the server found damaged data",
    "XX002": "the server found a damaged index",
}
# What libpq and the server say in English when there is no connection yet, hence no SQLSTATE.
_REFUSALS: tuple[tuple[str, str], ...] = (
    ("password authentication failed", "28P01"),
    ("no password supplied", "28P01"),
    ("does not exist", "3D000"),
    ("pg_hba.conf", "28"),
    ("too many clients", "53300"),
    ("too many connections", "53300"),
    ("remaining connection slots", "53300"),
    ("starting up", "57P03"),
    ("shutting down", "57P03"),
    ("not yet accepting connections", "57P03"),
    ("session is read-only", "25006"),
    ("hot standby", "25006"),
)
_UNREACHED: tuple[tuple[str, str, str], ...] = (
    ("refused", "nobody listens there", "pg_isready -d '{url}'    (start the server, or correct host and port)"),
    ("timeout", "it does not answer", "pg_isready -d '{url}'    (correct host and port, or the firewall)"),
    ("No such file", "no server has a socket there", "pg_isready -d '{url}'"),
    ("certificate", "its TLS certificate is not accepted", "sslrootcert=... in the URL, or sslmode=require"),
    ("SSL", "TLS could not be agreed on", "sslmode=require or sslmode=disable in the URL, as the server has it"),
    ("resolve", "its host name is not known", "correct the host in the URL"),
    ("translate host", "its host name is not known", "correct the host in the URL"),
)  # fmt: skip


def translate(error: psycopg.Error, place: Place) -> IndelibleError:
    """Our error for one of psycopg's, to be raised from it."""
    state = error.sqlstate or ""
    if "could not extend file" in str(error) or "could not write" in str(error):
        # A limit on the size of a file, or a quota, has no SQLSTATE of its own.
        state = "53100"
    if state:
        return _by_state(state, place)
    if isinstance(error, psycopg.OperationalError):
        return _without_state(error, place)
    if isinstance(error, psycopg.DataError):
        return Misuse(f"{place.name}: a text cannot be stored in PostgreSQL", hint="leave NUL characters out of names")
    return StoreUnavailable(f"{place.name}: psycopg reported {type(error).__name__}", hint="run again", store=place.url)


def _by_state(state: str, place: Place) -> IndelibleError:
    for key in (state, state[:2]):
        if key in _DAMAGED:
            return JournalDamaged(
                f"{place.name}: {_DAMAGED[key]} (SQLSTATE {state}); nothing was changed",
                hint=f"indelible verify --store '{place.url}'",
                store=place.url,
            )
        if key in _UNAVAILABLE:
            what, hint = _UNAVAILABLE[key]
            return _unavailable(f"{what} (SQLSTATE {state})", hint, place)
    return _unavailable(f"the server reported SQLSTATE {state}", "look into the server's log", place)


def _without_state(error: psycopg.OperationalError, place: Place) -> IndelibleError:
    # Neither text is passed on: only what we take from it.
    said = str(error)
    pgconn = error.pgconn
    if pgconn is not None and pgconn.needs_password:
        return _unavailable("it asks for a password, and none was given", _UNAVAILABLE["28P01"][1], place)
    for mark, state in _REFUSALS:
        if mark in said:
            what, hint = _UNAVAILABLE[state]
            return _unavailable(what, hint, place)
    for mark, what, hint in _UNREACHED:
        if mark in said:
            return _unavailable(what, hint, place)
    if pgconn is not None and pgconn.used_password:
        return _unavailable("it refused the connection, probably the password", _UNAVAILABLE["28P01"][1], place)
    return _unavailable("the connection broke or was refused", "psql '{url}'    (what does it say?)", place)


def _unavailable(what: str, hint: str, place: Place) -> StoreUnavailable:
    return StoreUnavailable(f"{place.name}: {what}", hint=hint.replace("{url}", place.url), store=place.url)
