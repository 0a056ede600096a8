"""What a user can call is on a page: methods of the fields of a state, what `usage` takes, commands, extras."""

from __future__ import annotations

import inspect
import re
import tomllib

import pytest

import indelible as ind
from indelible.cli.main import app
from tests.tidy.tree import ROOT

CONCEPTS = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", [ind.Queue, ind.Log, ind.Map])
def test_every_method_of_a_field_is_in_the_table(kind: type) -> None:
    table = CONCEPTS[CONCEPTS.index("| `Queue` | |") : CONCEPTS.index("## The cycle")]
    part = re.split(r"(?m)^\| \*{0,2}`\w+`\*{0,2} \| \|$", table)[1 + ["Queue", "Log", "Map"].index(kind.__name__)]
    own = [name for name in vars(kind) if not name.startswith("_")]
    assert own
    assert [name for name in own if f"`{name}`" not in part and f"`{name}(" not in part] == []


def test_every_parameter_of_usage_is_in_the_table() -> None:
    table = CONCEPTS[CONCEPTS.index("| `ind.usage(...)` |") : CONCEPTS.index("## The journal")]
    for name, parameter in inspect.signature(ind.usage).parameters.items():
        shown = name if parameter.kind is inspect.Parameter.POSITIONAL_ONLY else f"{name}="
        assert f"`{shown}`" in table


def test_every_command_and_extra_is_in_the_readme() -> None:
    commands = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
    assert "delete" in commands
    assert [name for name in commands if f"`indelible {name}" not in README] == []
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert [name for name in extras if name != "dev" and f"`{name}`" not in README] == []
