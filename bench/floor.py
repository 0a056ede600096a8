"""The floor: what one durable row costs, with nothing of ours around it.

Owns: a SQLite file of its own, in WAL mode with synchronous=FULL.
Must never: do anything between the two readings of the clock but the transaction.
Invariant: its row holds the same new data as the cycle it is compared with, encoded beforehand.
"""

from __future__ import annotations

from time import perf_counter

import apsw


class Floor:
    """A table of rows."""

    def __init__(self, path: str) -> None:
        self._con = apsw.Connection(path)
        self._con.pragma("journal_mode", "wal")
        self._con.pragma("synchronous", "full")
        self._con.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, data BLOB NOT NULL)")

    def write(self, data: bytes) -> float:
        """One row in one transaction; how many seconds it took to become durable."""
        con = self._con
        began = perf_counter()
        con.execute("INSERT INTO rows (data) VALUES (?)", (data,))
        return perf_counter() - began

    def write_group(self, rows: list[bytes]) -> float:
        """Many rows in one transaction."""
        con = self._con
        began = perf_counter()
        con.execute("BEGIN IMMEDIATE")
        con.executemany("INSERT INTO rows (data) VALUES (?)", [(row,) for row in rows])
        con.execute("COMMIT")
        return perf_counter() - began

    def close(self) -> None:
        """Let go of the file."""
        self._con.close()
