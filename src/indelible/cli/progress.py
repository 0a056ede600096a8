"""What a run is doing, while it does it.

Owns: the live display on a terminal, and the lines elsewhere. Both on standard error.
Must never: raise into the run it watches, or touch the run's own record.
Invariant: what is shown is the fold of the events seen, by the same `fold` as the run's.
"""

from __future__ import annotations

import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

from indelible.cli.screen import brief, dollars, many, moment, note, safe
from indelible.core import events as ev
from indelible.core.changes import DONE, FAILED, ITEMS
from indelible.core.codec import unpack
from indelible.core.failures import placed
from indelible.core.record import DEEDS, Record, fold
from indelible.core.record import FAILED as RUN_FAILED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderableType

    from indelible.cli.stopping import Stopping


class Progress:
    """Watches one run. Give `saw` to it as its observer."""

    def __init__(self, record: Record, stopping: Stopping, agent: str) -> None:
        self._record = record
        self._stopping = stopping
        self._agent = agent
        self._announced = False
        self._doing = "opening the run"
        self._since = monotonic()
        self._facts: list[str] = []
        self._live: Any = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            self._live = self._display()
            self._live.start()
            self._stopping.on_terminal = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._stopping.on_terminal = False
            self._live.stop()

    @property
    def failed_tasks(self) -> int:
        """How many tasks the run has given up so far."""
        return self._record.failed_tasks

    def saw(self, event: ev.Event) -> None:
        """Take an event in. Never raises: a terminal that went away is no reason to end the run."""
        record = self._record
        fold(record, record.seq + 1, event)
        text = self._line(event)
        self._doing, self._since = self._now_doing(event), monotonic()
        self._facts = self._counts()
        if not text:
            return
        try:
            if self._live is None:
                note(text)
            else:
                self._live.console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)
        except (OSError, ValueError):
            pass

    def _line(self, event: ev.Event) -> str:
        """The line for an event that is worth one."""
        if isinstance(event, ev.RunClaimed) and not self._announced:
            self._announced = True
            what = "accepted" if self._record.claims == 1 else "resumed"
            if self._record.status == RUN_FAILED:
                return ""  # it is said when it is taken up again
            return f"run {safe(self._record.run_id)} {what}: {brief(_objective(self._record))}"
        if isinstance(event, ev.RunReopened):
            return f"run {safe(self._record.run_id)} is tried again: {brief(_objective(self._record))}"
        if isinstance(event, ev.CycleCommitted):
            return "" if self._live is not None else f"cycle {event.cycle}: {', '.join(self._counts())}"
        if isinstance(event, ev.CycleRolledBack):
            end = "given up" if event.gave_up else f"attempt {event.attempt} rolled back"
            return f"cycle {event.cycle}: {end}: {safe(placed(brief(event.error, 200), event.where))}"
        if isinstance(event, ev.ActionCompleted) and event.effect in DEEDS:
            return f"cycle {event.cycle}: {safe(event.name)} done ({safe(event.call)})"
        if isinstance(event, ev.ActionDoubted):
            return f"cycle {event.cycle}: {safe(event.name)} is in doubt: {safe(event.reason, 200)}"
        if isinstance(event, ev.CycleParked) and event.wake_at:
            return f"cycle {event.cycle}: waits until {moment(event.wake_at)}"
        return ""

    def _now_doing(self, event: ev.Event) -> str:
        if isinstance(event, ev.ActionIntended):
            return f"{safe(event.name)} ({event.effect})"
        if isinstance(event, ev.ActionCompleted | ev.ActionFailed):
            return f"working, after {safe(event.name)}"
        if isinstance(event, ev.CycleParked):
            return f"waiting until {moment(event.wake_at)}" if event.wake_at else "parked"
        return "working"

    def _counts(self) -> list[str]:
        waiting = done = failed = 0
        for field in self._record.doc.values():
            if field[0] == "queue":
                waiting, done, failed = waiting + len(field[ITEMS]), done + field[DONE], failed + len(field[FAILED])
        usage = self._record.usage
        tasks = f"{waiting} waiting, {done} done" + (f", {failed} failed" if failed else "")
        of = "" if self._record.budget is None else f" of ${self._record.budget:.10g}"
        calls = f"{many(usage.calls, 'call')} made, {usage.recalled} from the journal"
        return [tasks, calls, dollars(usage.usd, usage.unpriced) + of]

    def _display(self) -> Any:
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        return Live(_Panel(self), console=console, refresh_per_second=4, transient=True,
                    redirect_stdout=sys.stdout.isatty())  # fmt: skip

    def picture(self) -> str:
        """The display as it is now, made of values that were read when the last event came."""
        record = self._record
        attempt = f" (attempt {record.attempt})" if record.attempt > 1 else ""
        lines = [
            f"{safe(self._agent)} · run {safe(record.run_id)} · cycle {record.cycle}{attempt}",
            "  " + " · ".join(self._facts or ["…"]),
            f"  {self._doing} · {monotonic() - self._since:.0f} s",
        ]
        if self._stopping.asked():
            lines.append("  stopping after this cycle; Ctrl-C once more to stop at once")
        return "\n".join(lines)


class _Panel:
    """What the live display draws, made anew at each refresh."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        yield Text(self._progress.picture(), style="dim", no_wrap=True, overflow="ellipsis")


def _objective(record: Record) -> Any:
    return unpack(record.objective) if record.objective else ""
