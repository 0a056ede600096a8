"""No password that stands in a store's URL is shown again: not in an error, and not in a command to paste."""

from __future__ import annotations

import pytest

from indelible.cli.faults import lines
from indelible.cli.options import command
from indelible.errors import IndelibleError, Misuse
from indelible.stores import open_store
from indelible.stores.addresses import shown

SECRET = "S3cr3tZZ"


@pytest.mark.parametrize(
    ("typed", "seen"),
    [
        (f"postgresql://u:{SECRET}@h:5432/db", "postgresql://u@h:5432/db"),
        (f"postgresql://u:a@{SECRET}/@h/db?sslmode=require", "postgresql://u@h/db?sslmode=require"),
        (f"postgresql://u@h/db?password={SECRET}&sslmode=require", "postgresql://u@h/db?sslmode=require"),
        (f"postgresql://u@h/db?sslmode=require&sslpassword={SECRET}", "postgresql://u@h/db?sslmode=require"),
        (f"redis://:{SECRET}@h/0", "redis://@h/0"),
        (f"redis://u:12/{SECRET}?@h/0?prefix=a", "redis://u@h/0?prefix=a"),
        (f"s3://b/x?endpoint=http://k:{SECRET}@h:1&region=r", "s3://b/x?endpoint=http://k@h:1&region=r"),
        ("postgresql://u@h:5432/db?sslmode=require", "postgresql://u@h:5432/db?sslmode=require"),
        ("s3://b/x?endpoint=http://h:1&region=r", "s3://b/x?endpoint=http://h:1&region=r"),
        ("redis://h:6379/0?prefix=a:b", "redis://h:6379/0?prefix=a:b"),
        ("runs:a@b.db", "runs:a@b.db"),
    ],
)
def test_a_url_is_shown_without_its_password(typed: str, seen: str) -> None:
    assert shown(typed) == seen


def test_a_command_to_paste_and_a_hint_hold_no_password() -> None:
    store = f"redis://u:{SECRET}@h:6379/0?prefix=a"
    assert command("show", "r", store=store) == "indelible show --store 'redis://u@h:6379/0?prefix=a' r"
    told = list(lines(IndelibleError("gone", hint="indelible ls"), store))
    assert told[1] == "  try: indelible ls --store 'redis://u@h:6379/0?prefix=a'"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql+psycopg://u:{SECRET}@h/db",
        f"mysql://u:{SECRET}@h/db",
        f"sqlite://u:{SECRET}@h/x",
        f"redis://u:12/{SECRET}@h/0",
        f"redis://u:?{SECRET}@h/0",
        f"s3://b/x?endpoint=http://k:{SECRET}@h:1",
        f"s3://b/x?endpoint=k:{SECRET}@h:1",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(Misuse) as refused:
        open_store(url, clock=float)
    assert SECRET not in str(refused.value)
    assert refused.value.hint


def test_the_scheme_may_be_written_in_capitals() -> None:
    from indelible.stores.postgres_place import place_of

    assert place_of("POSTGRESQL://u@h/db").url == place_of("postgresql://u@h/db").url
