"""The house rules, each as a small pure function from a source file to its violations.

Owns: the layer table, the lists of banned things, and the limits.
Must never: read a file or know where the project lies; `tree` does that.
Invariant: a rule answers with one line per violation, `path:line: what`, and every rule
is shown a planted violation in `test_rules.py`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from tests.tidy.tree import Source

MAX_FILE_LINES = 499
MAX_FUNCTION_LINES = 69
VAGUE_NAMES = {"util", "utils", "helper", "helpers", "common", "misc"}

PUBLIC = {
    *("action", "agent", "open", "State", "Queue", "Log", "Map", "Run", "usage"),
    *("happened", "did_not_happen", "unknown", "DidNotHappen", "errors", "__version__"),
}

# errors <- core <- {stores, drive} <- runtime <- indelible (public) <- {adapters, agents, cli, web, testing}
# bill stands beside agents; it looks into core's records, writes a run into a store of its own to measure it, and
# only the command line knows of it.
# A layer may import from itself and from these. "indelible" means the names in PUBLIC. The version, one constant, is
# named where a release writes itself down.
LAYERS: dict[str, set[str]] = {
    "version": set(),
    "errors": set(),
    "core": {"errors"},
    "stores": {"errors", "core"},
    "drive": {"errors", "core"},
    "runtime": {"version", "errors", "core", "stores", "drive"},
    "indelible": {"version", "errors", "core", "stores", "drive", "runtime"},
    "adapters": {"errors", "indelible"},
    "agents": {"errors", "indelible"},
    "web": {"errors", "indelible"},
    "testing": {"errors", "core", "stores", "drive", "runtime", "indelible"},
    "bill": {"errors", "core", "stores", "runtime", "indelible"},
    "cli": {"errors", "core", "stores", "drive", "runtime", "indelible", "agents", "testing", "bill"},
}

# What a layer may import beside the standard library.
THIRD_PARTY: dict[str, set[str]] = {
    "core": {"msgspec", "zstandard"},
    "stores": {"apsw", "msgspec", "obstore", "psycopg", "redis"},
    "runtime": {"genai_prices", "msgspec"},
    "bill": {"apsw", "matplotlib", "zstandard"},
    "agents": {"apsw", "openai", "xllamacpp"},
    "cli": {"rich", "typer"},
    "testing": {"apsw", "msgspec", "pytest"},
}
# Installed by an extra, so imported inside the function that needs it.
EXTRAS = {"genai_prices", "matplotlib", "obstore", "openai", "pydantic", "xllamacpp"}

# Answers that differ from run to run come from the driver, which records them.
UNRECORDED = {
    *("time.time", "time.time_ns", "time.sleep", "asyncio.sleep", "uuid.uuid1", "uuid.uuid4", "os.urandom"),
    *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today"),
}
UNRECORDED_MODULES = {"random", "secrets"}
# A store blocks by nature and sits below the drivers: it may wait for a lock, which leaves no trace in a journal.
# It may draw a nonce, which no journal holds.
# A model client runs inside an action: it may pause before it asks again, and make up the password of its own server.
EXEMPT = {"stores": {"time.sleep", "os.urandom"}, "agents": {"time.sleep", "secrets.token_urlsafe"}}
UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "shelve", "marshal"}
SKIPS = {"pytest.skip", "pytest.importorskip", "pytest.xfail", "unittest.skip"}
SKIP_MARKS = {"pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail"}


def layer_of(module: str) -> str:
    """The layer a module of the package belongs to; "" for a module outside the package."""
    parts = module.split(".")
    if parts[0] != "indelible":
        return ""
    if module == "indelible.__main__":
        return "cli"  # another way to type the same commands
    return parts[1] if len(parts) > 1 and parts[1] in LAYERS else "indelible"


def _absolute(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = source.module.split(".")
    if not source.path.endswith("__init__.py"):
        package = package[:-1]
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def imports(source: Source) -> Iterator[tuple[int, str, str]]:
    """Each import as (line, module, name); the name is "" where a whole module is imported."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, _absolute(source, node), alias.name


def layering(source: Source) -> Iterator[str]:
    """Imports point left only, and the outer layers see public names only."""
    own = layer_of(source.module)
    for line, module, name in imports(source):
        if module.split(".")[0] != "indelible" or not own:
            continue
        wanted = layer_of(f"{module}.{name}" if module == "indelible" and name else module)
        if wanted != own and wanted not in LAYERS[own]:
            yield f"{source.path}:{line}: {own} may not import from {wanted}"
        elif wanted == "indelible" and name and name not in PUBLIC:
            yield f"{source.path}:{line}: {name} is not a public name of indelible"


def third_parties(source: Source) -> Iterator[str]:
    """Each layer imports only the libraries it was given."""
    own = layer_of(source.module)
    allowed = THIRD_PARTY.get(own, set())
    for line, module, _ in imports(source):
        top = module.split(".")[0]
        if top not in sys.stdlib_module_names and top != "indelible" and top not in allowed:
            yield f"{source.path}:{line}: {own} may not import {top}"


