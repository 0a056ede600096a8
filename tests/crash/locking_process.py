"""Someone else's program on the same file: `locking_process.py STORE` holds the write lock from word to word."""

from __future__ import annotations

import sys

import apsw


def main(store: str) -> None:
    connection = apsw.Connection(store)
    while sys.stdin.readline():
        connection.execute("BEGIN IMMEDIATE")
        sys.stdout.write("locked\n")
        sys.stdout.flush()
        sys.stdin.readline()
        connection.execute("ROLLBACK")
        sys.stdout.write("free\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
