"""The command line: what can be typed, and how errors end it.

Owns: the commands' names, arguments and help, and `main`.
Must never: import a command's module before that command is used: starting is quick.
Invariant: every error ends in an exit code of `options.EXIT_CODES`, and none of ours in a traceback.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from indelible.cli import keeping, options
from indelible.cli.options import DEFAULT_STORE, Budget, Corpus, Deliver, Json, Model, RunId, Store, To
from indelible.cli.screen import note, prepare_streams, say


class Commands(TyperGroup):
    """The commands; Ctrl-C during any of them has the exit code that shells give it."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was typed."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise SystemExit(130) from None


app = typer.Typer(
    cls=Commands,
    name="indelible", no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="Agents that survive any crash.", epilog=options.EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
model_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The local model.")
app.add_typer(model_app, name="model")

Retry = Annotated[bool, typer.Option("--retry", help="Take up a run that has failed; what it did stays done.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Stay while the run waits for a time.")]


def _version(wanted: bool) -> None:
    if wanted:
        from indelible import __version__

        say(f"indelible {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    _debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error that ends the command. May stand anywhere.")
    ] = False,
) -> None:
    pass


@app.command(epilog=options.EXIT_CODES)
def run(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[AGENT.py:name] OBJECTIVE", help="Your agent (else the shipped researcher); its goal."),
    ] = None,
    store: Store = DEFAULT_STORE,
    run_id: Annotated[
        str | None, typer.Option("--run-id", metavar="ID", help="Its id; an existing run is resumed.")
    ] = None,
    wait: Wait = True,
    retry: Retry = False,
    budget: Budget = None,
    corpus: Corpus = None,
    deliver: Deliver = None,
    to: To = None,
    model: Model = None,
) -> None:
    """Start a run, or go on with one that is unfinished."""
    from indelible.cli.run import Setup, start

    raise typer.Exit(start(words or [], store, run_id, Setup(corpus, deliver, model, to), wait, retry, budget))


@app.command(epilog=options.EXIT_CODES)
def resume(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN] [AGENT.py:name]...", help="Which run, and where its code is.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every unfinished run of the agents given.")] = False,
    store: Store = DEFAULT_STORE,
    wait: Wait = True,
    retry: Retry = False,
    budget: Budget = None,
    corpus: Corpus = None,
    deliver: Deliver = None,
    to: To = None,
    model: Model = None,
) -> None:
    """Go on with a run, or with all that can go on."""
    from indelible.cli import run as running
    from indelible.errors import Misuse

    setup, given = running.Setup(corpus, deliver, model, to), words or []
    if every:
        if retry:
            raise Misuse("failed runs are retried one by one", hint="indelible ls --status failed")
        if budget is not None:
            raise Misuse("a budget is for one run", hint=f"indelible resume RUN AGENT.py:name --budget {budget:.10g}")
        raise typer.Exit(running.resume_all(given, store, setup, _debugging()))
    if not 1 <= len(given) <= 2:
        raise Misuse("say which run, or --all", hint="indelible resume RUN AGENT.py:name   # see: indelible ls")
    raise typer.Exit(running.resume(given[0], given[1] if len(given) == 2 else "", store, setup, wait, retry, budget))


@app.command(epilog=options.EXIT_CODES)
def submit(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="AGENT.py:name OBJECTIVE", help="Your agent; its goal.")
    ] = None,
    store: Store = DEFAULT_STORE,
    run_id: Annotated[str | None, typer.Option("--run-id", metavar="ID", help="Its id.")] = None,
    budget: Budget = None,
) -> None:
    """Accept a run, durably, and leave it to a worker; prints its id."""
    from indelible.cli.worker import submit

    raise typer.Exit(submit(words or [], store, run_id, budget))


