"""What the commands share: their options, the exit codes, and the spelling of commands.

Owns: the words a person may type.
Must never: open a store.
Invariant: a command that is shown can be pasted into a shell as it stands; a password is not part of it.
"""

from __future__ import annotations

import os
import shlex
from typing import Annotated

import typer

from indelible.stores.addresses import shown

FINISHED, FAULT, MISUSE, PARKED, FAILED, FOUND = 0, 1, 2, 3, 4, 5

DEFAULT_STORE = "agent.db"

EXIT_CODES = """Exit codes: 0 finished (or done), 1 an error (store, damage, your code), 2 misuse, 3 parked: it
waits for a person or a time, 4 the run failed, 5 a proof found something, 130 stopped by Ctrl-C,
143 stopped by SIGTERM."""

Store = Annotated[str, typer.Option("--store", envvar="INDELIBLE_STORE", help="The file (or URL) that holds the runs.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id; see 'indelible ls'.")]
Corpus = Annotated[
    str | None,
    typer.Option("--corpus", metavar="DIR", help="The folder of text to research (else Python's documentation)."),
]
Deliver = Annotated[
    str | None,
    typer.Option(
        "--deliver", metavar="WHERE", help="Where the report goes: maildir:DIR/ (else maildir:out/) or smtp://HOST."
    ),
]
To = Annotated[str | None, typer.Option("--to", metavar="ADDRESS", help="Whom the report is for.")]
Model = Annotated[
    str | None, typer.Option("--model", metavar="MODEL", help="local, openai:NAME or scripted (else what is there).")
]


Budget = Annotated[
    float | None, typer.Option("--budget", metavar="USD", help="What the run may spend in all, in US dollars.")
]
ANSWERS = {
    "approve": "yes | no", "diverged": "recorded | both", "budget": "--budget USD", "unpriced": "yes",
}  # fmt: skip
"""What may be answered to each kind of wait; to any other, any text."""


def command(verb: str, run_id: str, *rest: str, store: str) -> str:
    """A command about a run, ready to be pasted. `rest` is taken as it is, placeholders included."""
    words = ["indelible", verb]
    if store != os.environ.get("INDELIBLE_STORE", DEFAULT_STORE):
        words += ["--store", shlex.quote(shown(store))]
    if run_id.startswith("-"):  # behind "--" nothing is an option any more
        words += [*(word for word in rest if word.startswith("--")), "--"]
        rest = tuple(word for word in rest if not word.startswith("--"))
    return " ".join([*words, shlex.quote(run_id), *rest])
