"""The process that the demonstration kills: `python -m indelible.cli.demo_child FOLDER ...`.

Owns: running the shipped agent, and reporting to the parent, a JSON object a line, what it is doing.
Must never: change what the agent does. It counts model calls and can stop at the delivery, no more.
Invariant: resumes by the run id alone; a process whose parent is gone is gone as well.

One window is held open on purpose: with --hold behind the process performs the delivery for real, says so, and waits
there, before the delivery is recorded, to be killed. Hit by chance that window is about a millisecond wide. A process
that is to die earlier gets --hold before, so that on a busy machine it cannot slip past the delivery before it is hit.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn

from indelible.agents import delivery, researcher
from indelible.agents.models import Completion, Message, Model, Schema, open_model
from indelible.cli.demo_room import RUN_ID, CallLog, Room
from indelible.core import events as ev
from indelible.drive.clock import SystemClock
from indelible.drive.context import current
from indelible.errors import IndelibleError

SCRIPTED_S = 0.01
SCRIPTED_USD = 0.001

Report = Callable[[dict[str, Any]], None]


class CountedModel:
    """A model whose calls are written down outside the journal, by what makes a call the same call."""

    def __init__(self, model: Model, log: CallLog, report: Report, identity: Callable[[], str]) -> None:
        self.name = model.name
        self._model = model
        self._log = log
        self._report = report
        self._identity = identity

    def complete(
        self, messages: Sequence[Message], *, schema: Schema | None = None, max_tokens: int = 120
    ) -> Completion:
        """See `Model.complete`."""
        call = self._identity()
        self._log.began(call)
        self._report({"what": "began", "call": call})
        began = perf_counter()
        answer = self._model.complete(messages, schema=schema, max_tokens=max_tokens)
        if self.name == "scripted":
            # It takes no time and costs nothing; here it stands for one that does both.
            SystemClock().sleep(SCRIPTED_S)
            answer = replace(answer, usd=SCRIPTED_USD)
        self._log.ended(call, perf_counter() - began)
        self._report({"what": "ended", "call": call})
        return answer


class Child:
    """This process, as its parent started it."""

    def __init__(self, words: Sequence[str] | None = None) -> None:
        parser = argparse.ArgumentParser(prog="indelible.cli.demo_child")
        parser.add_argument("folder", type=Path)
        parser.add_argument("--process", type=int, required=True)
        parser.add_argument("--objective")
        parser.add_argument("--model")
        parser.add_argument("--corpus")
        parser.add_argument("--hold", choices=("before", "behind"))
        self.options = parser.parse_args(words)
        self.room = Room(self.options.folder)
        self.log = CallLog(self.room, self.options.process)
        # The parent reads from the stream that was standard output; whatever a library prints goes elsewhere.
        self._out = os.dup(1)
        os.dup2(2, 1)
        threading.Thread(target=self._end_with_parent, daemon=True).start()

    def report(self, what: dict[str, Any]) -> None:
        """Tell the parent."""
        try:
            os.write(self._out, json.dumps(what).encode() + b"\n")
        except BrokenPipeError:
            os._exit(1)

    def deliver(self, *args: Any, **kwargs: Any) -> str:
        """The delivery, for real; with --hold this process waits before or behind it for its end."""
        if self.options.hold == "before":
            self._wait()
        message_id = delivery_for_real(*args, **kwargs)
        if self.options.hold == "behind":
            self._wait()
        return message_id

    def _wait(self) -> NoReturn:
        self.report({"what": "held"})
        while True:
            threading.Event().wait()

    def _end_with_parent(self) -> None:
        while os.read(0, 1):
            pass
        os._exit(1)


delivery_for_real = delivery.deliver_maildir


def call_of_the_journal() -> str:
    """The identity under which the journal keeps the call that is being made."""
    scope = current.get()
    return scope.call if scope is not None else ""


def research(child: Child) -> None:
    """Start the run, or go on with it."""
    options, began = child.options, perf_counter()

    def open_counted(spec: str | None = None) -> Model:
        return CountedModel(open_model(spec), child.log, child.report, call_of_the_journal)

    def saw(event: ev.Event) -> None:
        if isinstance(event, ev.RunClaimed):
            child.report({"what": "up", "took_s": perf_counter() - began})
        else:
            child.report({"what": "event", "kind": ev.kind_of(event)})

    researcher.open_model = open_counted  # type: ignore[attr-defined]
    delivery.deliver_maildir = child.deliver
    # Only the first process is told what to do; every other one takes it from the run.
    deliver = f"maildir:{child.room.maildir}" if options.objective else None
    agent = researcher.configure(options.corpus, deliver, options.model)
    outcome = agent.run(options.objective, store=child.room.store, run_id=RUN_ID, observe=saw)
    child.report({"what": "done", "status": outcome.status})


def main(agent: Callable[[Child], None]) -> None:
    """Run an agent in this process. An error is reported, and raised."""
    child = Child(sys.argv[1:])
    try:
        agent(child)
    except IndelibleError as error:
        child.report({"what": "failed", "why": error.what})
        raise


if __name__ == "__main__":
    main(research)