@app.command(epilog=options.EXIT_CODES)
def worker(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="AGENT.py[:name]...", help="Where the code of the agents is.")
    ] = None,
    more: Annotated[
        list[str] | None,
        typer.Option("--agent", metavar="AGENT.py[:name]", help="One more; may be given several times."),
    ] = None,
    store: Store = DEFAULT_STORE,
    concurrency: Annotated[int, typer.Option(metavar="N", help="How many runs are worked on at once.")] = 4,
    poll: Annotated[float, typer.Option(metavar="SECONDS", help="How often the store is looked at.")] = 1.0,
    grace: Annotated[float, typer.Option(metavar="SECONDS", help="How long a stop waits for cycles under way.")] = 30.0,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when nothing can go on and nothing will by itself.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Work on all runs of these agents that can go on, until SIGTERM or Ctrl-C; then 0, if all stopped in time."""
    from indelible.cli.worker import work

    references = [*(words or []), *(more or [])]
    raise typer.Exit(work(references, store, concurrency, poll, grace, until_idle, as_json, _debugging()))


@app.command()
def ls(
    store: Store = DEFAULT_STORE,
    as_json: Json = False,
    limit: Annotated[int, typer.Option(min=0, help="How many at most; 0 lists all.")] = 200,
    status: Annotated[str | None, typer.Option(help="Only these, such as interrupted, parked, failed.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent.")] = None,
) -> None:
    """List the runs in a store, those that need someone first."""
    from indelible.cli.listing import ls

    raise typer.Exit(ls(store, as_json, limit, status, agent))


@app.command()
def show(
    run_id: RunId,
    store: Store = DEFAULT_STORE,
    as_json: Json = False,
    limit: Annotated[int, typer.Option(min=0, help="Items shown of each queue, log and map; 0 shows all.")] = 10,
) -> None:
    """Show a run: state, queue, context, and what it waits for."""
    from indelible.cli.show import show

    raise typer.Exit(show(run_id, store, as_json, limit))


@app.command()
def log(
    run_id: RunId,
    store: Store = DEFAULT_STORE,
    as_json: Json = False,
    seq: Annotated[int, typer.Option(min=0, help="From this event on.")] = 0,
    limit: Annotated[int, typer.Option(min=0, help="How many at most, without --seq the last ones; 0: all.")] = 0,
) -> None:
    """Show a run's journal as a timeline."""
    from indelible.cli.log import log

    raise typer.Exit(log(run_id, store, as_json, seq, limit))


@app.command()
def effects(run_id: RunId, store: Store = DEFAULT_STORE, as_json: Json = False) -> None:
    """List every deed of a run: done, in doubt, orphaned, undone, failed."""
    from indelible.cli.effects import effects

    raise typer.Exit(effects(run_id, store, as_json))


@app.command()
def inbox(store: Store = DEFAULT_STORE, as_json: Json = False) -> None:
    """List everything that waits for a person, with the command that answers it."""
    from indelible.cli.listing import inbox

    raise typer.Exit(inbox(store, as_json))


@app.command()
def answer(
    run_id: RunId,
    text: Annotated[str, typer.Argument(metavar="[TEXT]", help="The answer.")] = "",
    budget: Budget = None,
    wait: Annotated[str, typer.Option("--wait", metavar="NAME", help="Which of several questions; see show.")] = "",
    store: Store = DEFAULT_STORE,
) -> None:
    """Answer what a run asks."""
    from indelible.cli.settle import answer

    raise typer.Exit(answer(run_id, text, store, wait, budget))


@app.command()
def settle(
    run_id: RunId,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="The action's id, its beginning, or its name.")],
    happened: Annotated[bool, typer.Option("--happened", help="It happened.")] = False,
    did_not_happen: Annotated[bool, typer.Option("--did-not-happen", help="It certainly did not happen.")] = False,
    result: Annotated[str | None, typer.Option(metavar="JSON", help="What it returned.")] = None,
    store: Store = DEFAULT_STORE,
) -> None:
    """Say what became of an action in doubt."""
    from indelible.cli.settle import settle

    raise typer.Exit(settle(run_id, action, store, happened, did_not_happen, result))


@app.command()
def verify(
    run_id: Annotated[str | None, typer.Argument(metavar="[RUN]", help="The run's id.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every run in the store.")] = False,
    store: Store = DEFAULT_STORE,
    as_json: Json = False,
) -> None:
    """Check digests and snapshots, and fold the journal anew. Changes nothing; 1 if anything is wrong."""
    from indelible.cli.verifying import check

    raise typer.Exit(check(run_id, every, store, as_json))


