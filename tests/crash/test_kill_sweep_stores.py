"""The sweep of kills on every kind of store: a server that lives on while its clients die, and a folder of objects."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from indelible.testing import crash
from tests.crash.test_kill_sweep import AGENTS, MEMORY, RULES, person
from tests.figures import tell
from tests.servers import postgres, seaweed, valkey

FULL = os.environ.get("INDELIBLE_FULL_SWEEPS") == "1"
"""`make prove` kills both agents at every point; the tests kill one on each store but S3, at every third."""


def in_postgres(_: Path) -> str:
    return postgres.server().database()


def in_valkey(_: Path) -> str:
    return valkey.server("always").fresh()


def in_a_folder(place: Path) -> str:
    return f"file://{place}/objects"


def in_s3(_: Path) -> str:
    return seaweed.server().fresh()[0]


ONCE = [(in_postgres, "steward"), (in_valkey, "asteward"), (in_a_folder, "steward")]
ALL = [(store, name) for store in (in_postgres, in_valkey, in_a_folder, in_s3) for name in ("steward", "asteward")]


@pytest.mark.parametrize(("store", "name"), ALL if FULL else ONCE)
def test_killed_at_every_point_on_every_store(
    store: Callable[[Path], str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B01, B02, B09, B50, B69: nothing is lost and nothing done twice, whatever holds the journal."""
    for variable, value in seaweed.server().fresh()[1].items() if store is in_s3 else ():
        monkeypatch.setenv(variable, value)
    target = crash.Target(f"{AGENTS}:{name}", "Look after the guests", rules=RULES, reply=person, store=store)
    with TemporaryDirectory(dir=MEMORY) as folder:
        report = crash.sweep(target, folder, twice=4, stride=1 if FULL else 3)
    tell(f"{store.__name__.removeprefix('in_')}, {name}: {report}")
    assert not report.problems
    assert report.points > 80
    assert report.kills > report.points / (1 if FULL else 3)
    assert sum(report.labels[label] for label in ("before append", "after append")) > 10
