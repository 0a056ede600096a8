"""`indelible archive`: runs that have ended go to a store that costs less.

Owns: the order of the two halves, and the words before and after.
Must never: delete a run whose copy was not verified, or that has changed since.
Invariant: whatever ends this in the middle, each run is whole in one of both stores, and the same command goes on.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import Any

from indelible.cli.durations import seconds_of
from indelible.cli.options import DEFAULT_STORE, FAULT, FINISHED
from indelible.cli.reading import ARCHIVE, must_exist, reading
from indelible.cli.screen import ago, dump, many, note, safe, say, table
from indelible.errors import IndelibleError, Misuse
from indelible.runtime.moving import transfer
from indelible.runtime.pruning import Wish, chosen, delete_all, time_of
from indelible.runtime.runstore import RunStore, open_runs
from indelible.stores.addresses import shown
from indelible.stores.base import RunEntry

SHOWN = 50


def archive(
    store: str, to: str, older_than: str | None, run_ids: tuple[str, ...], agent: str | None, yes: bool, as_json: bool
) -> int:
    """Show what would go, or with `yes` bring each run to `to`, verified, and delete it here."""
    must_exist(store)
    if older_than is None and not run_ids:
        raise Misuse("say which runs", hint="indelible archive --to URL --older-than 30d   # or: --run ID")
    wish = Wish(None if older_than is None else seconds_of(older_than), None, run_ids, agent)
    if not yes:
        with reading(store) as runs:
            return _show(runs, list(chosen(runs, wish)), _command(store, to, older_than, run_ids, agent), as_json)
    failed: list[dict[str, Any]] = []
    with open_runs(store) as runs, open_runs(to) as target:
        brought = _bring(runs, target, list(chosen(runs, wish)), failed, as_json)
        gone, size = [0], [0]

        def tell(count: int, many_bytes: int) -> None:
            gone[0], size[0] = count, many_bytes

        failed += [{"run_id": went.run_id, "error": went.kept} for went in delete_all(runs, brought, tell)]
        where = target.url
    if as_json:
        dump({"archived": gone[0], "bytes": size[0], "to": where, "failed": failed})
    else:
        for one in failed:
            say(f"FAILED {safe(one['run_id'])}: {safe(one['error'])}")
        say(f"{many(gone[0], 'run')} archived in {safe(where)}, {size[0]:,} bytes of journal deleted here")
        name = safe(shlex.quote(where))
        say(f"to read them: --store {name}, or once and for all: export {ARCHIVE}={name}")
    return FAULT if failed else FINISHED


def _bring(
    runs: RunStore, target: RunStore, entries: list[RunEntry], failed: list[dict[str, Any]], quiet: bool
) -> Iterator[RunEntry]:
    """Each run that is whole and verified in the target, as it stood here when it was read."""
    for number, entry in enumerate(entries, 1):
        if not quiet:
            note(f"{number} of {len(entries)}: {safe(entry.run_id)}")
        try:
            transfer(runs.store, target.store, entry.run_id, runs.clock)
        except IndelibleError as error:
            failed.append({"run_id": entry.run_id, "error": error.what, "hint": error.hint})
            continue
        yield entry


def _show(runs: RunStore, entries: list[RunEntry], command: str, as_json: bool) -> int:
    size = sum(entry.stored_bytes for entry in entries)
    if as_json:
        dump({"dry_run": True, "runs": [entry.run_id for entry in entries], "bytes": size, "command": command})
        return FINISHED
    if not entries:
        note("there is nothing to archive")
        return FINISHED
    now = time_of(runs)
    table(("run", "is", "events", "bytes", "changed"),
          [(entry.run_id, entry.label.status if entry.label else "-", entry.head, f"{entry.stored_bytes:,}",
            ago(now - entry.updated_at)) for entry in entries[:SHOWN]])  # fmt: skip
    if len(entries) > SHOWN:
        say(f"… and {len(entries) - SHOWN:,} more; --json lists all")
    say(f"{many(len(entries), 'run')} would be archived, {size:,} bytes of journal")
    say(f"nothing was changed; to do it: {safe(command)}")
    return FINISHED


def _command(store: str, to: str, older_than: str | None, run_ids: tuple[str, ...], agent: str | None) -> str:
    words = ["indelible archive", f"--to {shlex.quote(shown(to))}"]
    if store != os.environ.get("INDELIBLE_STORE", DEFAULT_STORE):
        words.append(f"--store {shlex.quote(shown(store))}")
    if older_than is not None:
        words.append(f"--older-than {shlex.quote(older_than)}")
    words += [f"--run={shlex.quote(run_id)}" for run_id in run_ids]
    if agent is not None:
        words.append(f"--agent={shlex.quote(agent)}")
    return " ".join([*words, "--yes"])
