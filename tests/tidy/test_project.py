"""The house rules hold for the whole project, and installing it stays light.

Owns: which rule is asked of which files.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import requires

from packaging.requirements import Requirement

import indelible
from tests.tidy import rules
from tests.tidy.tree import ROOT, Source, sources, text_files

Rule = Callable[[Source], Iterator[str]]

MAX_DISTRIBUTIONS = 15
PUBLIC_LAYERS = {"adapters", "agents", "web"}
INNER_LAYERS = {"errors", "core", "stores", "drive", "runtime", "indelible"}
PACKAGE = sources("src")


def layer(source: Source) -> str:
    return rules.layer_of(source.module)


def holds(rule: Rule, files: Iterable[Source]) -> None:
    files = list(files)
    assert files, "the rule was asked of no file"
    assert not [found for source in files for found in rule(source)]


def test_imports_point_left_only() -> None:
    holds(rules.layering, PACKAGE)


def test_outer_layers_use_public_names() -> None:
    holds(rules.private_attributes, [source for source in PACKAGE if layer(source) in PUBLIC_LAYERS])


def test_each_layer_has_its_own_libraries() -> None:
    holds(rules.third_parties, PACKAGE)


def test_extras_are_imported_where_they_are_used() -> None:
    holds(rules.eager_extras, PACKAGE)


def test_clocks_and_chance_come_from_the_drivers() -> None:
    holds(rules.unrecorded, [source for source in PACKAGE if layer(source) != "drive"])


def test_nothing_read_from_disk_becomes_code() -> None:
    """B121, B122: no pickle in any layer."""
    holds(rules.unsafe, PACKAGE)


def test_inner_layers_import_no_module_by_a_computed_name() -> None:
    """B121: a name read from a store is never imported."""
    holds(rules.imports_by_name, [source for source in PACKAGE if layer(source) in INNER_LAYERS])


def test_only_the_command_line_prints() -> None:
    holds(rules.prints, [source for source in PACKAGE if layer(source) != "cli"])


def test_files_and_functions_are_small() -> None:
    holds(rules.sizes, sources())


def test_every_module_says_what_it_owns() -> None:
    holds(rules.docstrings, sources())


def test_modules_are_named_after_what_they_hold() -> None:
    holds(rules.names, sources())


def test_tests_run_and_do_not_sleep() -> None:
    holds(rules.honest_tests, sources("tests"))


def test_no_file_names_a_machine() -> None:
    files = [(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in text_files()]
    assert not [found for path, text in files for found in rules.machine_paths(path, text)]


def test_no_file_promises_the_impossible() -> None:
    files = [(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in text_files()]
    assert not [found for path, text in files for found in rules.boasts(path, text)]


def test_the_public_names_are_the_designed_ones() -> None:
    assert set(indelible.__all__) == rules.PUBLIC
    assert len(indelible.__all__) == len(rules.PUBLIC) <= 15


def test_nothing_else_is_exported_by_accident() -> None:
    (source,) = (source for source in PACKAGE if source.module == "indelible")
    bound = {
        alias.asname or alias.name
        for node in source.tree.body
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
    }
    assert {name for name in bound if not name.startswith("_")} <= rules.PUBLIC


def test_importing_indelible_loads_no_extra_and_no_command_line() -> None:
    script = "import sys, indelible; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = set(done.stdout.split())
    assert {"indelible", "msgspec"} <= loaded
    assert not loaded & (rules.EXTRAS | {"rich", "typer", "pytest", "hypothesis"})


def test_a_core_install_is_small() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = closure(project["dependencies"]) | {"indelible"}
    assert {"apsw", "msgspec", "zstandard", "typer", "rich"} < found
    assert "pydantic" not in found, "see the bound on typer in pyproject.toml"
    assert len(found) <= MAX_DISTRIBUTIONS, sorted(found)


def closure(requirements: Iterable[str], extra: str = "") -> set[str]:
    """Every distribution these requirements bring on this Python, themselves included."""
    found: set[str] = set()
    for text in requirements:
        wanted = Requirement(text)
        if wanted.marker and not wanted.marker.evaluate({"extra": extra}):
            continue
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        for chosen in ["", *sorted(wanted.extras)]:
            found |= {name} | closure(requires(name) or [], chosen)
    return found


def test_the_closure_follows_requirements_and_markers() -> None:
    assert {"rich", "markdown-it-py", "mdurl"} <= closure(["rich>=14"])
    assert closure(["rich; python_version < '3'"]) == set()