def eager_extras(source: Source) -> Iterator[str]:
    """An extra is imported where it is used, so that everything else works without it."""
    lazy = {
        id(node)
        for outer in ast.walk(source.tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        or (isinstance(outer, ast.If) and "TYPE_CHECKING" in ast.unparse(outer.test))
        for node in ast.walk(outer)
    }
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import) and id(node) not in lazy:
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and id(node) not in lazy:
            modules = [node.module or ""]
        else:
            continue
        for top in EXTRAS.intersection(module.split(".")[0] for module in modules):
            yield f"{source.path}:{node.lineno}: {top} is an extra; import it inside the function that needs it"


def references(source: Source) -> Iterator[tuple[ast.expr, str]]:
    """Every use of a name, spelled in full: `t` after `from time import time as t` is `time.time`."""
    tree = source.tree
    full: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                full[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                full[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node, full.get(node.id, node.id)
        elif isinstance(node, ast.Attribute):
            base, _, rest = ast.unparse(node).partition(".")
            if base in full:
                yield node, f"{full[base]}.{rest}"


def calls(source: Source) -> Iterator[tuple[ast.Call, str]]:
    """Every call of a plain or dotted name, spelled in full."""
    names = {id(node): name for node, name in references(source)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and id(node.func) in names:
            yield node, names[id(node.func)]


def private_attributes(source: Source) -> Iterator[str]:
    """`import indelible as ind` opens the public names and no others."""
    for node, name in references(source):
        top, _, rest = name.partition(".")
        if top == "indelible" and rest and rest.split(".")[0] not in PUBLIC and "." not in rest:
            yield f"{source.path}:{node.lineno}: {name} is not a public name of indelible"


def unrecorded(source: Source) -> Iterator[str]:
    """Clocks, randomness and sleeping belong to the drivers."""
    for node, name in references(source):
        if name in EXEMPT.get(layer_of(source.module), ()):
            continue
        if name in UNRECORDED or ("." in name and name.split(".")[0] in UNRECORDED_MODULES):
            yield f"{source.path}:{node.lineno}: {name} is for drive/ alone; take it as an argument or yield a request"


def unsafe(source: Source) -> Iterator[str]:
    """Nothing read from disk may become code."""
    for line, module, _ in imports(source):
        if module.split(".")[0] in UNSAFE_MODULES:
            yield f"{source.path}:{line}: {module} can run code that was read from disk"
    for node, name in calls(source):
        if name.removeprefix("builtins.") in {"eval", "exec"}:
            yield f"{source.path}:{node.lineno}: {name}() runs text as code"


def imports_by_name(source: Source) -> Iterator[str]:
    """The inner layers import only modules that are named in the source."""
    for node, name in calls(source):
        named = bool(node.args) and isinstance(node.args[0], ast.Constant)
        if name in {"importlib.import_module", "__import__"} and not named:
            yield f"{source.path}:{node.lineno}: {name}() of a name that does not stand here"


def prints(source: Source) -> Iterator[str]:
    """A library is silent; only the command line prints."""
    for node, name in calls(source):
        if name == "print":
            yield f"{source.path}:{node.lineno}: print() outside cli/"


def sizes(source: Source) -> Iterator[str]:
    """A file and a function each fit into a head."""
    lines = len(source.text.splitlines())
    if lines > MAX_FILE_LINES:
        yield f"{source.path}:1: {lines} lines, the limit is {MAX_FILE_LINES}"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield f"{source.path}:{node.lineno}: {node.name} has {length} lines, the limit is {MAX_FUNCTION_LINES}"


def docstrings(source: Source) -> Iterator[str]:
    """Every module that holds something says what it owns."""
    if source.tree.body and not ast.get_docstring(source.tree):
        yield f"{source.path}:1: no module docstring"


def names(source: Source) -> Iterator[str]:
    """A module is named after what it holds."""
    for part in source.module.split("."):
        if part in VAGUE_NAMES:
            yield f"{source.path}:1: {part} says nothing; name the module after its one noun"


def honest_tests(source: Source) -> Iterator[str]:
    """A test runs, always, and waits for a fact and not for a time; to let other tasks run is no waiting."""
    lines = source.text.splitlines()
    for node, name in references(source):
        if name in SKIPS or name in SKIP_MARKS:
            yield f"{source.path}:{node.lineno}: {name}: a test that does not run proves nothing"
        elif name in {"time.sleep", "asyncio.sleep"} and "asyncio.sleep(0)" not in lines[node.lineno - 1]:
            yield f"{source.path}:{node.lineno}: {name}: wait for a fact and not for a time"


def machine_paths(path: str, text: str) -> Iterator[str]:
    """Nothing depends on, or tells of, the machine it was written on."""
    homes = re.compile(r"(?<![\w.])/(?:work|root|home/\w+|Users/\w+)/[\w.]|[A-Z]:\\Users\\")
    for number, line in enumerate(text.splitlines(), 1):
        if homes.search(line):
            yield f"{path}:{number}: a path of one machine"


def boasts(path: str, text: str) -> Iterator[str]:
    """Nobody can perform a deed in the outside world just one time by promise; say so or say nothing."""
    claim = re.compile(r"exactly[\s-]+once", re.IGNORECASE)
    denial = re.compile(r"\b(?:not?|never|cannot|impossible|nobody|none|without)\b|n't\b", re.IGNORECASE)
    for sentence in re.split(r"(?<=[.!?:;])\s|\n\s*\n|\|", text):
        if claim.search(sentence) and not denial.search(sentence):
            yield f"{path}: {' '.join(sentence.split())[:80]!r} promises too much"
