"""The numbered steps that bring a SQLite store's tables to the present form.

Owns: the schema, its version, and the mark that a file is ours.
Must never: touch a database of another application, or leave a step half done.
Invariant: after `migrate`, the tables are as the steps make them, whoever made them and
however many processes opened the file at once.

A step is a file `NNNN_name.sql`. One that a release has shipped is never changed.
"""

from __future__ import annotations

from importlib.resources import files

import apsw

from indelible.errors import FormatTooNew, JournalDamaged, Misuse

APPLICATION_ID = 0x494E4445
"""Stored in the file's header: "INDE"."""


def steps() -> list[str]:
    """The SQL of every step, the first one first."""
    named = sorted((file.name, file) for file in files(__name__).iterdir() if file.name.endswith(".sql"))
    return [file.read_text(encoding="utf-8") for _, file in named]


VERSION = 2
"""How many steps there are; a test holds it to the files."""
OLDEST_READ = 1
"""A store of this version or a later one is read as it is, if it may not be brought up to date."""


def inspect(con: apsw.Connection, path: str, version: int = VERSION) -> int:
    """The version of the schema in an open file, 0 for an empty database. Writes nothing.

    Raises `Misuse` if another application owns the file, `FormatTooNew` if a newer release does, `JournalDamaged` if
    none can have made it.
    """
    # In one transaction, or another process could make the tables between one look and the next.
    con.execute("SAVEPOINT inspect")
    try:
        tables = int(con.execute("SELECT count(*) FROM sqlite_schema").get)
        found, application = int(con.pragma("user_version")), int(con.pragma("application_id"))
    finally:
        con.execute("RELEASE inspect")
    if application != APPLICATION_ID:
        if application == found == tables == 0:
            return 0
        raise Misuse(
            f"{path} is a SQLite database of another application; it was left as it is",
            hint="give the store a file of its own: store='agent.db'",
            store=path,
        )
    if found < 0:
        raise JournalDamaged(
            f"{path} has schema {found}, which no release has made",
            hint="restore the file from a backup, or open a new one",
            store=path,
        )
    if found > version:
        raise FormatTooNew(
            f"{path} has schema {found}, this release knows {version}",
            hint="pip install --upgrade indelible",
            store=path,
            found=found,
            known=version,
        )
    return found


def migrate(con: apsw.Connection, path: str, scripts: list[str] | None = None) -> None:
    """Bring the tables to the newest version in one transaction, and check what is there then.

    Safe when several processes do it at once: one of them does the work, the others wait
    and find it done. Raises as `inspect`, and `JournalDamaged` if the tables are not as
    they should be.
    """
    version = VERSION if scripts is None else len(scripts)
    if inspect(con, path, version) < version:
        scripts = scripts or steps()
        con.execute("BEGIN IMMEDIATE")
        try:
            # Again, now that nobody else can be at it.
            for number in range(inspect(con, path, version), version):
                con.execute(scripts[number])
            con.pragma("application_id", APPLICATION_ID)
            con.pragma("user_version", version)
            con.execute("COMMIT")
        except BaseException:
            if con.in_transaction:
                con.execute("ROLLBACK")
            raise
    verify(con, path, scripts)


def verify(con: apsw.Connection, path: str, scripts: list[str] | None = None) -> None:
    """Raise `JournalDamaged` unless every table and index is there in its right form."""
    model = apsw.Connection(":memory:")
    try:
        for script in scripts or steps():
            model.execute(script)
        missing = sorted(_forms(model) - _forms(con))
    finally:
        model.close()
    if missing:
        raise JournalDamaged(
            f"{path}: {missing[0][0]} {missing[0][1]} is missing or was changed",
            hint="restore the file from a backup, or open a new one",
            store=path,
        )


def _forms(con: apsw.Connection) -> set[tuple[str, str, str]]:
    return set(con.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_schema"))