@app.command(epilog=options.EXIT_CODES)
def bill(
    run_id: Annotated[str | None, typer.Argument(metavar="[RUN]", help="The run's id.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every run in the store.")] = False,
    trace: Annotated[
        str | None, typer.Option("--trace", metavar="FILE.jsonl", help="A trace of another agent.")
    ] = None,
    traces: Annotated[str | None, typer.Option("--traces", metavar="DIR", help="All traces in a folder.")] = None,
    store: Store = DEFAULT_STORE,
    runs_per_day: Annotated[float, typer.Option(help="So many runs like this one are started a day.")] = 100,
    keep: Annotated[float, typer.Option(metavar="DAYS", help="How long each is kept.")] = 30,
    storage: Annotated[
        list[str] | None, typer.Option("--storage", metavar="NAME", help="Only there; may be given several times.")
    ] = None,
    prices: Annotated[
        str | None, typer.Option("--prices", metavar="FILE.toml", help="Your own prices, over the shipped ones.")
    ] = None,
    hourly_rate: Annotated[float, typer.Option(help="What an hour of a developer costs, in dollars.")] = 60,
    minutes_per_crash: Annotated[float, typer.Option(help="For how long one looks at a crash that asks for it.")] = 5,
    crashes_per_month: Annotated[float, typer.Option(help="How many runs die in a month.")] = 10,
    explain: Annotated[bool, typer.Option("--explain", help="Print each formula with its numbers.")] = False,
    compression: Annotated[bool, typer.Option("--compression", help="Compare ways to compress the journal.")] = False,
    claim: Annotated[
        str | None, typer.Option("--claim", metavar="NAME", help="When a claim is true: logs, snapshots, developer.")
    ] = None,
    plot: Annotated[str | None, typer.Option("--plot", metavar="DIR", help="Draw pictures into a folder.")] = None,
    economics: Annotated[
        bool, typer.Option("--economics", help='Simulate durability="economic" against fixed intervals; takes no run.')
    ] = False,
    usd_per_hour: Annotated[float, typer.Option(help="With --economics: what an hour of the agent is worth.")] = 1.0,
    requests: Annotated[
        bool, typer.Option("--requests", help="Count what object storage is asked for 1,000 cycles; takes no run.")
    ] = False,
    as_json: Json = False,
) -> None:
    """What a run wrote and cost, what it would have cost kept in other ways, and what a crash costs."""
    from pathlib import Path

    from indelible.bill.sample import Assumed
    from indelible.cli.bill import How, What, bill

    def path(given: str | None) -> Path | None:
        return None if given is None else Path(given).expanduser()

    what = What(run_id, every, path(trace), path(traces))
    if economics:
        from indelible.cli.bill_economics import economics as simulated

        what.check_none("--economics")
        raise typer.Exit(simulated(path(prices), path(plot), usd_per_hour, as_json))
    if requests:
        from indelible.cli.bill_requests import requests as counted

        what.check_none("--requests")
        raise typer.Exit(counted(path(prices), as_json))
    how = How(tuple(storage or ()), path(prices), explain, compression, claim, path(plot), as_json)
    assumed = Assumed(runs_per_day, keep, hourly_rate, minutes_per_crash, crashes_per_month)
    raise typer.Exit(bill(what, how, assumed, store))


@app.command(epilog=options.EXIT_CODES)
def prove(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[AGENT.py:name] OBJECTIVE", help="Your agent (else the shipped researcher); its goal."),
    ] = None,
    full: Annotated[bool, typer.Option("--full/--quick", help="Every point, or some hundred of them.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Chooses the points; the same seed tries the same ones.")] = 1,
    as_json: Json = False,
    answer: Annotated[str, typer.Option(metavar="TEXT", help="What every question of the agent is answered.")] = "yes",
    world: Annotated[
        bool, typer.Option("--world/--no-world", help="Name a fake outside world to the agent in INDELIBLE_WORLD.")
    ] = True,
    corpus: Corpus = None,
    deliver: Deliver = None,
    to: To = None,
    model: Model = None,
) -> None:
    """Kill your agent everywhere and check that nothing is lost or done twice. 5 if something is found."""
    from indelible.cli.prove import prove
    from indelible.cli.run import Setup

    setup = Setup(corpus, deliver, model, to)
    raise typer.Exit(prove(words or [], setup, full=full, seed=seed, as_json=as_json, answer=answer, world=world))


@app.command()
def delete(
    run_id: RunId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Delete a run for good."""
    from indelible.cli.settle import delete

    raise typer.Exit(delete(run_id, store, yes))


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True}, add_help_option=False)
def demo(context: typer.Context) -> None:
    """Kill the researcher again and again, and see that nothing is lost. See: indelible demo --help"""
    import importlib

    raise typer.Exit(importlib.import_module("indelible.cli.demo").main(context.args))


@model_app.command()
def fetch() -> None:
    """Fetch the small local model into the cache, unless it is there."""
    from indelible.agents.local import fetch_local_model

    say(str(fetch_local_model(note)))


def _debugging(words: list[str] | None = None) -> bool:
    words = sys.argv[1:] if words is None else words
    return "--debug" in (words[: words.index("--")] if "--" in words else words)


for _keeping in (keeping.copy, keeping.export, keeping.archive, keeping.prune, keeping.doctor):
    app.command()(_keeping)
app.command("import")(keeping.import_)


def main(words: list[str] | None = None) -> int:
    """Run a command (`words`, or what the process was given) and return its exit code."""
    from indelible.cli import faults

    given = list(sys.argv[1:] if words is None else words)
    debug = _debugging(given)
    if debug:
        given.remove("--debug")
    prepare_streams()
    try:
        app(args=given, prog_name="indelible")
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BrokenPipeError:
        return faults.broken_pipe()
    except Exception as error:
        code = faults.report(error, _store(given), debug=debug)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return faults.broken_pipe()
    return code


def _store(words: list[str]) -> str:
    """The store that was typed, for the hints of errors."""
    for at, word in enumerate(words):
        if word == "--store" and at + 1 < len(words):
            return words[at + 1]
        if word.startswith("--store="):
            return word.partition("=")[2]
    return os.environ.get("INDELIBLE_STORE", DEFAULT_STORE)
