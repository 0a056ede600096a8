"""The table of evidence: what was found, what was to be found, and whether the two agree.

Owns: a line of the table, and the lines that do not depend on how an agent keeps its state.
Must never: take an agent's word for what can be counted outside of it.
Invariant: a line that has an expectation is computed twice, from different sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from email import message_from_bytes
from email.policy import default
from pathlib import Path

from indelible.agents.corpus import Corpus, verify_quote
from indelible.agents.prompts import Note
from indelible.cli.demo_killing import BETWEEN, HELD, IN_CALL, Course
from indelible.cli.demo_room import Paid


@dataclass(frozen=True)
class Line:
    """One line of the table. `ok` is None where nothing is claimed."""

    what: str
    found: str
    expected: str
    ok: bool | None


@dataclass(frozen=True)
class Result:
    """What a demonstration came to."""

    lines: list[Line]
    course: Course
    reference: Course

    @property
    def ok(self) -> bool:
        """True if every line that claims something holds."""
        return all(line.ok is not False for line in self.lines)


def exactly(what: str, found: object, expected: object, note: str = "") -> Line:
    """A line whose two sides must be equal."""
    return Line(what, str(found), f"{expected}{note}", found == expected)


@dataclass(frozen=True)
class Calls:
    """The model calls of a run, sorted by why they were made."""

    made: int
    needed: int
    lost_in_call: int
    """Begun, and the process was gone before the answer came."""
    lost_unkept: int
    """Answered, and the process was gone before the answer was durable."""
    repeated: int
    """Made again although the answer was kept."""


def sort_calls(made: list[Paid], kept_before: dict[int, frozenset[str]]) -> Calls:
    """`kept_before` holds, for each process, the calls whose answers were durable when it began."""
    seen: dict[str, Paid] = {}
    in_call = unkept = repeated = 0
    for paid in made:
        before = seen.get(paid.call)
        kept = paid.call in kept_before.get(paid.process, frozenset())
        if kept or (before is not None and before.process == paid.process):
            repeated += 1
        elif before is not None and not before.ended:
            in_call += 1
        elif before is not None:
            unkept += 1
        seen[paid.call] = paid
    return Calls(len(made), len(seen), in_call, unkept, repeated)


def kill_lines(course: Course, wanted: int) -> list[Line]:
    """How often, and where, the processes were killed."""
    where = [kill.where for kill in course.kills]
    return [
        exactly("killed with SIGKILL", len(where), wanted),
        Line(f"  {IN_CALL}", str(where.count(IN_CALL)), "-", None),
        Line(f"  {BETWEEN}", str(where.count(BETWEEN)), "-", None),
        Line("  delivered, not recorded", str(where.count(HELD)), "at least 1", HELD in where),
    ]


def quote_line(notes: list[Note], corpus: Corpus) -> Line:
    """Every quote, looked up again."""
    quotes = [quote for note in notes for quote in note.quotes]
    good = sum(verify_quote(corpus, quote) for quote in quotes)
    return Line("quotes found in their source", f"{good}", f"{len(quotes)}", good == len(quotes) > 0)


def mail_line(course: Course, report: object) -> Line:
    """Every mail in the Maildir, read."""
    mails = course.room.mails()
    same = sum(message_from_bytes(mail.read_bytes(), policy=default).get_content() == report for mail in mails)
    return Line("mails with the run's report", str(same), f"{len(mails)}", same == len(mails) > 0)


def mail_id(path: Path) -> str:
    """The mail's Message-ID."""
    return str(message_from_bytes(path.read_bytes(), policy=default)["Message-ID"])
