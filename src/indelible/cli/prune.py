"""`indelible prune`: what may go goes, after it was shown.

Owns: the words before and after, and the command that really does it.
Must never: change anything without `--yes`.
Invariant: what is told to have gone has gone for good, and the bytes that are told to be free were measured.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from indelible.cli.durations import seconds_of, shown
from indelible.cli.options import DEFAULT_STORE, FAULT, FINISHED
from indelible.cli.reading import must_exist, reading
from indelible.cli.screen import ago, dump, iso, many, note, safe, say, table
from indelible.core.record import PARKED
from indelible.errors import IndelibleError, Misuse
from indelible.runtime.pruning import Wish, chosen, delete_all, drop_past, time_of
from indelible.runtime.runstore import RunStore, open_runs
from indelible.stores.addresses import shown as without_secrets
from indelible.stores.base import RunEntry, Upkeep

SHOWN = 50


@dataclass(frozen=True, slots=True)
class Order:
    """What was typed."""

    older_than: str | None
    keep_last: int | None
    run_ids: tuple[str, ...]
    agent: str | None
    include_parked: bool
    history: bool
    reclaim_only: bool
    yes: bool
    as_json: bool
    store: str

    def wish(self) -> Wish:
        """Which runs."""
        older = None if self.older_than is None else seconds_of(self.older_than)
        return Wish(older, self.keep_last, self.run_ids, self.agent, self.include_parked)

    def command(self) -> str:
        """This order, really to be carried out."""
        words = ["indelible prune"]
        if self.store != os.environ.get("INDELIBLE_STORE", DEFAULT_STORE):
            words.append(f"--store {shlex.quote(without_secrets(self.store))}")
        if self.older_than is not None:
            words.append(f"--older-than {shown(seconds_of(self.older_than))}")
        if self.keep_last is not None:
            words.append(f"--keep-last {self.keep_last}")
        words += [f"--run={shlex.quote(run_id)}" for run_id in self.run_ids]
        if self.agent is not None:
            words.append(f"--agent={shlex.quote(self.agent)}")
        words += ["--include-parked"] * self.include_parked + ["--history"] * self.history
        words += ["--reclaim"] * self.reclaim_only
        return " ".join([*words, "--yes"])


def prune(order: Order) -> int:
    """Show what would go, or with `yes` let it go and give its space back."""
    must_exist(order.store)
    if order.reclaim_only and (order.run_ids or order.history or order.older_than or order.keep_last is not None):
        raise Misuse("--reclaim stands alone: space is given back after every other pruning too", hint=order.command())
    if not order.yes:
        with reading(order.store) as runs:
            return _show(order, runs)
    with open_runs(order.store) as runs:
        if order.reclaim_only:
            told: dict[str, Any] = {}
        elif order.history:
            told = _drop(order, runs)
        else:
            told = _delete(order, runs)
        failed = _reclaim(runs, told, order.as_json)
    if order.as_json:
        dump(told)
    return FAULT if failed else FINISHED


def _show(order: Order, runs: RunStore) -> int:
    if order.reclaim_only:
        note("nothing was changed; this gives the free space of the store back to the system:")
        say(safe(order.command()))
        return FINISHED
    entries = list(chosen(runs, order.wish(), order.history))
    size = sum(entry.stored_bytes for entry in entries)
    stands = Counter(_status(entry) for entry in entries)
    if order.as_json:
        dump({
            "dry_run": True, "history": order.history, "runs": [_described(entry) for entry in entries],
            "count": len(entries), "bytes": size, "by_status": dict(stands), "command": order.command(),
        })  # fmt: skip
        return FINISHED
    if not entries:
        note("there is nothing to prune")
        return FINISHED
    now = time_of(runs)
    table(("run", "is", "agent", "events", "bytes", "changed"),
          [(entry.run_id, _status(entry), entry.label.agent if entry.label else "-", entry.head,
            f"{entry.stored_bytes:,}", ago(now - entry.updated_at) if entry.updated_at else "-")
           for entry in entries[:SHOWN]])  # fmt: skip
    if len(entries) > SHOWN:
        say(f"… and {len(entries) - SHOWN:,} more; --json lists all")
    what = "would lose their past, at most" if order.history else "would be deleted for good,"
    say(f"{many(len(entries), 'run')} ({_by_status(stands)}) {what} {size:,} bytes of journal")
    say(f"nothing was changed; to do it: {safe(order.command())}")
    return FINISHED


def _delete(order: Order, runs: RunStore) -> dict[str, Any]:
    stands: Counter[str] = Counter()
    progress = _Progress("deleted")

    def counted() -> Iterator[RunEntry]:
        for entry in chosen(runs, order.wish()):
            stands[_status(entry)] += 1
            yield entry

    passed_over = delete_all(runs, counted(), progress)
    progress.end()
    if not order.as_json:
        parked = f", {stands[PARKED]} of them parked" if stands[PARKED] else ""
        say(f"deleted {many(progress.runs, 'run')}{parked}: {progress.bytes:,} bytes of journal")
        for went in passed_over[:SHOWN]:
            say(f"  not run {safe(went.run_id)}: {safe(went.kept)}")
    return {"deleted": progress.runs, "bytes": progress.bytes, "by_status": dict(stands),
            "passed_over": {went.run_id: went.kept for went in passed_over}}  # fmt: skip


def _drop(order: Order, runs: RunStore) -> dict[str, Any]:
    progress = _Progress("pruned")
    dropped: dict[str, int] = {}
    passed_over: dict[str, str] = {}
    for entry in chosen(runs, order.wish(), True):
        went = drop_past(runs, entry)
        if went.kept:
            passed_over[went.run_id] = went.kept
        else:
            dropped[went.run_id] = went.bytes
        progress(len(dropped), progress.bytes + went.bytes)
    progress.end()
    if not order.as_json:
        for run_id, size in list(dropped.items())[:SHOWN]:
            say(f"pruned the past of {safe(run_id)}: {size:,} bytes")
        for run_id, why in list(passed_over.items())[:SHOWN]:
            say(f"  not of {safe(run_id)}: {safe(why)}")
        say(f"pruned the past of {many(len(dropped), 'run')}: {sum(dropped.values()):,} bytes of journal")
    return {"pruned": dropped, "bytes": sum(dropped.values()), "passed_over": passed_over}


def _reclaim(runs: RunStore, told: dict[str, Any], as_json: bool) -> bool:
    """Give the space back; True if that failed, which takes nothing back."""
    if not isinstance(runs.store, Upkeep):
        return False
    try:
        told["reclaimed_bytes"] = runs.store.reclaim()
    except IndelibleError as error:
        told["reclaimed_bytes"], told["reclaim_failed"] = 0, error.what
        note(f"no space was given back: {safe(error.what)}\n  try: {safe(error.hint)}")
        return True
    if not as_json:
        say(f"{told['reclaimed_bytes']:,} bytes were given back to the system")
    return False


class _Progress:
    """A line that says how far it is, on a terminal."""

    def __init__(self, verb: str) -> None:
        self.runs = self.bytes = 0
        self._verb = verb
        self._shown = False

    def __call__(self, runs: int, size: int) -> None:
        self.runs, self.bytes = runs, size
        if sys.stderr.isatty():
            self._shown = True
            print(f"\r{self._verb} {runs:,} runs, {size:,} bytes", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line."""
        if self._shown:
            print(file=sys.stderr)


def _status(entry: RunEntry) -> str:
    return (entry.label.status if entry.label else "") or "an inbox without a run"


def _by_status(stands: Counter[str]) -> str:
    return ", ".join(f"{count:,} {status}" for status, count in sorted(stands.items()))


def _described(entry: RunEntry) -> dict[str, Any]:
    return {
        "run": entry.run_id, "status": _status(entry), "agent": entry.label.agent if entry.label else None,
        "events": entry.head, "stored_bytes": entry.stored_bytes, "updated_at": iso(entry.updated_at),
    }  # fmt: skip
