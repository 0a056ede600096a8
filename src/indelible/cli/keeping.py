"""The commands that keep a store in order: runs are brought elsewhere, pruned, and what holds them is examined.

Owns: these commands' names, arguments and help.
Must never: import a command's module before that command is used: starting is quick.
Invariant: nothing is deleted without `--yes`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from indelible.cli.options import DEFAULT_STORE, Json, RunId, Store

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Really do it; else it is only shown.")]
Runs = Annotated[list[str] | None, typer.Option("--run", metavar="ID", help="This run; may be given several times.")]


def copy(
    source: Annotated[str, typer.Argument(metavar="SRC", help="The store they are in.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="The store they are brought into.")],
    run: Runs = None,
    status: Annotated[list[str] | None, typer.Option("--status", help="Runs of this status; may be repeated.")] = None,
    as_json: Json = False,
) -> None:
    """Bring runs into another store: ended ones are copied, others moved; run again, it finishes what was cut off."""
    from indelible.cli.copying import copy as copied

    raise typer.Exit(copied(source, target, tuple(run or ()), tuple(status or ()), as_json))


def export(
    run_id: RunId,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="The file to be made.")],
    move: Annotated[
        bool, typer.Option("--move", help="A run that has not ended too: it goes on where it is imported.")
    ] = False,
    store: Store = DEFAULT_STORE,
    as_json: Json = False,
) -> None:
    """Put a run into one file, every digest verified; `import` brings it into a store, and every command reads it."""
    from indelible.cli.runfile import export as exported

    raise typer.Exit(exported(run_id, output, move, store, as_json))


def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file that `export` has made.")],
    store: Store = DEFAULT_STORE,
    as_json: Json = False,
) -> None:
    """Bring the run in a file into a store, every digest verified."""
    from indelible.cli.runfile import bring_in

    raise typer.Exit(bring_in(file, store, as_json))


def archive(
    to: Annotated[str, typer.Option("--to", metavar="URL", help="The store they are kept in from then on.")],
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="Last written to longer ago: 30d, 12h, 90m.")
    ] = None,
    run: Runs = None,
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent.")] = None,
    yes: Yes = False,
    store: Store = DEFAULT_STORE,
    as_json: Json = False,
) -> None:
    """Bring runs that have ended into another store, and then delete them here; shown first, done with --yes."""
    from indelible.cli.archiving import archive as archived

    raise typer.Exit(archived(store, to, older_than, tuple(run or ()), agent, yes, as_json))


def prune(
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="Last written to longer ago: 30d, 12h, 90m.")
    ] = None,
    keep_last: Annotated[int | None, typer.Option("--keep-last", metavar="N", help="But not the newest N.")] = None,
    run_ids: Runs = None,
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent.")] = None,
    include_parked: Annotated[
        bool, typer.Option("--include-parked", help="Parked runs too: they are never answered then.")
    ] = False,
    history: Annotated[
        bool, typer.Option("--history", help="Keep the runs, and drop what their state no longer needs.")
    ] = False,
    reclaim: Annotated[bool, typer.Option("--reclaim", help="Only give free space back to the system.")] = False,
    yes: Yes = False,
    store: Store = DEFAULT_STORE,
    as_json: Json = False,
) -> None:
    """Delete runs that have ended, or drop the past of runs; shown first, done with --yes."""
    from indelible.cli.prune import Order
    from indelible.cli.prune import prune as pruned

    order = Order(older_than, keep_last, tuple(run_ids or ()), agent, include_parked, history, reclaim, yes, as_json,
                  store)  # fmt: skip
    raise typer.Exit(pruned(order))


def doctor(
    store: Store = DEFAULT_STORE,
    quick: Annotated[bool, typer.Option("--quick", help="Verify a sample of the runs, not every one.")] = False,
    as_json: Json = False,
) -> None:
    """Examine a store: what it guarantees, whether it is whole, what grows. Changes nothing; 1 if something is bad."""
    from indelible.cli.doctor import doctor as examined

    raise typer.Exit(examined(store, quick, as_json))
