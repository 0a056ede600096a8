"""`indelible doctor`: a store, examined.

Owns: how findings are shown, and the exit code.
Must never: open a store for writing.
Invariant: exit code 0 unless something is bad; what is worth a note does not fail a deploy.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import asdict

from indelible.cli.options import DEFAULT_STORE, FAULT, FINISHED
from indelible.cli.reading import reading
from indelible.cli.screen import dump, many, safe, say
from indelible.runtime.doctoring import Examination, examine
from indelible.stores.addresses import shown

SHOWN = 20
"""So many findings of one part are shown; --json has them all."""
PARTS = ("store", "clock", "leases", "orphans", "integrity", "growth", "notices")
_MARKS = {"ok": "  ok  ", "note": " note ", "bad": " BAD  "}
_COMMAND = re.compile(r"^indelible \w+(?!.*--store)")


def doctor(store: str, quick: bool, as_json: bool) -> int:
    """Examine the store, and say what is so, what is worth a note, and what is bad."""
    with reading(store) as runs:
        found = examine(runs, quick)
    if as_json:
        dump({
            "store": found.url, "verdict": found.verdict, "runs": found.runs, "verified": found.verified,
            "findings": [{**asdict(finding), "hint": _command(finding.hint, store)} for finding in found.findings],
        })  # fmt: skip
    else:
        _say(found, store)
    return FAULT if found.verdict == "bad" else FINISHED


def _say(found: Examination, store: str) -> None:
    for part in PARTS:
        ordered = sorted(
            (finding for finding in found.findings if finding.part == part),
            key=lambda finding: ("bad", "note", "ok").index(finding.verdict) if part != "store" else 0,
        )
        for finding in ordered[:SHOWN]:
            say(f"{_MARKS[finding.verdict]} {part}: {safe(finding.what)}")
            if finding.hint and finding.verdict != "ok":
                say(f"         try: {safe(_command(finding.hint, store))}")
        if len(ordered) > SHOWN:
            say(f"       {part}: {len(ordered) - SHOWN:,} more; --json lists all")
    bad = sum(finding.verdict == "bad" for finding in found.findings)
    notes = sum(finding.verdict == "note" for finding in found.findings)
    read = "all verified" if found.verified >= found.runs else f"{found.verified:,} of them read through"
    word = {"ok": "all is well", "note": "nothing is bad", "bad": "SOMETHING IS BAD"}[found.verdict]
    say(f"{word}: {many(bad, 'fault')}, {many(notes, 'note')}; {many(found.runs, 'run')}, {read}")


def _command(hint: str, store: str) -> str:
    """A hint that is one of our commands names the store."""
    if store == os.environ.get("INDELIBLE_STORE", DEFAULT_STORE):
        return hint
    return _COMMAND.sub(lambda verb: f"{verb[0]} --store {shlex.quote(shown(store))}", hint)
