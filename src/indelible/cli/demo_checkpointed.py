"""The naive agent, as the demonstration looks at it from outside.

Owns: what is claimed of a plain checkpoint, so that one sees which claims break.
Must never: count against it what no way of keeping state could avoid.
Invariant: the claims are those that are made of the journal, as far as a checkpoint can be asked about them.
"""

from __future__ import annotations

from indelible.agents.corpus import Corpus
from indelible.cli.demo_evidence import Line, exactly, kill_lines, mail_line, quote_line
from indelible.cli.demo_killing import Course, Standing
from indelible.cli.demo_naive import State, load, notes_of
from indelible.cli.demo_room import Room


class Checkpointed:
    """The same agent with a JSON checkpoint after every loop."""

    module = "indelible.cli.demo_naive"

    def standing(self, room: Room) -> Standing:
        """See `Subject.standing`."""
        state = load(room)
        if state is None:
            return Standing(1, 0, "before the first checkpoint", unrecorded=True)
        return Standing(state["loop"] + 1, len(state["tasks"]), f"after checkpoint {state['loop']}",
                        unrecorded=state["report"] is None)  # fmt: skip

    def resumed(self, standing: Standing) -> str:
        """See `Subject.resumed`."""
        return f"loop {standing.cycle} is run again from its beginning"

    def evidence(self, course: Course, reference: Course, wanted: int, corpus: Corpus, comparable: bool) -> list[Line]:
        """The table."""
        run, calm = _state(course.room), _state(reference.room)
        mails = course.room.mails()
        answered = sum(paid.ended for paid in course.calls)
        needed = len({paid.call for paid in course.calls if paid.ended})
        lines = [
            *kill_lines(course, wanted),
            Line("model calls made", str(len(course.calls)), "-", None),
            exactly("  repeated though answered", answered - needed, 0),
            Line("  lost in mid-call", str(len(course.calls) - answered),
                 f"at most {len(course.kills)}: 1 per kill", len(course.calls) - answered <= len(course.kills)),
            exactly("deliveries in the Maildir", len(mails), 1),
            exactly("tasks added", run["added"], run["done"] + len(run["tasks"]), " done + waiting"),
            quote_line(notes_of(run), corpus),
            mail_line(course, run["report"]),
            Line("bytes: a dump per loop", f"{course.saved_bytes:,}", "-", None),
        ]  # fmt: skip
        if comparable:
            same = run == calm
            lines.append(Line("final state and report", "equal" if same else "differs",
                              "as in the uninterrupted run", same))  # fmt: skip
        return lines


def _state(room: Room) -> State:
    state = load(room)
    assert state is not None
    return state
