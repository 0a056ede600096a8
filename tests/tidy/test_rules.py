"""Every rule finds a planted violation and passes its harmless neighbour.

Owns: the plants. A check that cannot fail is a defect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.tidy import rules
from tests.tidy.tree import Source, module_name

Rule = Callable[[Source], Iterator[str]]


def source(text: str, path: str = "src/indelible/core/x.py") -> Source:
    return Source(path, module_name(path), text)


CORE, STORES, AGENTS = "src/indelible/core/x.py", "src/indelible/stores/x.py", "src/indelible/agents/x.py"
BILL, TESTING = "src/indelible/bill/x.py", "src/indelible/testing/x.py"
CLI, INIT = "src/indelible/cli/x.py", "src/indelible/__init__.py"

PLANTED: list[tuple[Rule, str, str]] = [
    (rules.layering, CORE, "from indelible.stores.base import Store"),
    (rules.layering, CORE, "from ..stores import base"),
    (rules.layering, CORE, "from indelible import action"),
    (rules.layering, CORE, "def f():\n    import indelible.runtime.runs"),
    (rules.layering, STORES, "import indelible.drive.aio"),
    (rules.layering, STORES, "from indelible import drive"),
    (rules.layering, AGENTS, "from indelible.core.state import State"),
    (rules.layering, AGENTS, "from indelible import core"),
    (rules.layering, AGENTS, "from indelible import secret_door"),
    (rules.layering, INIT, "from .cli import main"),
    (rules.layering, CLI, "from indelible.web import app"),
    (rules.layering, CORE, "from indelible.version import __version__"),
    (rules.layering, BILL, "from indelible.cli import screen"),
    (rules.layering, BILL, "from indelible.drive.clock import SystemClock"),
    (rules.layering, INIT, "from .bill import prices"),
    (rules.layering, TESTING, "from indelible.bill import prices"),
    (rules.private_attributes, AGENTS, "import indelible as ind\nind.core"),
    (rules.third_parties, CORE, "import apsw"),
    (rules.third_parties, CORE, "import psycopg.rows"),
    (rules.third_parties, STORES, "from asyncpg import connect"),
    (rules.third_parties, AGENTS, "import rich"),
    (rules.third_parties, INIT, "import msgspec"),
    (rules.eager_extras, AGENTS, "import openai"),
    (rules.eager_extras, AGENTS, "try:\n    from openai import OpenAI\nexcept ImportError:\n    pass"),
    (rules.unrecorded, CORE, "import time\ntime.time()"),
    (rules.unrecorded, CORE, "from time import time as t\nt()"),
    (rules.unrecorded, CORE, "import time\nclock = time.time"),
    (rules.unrecorded, CORE, "import datetime as dt\ndt.datetime.now()"),
    (rules.unrecorded, CORE, "from datetime import datetime\ndatetime.utcnow()"),
    (rules.unrecorded, CORE, "import uuid\nuuid.uuid4()"),
    (rules.unrecorded, CORE, "import random\nrandom.Random(3)"),
    (rules.unrecorded, CORE, "from random import choice\nchoice([1])"),
    (rules.unrecorded, CORE, "import asyncio\nasync def f():\n    await asyncio.sleep(1)"),
    (rules.unrecorded, CORE, "import time\ntime.sleep(1)"),
    (rules.unrecorded, STORES, "import time\ntime.time()"),
    (rules.unsafe, CORE, "import pickle"),
    (rules.unsafe, CLI, "from pickle import loads"),
    (rules.unsafe, CORE, "eval('1')"),
    (rules.unsafe, CORE, "exec('1')"),
    (rules.unsafe, CORE, "import builtins\nbuiltins.exec('1')"),
    (rules.imports_by_name, CORE, "import importlib\nimportlib.import_module(name)"),
    (rules.imports_by_name, CORE, "from importlib import import_module\nimport_module(name)"),
    (rules.imports_by_name, CORE, "__import__(name)"),
    (rules.prints, CORE, "print('hello')"),
    (rules.sizes, CORE, "x = 1\n" * 500),
    (rules.sizes, CORE, "def f():\n" + "    x = 1\n" * 69),
    (rules.sizes, CORE, "class C:\n    async def f(self):\n" + "        x = 1\n" * 69),
    (rules.docstrings, CORE, "x = 1"),
    (rules.names, "src/indelible/core/utils.py", ""),
    (rules.names, "src/indelible/helpers/x.py", ""),
    (rules.honest_tests, "tests/unit/test_x.py", "import pytest\n@pytest.mark.skip\ndef test_x(): ..."),
    (rules.honest_tests, "tests/unit/test_x.py", "import pytest\n@pytest.mark.xfail(strict=True)\ndef test_x(): ..."),
    (rules.honest_tests, "tests/unit/test_x.py", "import pytest\ndef test_x():\n    pytest.skip('later')"),
    (rules.honest_tests, "tests/unit/test_x.py", "import time\ntime.sleep(1)"),
]

HARMLESS: list[tuple[Rule, str, str]] = [
    (rules.layering, BILL, "from indelible.core.record import Record\nfrom indelible.errors import Misuse"),
    (rules.layering, CLI, "from indelible.bill import prices"),
    (rules.layering, BILL, "from indelible.stores.sqlite import SqliteStore"),
    (rules.layering, CORE, "from indelible.errors import Misuse\nfrom indelible.core import state"),
    (rules.layering, CORE, "from . import state\nfrom .state import State"),
    (rules.layering, STORES, "from indelible.core.events import Event"),
    (
        rules.layering,
        AGENTS,
        "import indelible as ind\nfrom indelible import action, errors\nfrom .models import Model",
    ),
    (rules.layering, INIT, "from indelible.runtime.runs import Run\nfrom indelible import errors"),
    (rules.layering, CLI, "from indelible.agents.researcher import research"),
    (rules.layering, "src/indelible/__main__.py", "from indelible.cli.main import main"),
    (rules.private_attributes, AGENTS, "import indelible as ind\nind.action\nind.errors.InDoubt"),
    (rules.third_parties, CORE, "import json\nimport msgspec"),
    (rules.eager_extras, AGENTS, "def f():\n    import openai"),
    (rules.eager_extras, AGENTS, "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import openai"),
    (rules.unrecorded, CORE, "import time\ntime.monotonic()"),
    (rules.unrecorded, STORES, "import time\ntime.sleep(1)"),
    (rules.unrecorded, CORE, "def random(run):\n    return run.random.random()"),
    (rules.unsafe, CORE, "def f(x):\n    x.eval()"),
    (rules.imports_by_name, CORE, "import importlib\nimportlib.import_module('json')"),
    (rules.prints, CORE, "pprint = 1\nconsole.print(1)"),
    (rules.sizes, CORE, "x = 1\n" * 499),
    (rules.sizes, CORE, "def f():\n" + "    x = 1\n" * 68),
    (rules.docstrings, CORE, '"""Owns nothing."""\nx = 1'),
    (rules.docstrings, CORE, ""),
    (rules.names, "src/indelible/core/costs.py", ""),
    (
        rules.honest_tests,
        "tests/unit/test_x.py",
        "import pytest\n@pytest.mark.parametrize('x', [1])\ndef test_x(x): ...",
    ),
]


@pytest.mark.parametrize(("rule", "path", "text"), PLANTED)
def test_a_planted_violation_is_found(rule: Rule, path: str, text: str) -> None:
    assert list(rule(source(text, path)))


@pytest.mark.parametrize(("rule", "path", "text"), HARMLESS)
def test_what_is_allowed_passes(rule: Rule, path: str, text: str) -> None:
    assert not list(rule(source(text, path)))


@pytest.mark.parametrize("tail", ["root/x.py", "work/main/x", "home/ann/notes", "Users/ann/notes"])
def test_a_path_of_one_machine_is_found(tail: str) -> None:
    assert list(rules.machine_paths("README.md", f"see /{tail}"))


@pytest.mark.parametrize("text", ["/tmp/agent.db", "https://example.org/home/ann/x", "frame.work/main/x", "src/work/x"])
def test_other_paths_pass(text: str) -> None:
    assert not list(rules.machine_paths("README.md", text))


@pytest.mark.parametrize(
    "text", ["It runs exactly {}.", "We do not lie. Mail is sent exactly-{}!", "| exactly {} | no |"]
)
def test_a_promise_nobody_can_keep_is_found(text: str) -> None:
    assert list(rules.boasts("README.md", text.format("once")))


@pytest.mark.parametrize("text", ["Exactly-{} is impossible.", "This is not\nexactly {}.", "It runs once."])
def test_its_denial_passes(text: str) -> None:
    assert not list(rules.boasts("README.md", text.format("once")))
