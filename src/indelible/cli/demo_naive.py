"""The same agent as most people would write it: the same functions, and a JSON checkpoint after every loop.

Owns: its loop, its checkpoint, and the process that runs it (`python -m indelible.cli.demo_naive FOLDER ...`).
Must never: be made worse than a careful author would make it: the file is written aside, synced and renamed.
Invariant: without a crash it gives the same report, from the same model calls, as the researcher.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from time import perf_counter
from typing import Any

from indelible.agents import prompts, researcher
from indelible.agents.corpus import Corpus, Quote
from indelible.agents.models import open_model
from indelible.agents.prompts import Note
from indelible.cli.demo_child import Child, CountedModel, main
from indelible.cli.demo_room import Room

State = dict[str, Any]


def load(room: Room) -> State | None:
    """The state as of the last checkpoint, or None."""
    try:
        state: State = json.loads(room.checkpoint.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return state


def save(room: Room, state: State) -> int:
    """Replace the checkpoint; durable on return. Returns the bytes written."""
    raw = json.dumps(state).encode()
    temporary = room.checkpoint.with_suffix(".tmp")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, room.checkpoint)
    folder = os.open(room.path, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    return len(raw)


def notes_of(state: State) -> list[Note]:
    """The notes in a checkpoint."""
    return [Note(n["task"], n["text"], tuple(Quote(**quote) for quote in n["quotes"])) for n in state["notes"]]


class Loop:
    """The agent: one call of `turn` is one loop."""

    def __init__(self, child: Child) -> None:
        options = child.options
        self.child = child
        self.state = load(child.room) or {
            "objective": options.objective, "model": options.model or "local", "corpus": options.corpus,
            "loop": 0, "planned": False, "tasks": [], "added": 0, "done": 0, "notes": [], "known": [], "report": None,
        }  # fmt: skip
        self.corpus = Corpus.folder(self.state["corpus"]) if self.state["corpus"] else Corpus.default()
        self._call = ""
        self._model = CountedModel(open_model(self.state["model"]), child.log, child.report, lambda: self._call)

    def ask(self, kind: str, text: str) -> str:
        """One model call; it is the same one if the same loop asks the same question."""
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self._call = f"{self.state['loop']}/{kind}:{digest}"
        answer = prompts.complete(self._model, kind, text).text
        self.child.report({"what": "event", "kind": "answer"})
        return answer

    def turn(self) -> None:
        """Plan, or take a task, or report."""
        state = self.state
        if not state["planned"]:
            self._add(prompts.plan(self.ask, self.corpus, state["objective"]))
            state["planned"] = True
        elif state["tasks"] and len(state["notes"]) < researcher.MAX_NOTES:
            self._investigate()
        else:
            self._report()
        state["loop"] += 1

    def _add(self, tasks: list[str]) -> None:
        for task in tasks:
            self.state["tasks"].append([self.state["added"], task])
            self.state["known"].append(task)
            self.state["added"] += 1

    def _investigate(self) -> None:
        state, objective, notes = self.state, self.state["objective"], notes_of(self.state)
        _, task = state["tasks"].pop(0)
        quotes = prompts.investigate(self.corpus, task, [quote.text for note in notes for quote in note.quotes])
        note = Note(task, prompts.take_note(self.ask, task, quotes), tuple(quotes))
        state["notes"].append(asdict(note))
        self._add(prompts.follow_up(self.ask, self.corpus, objective, quotes, list(state["known"])))
        state["done"] += 1
        ranks = prompts.rank(objective, [text for _, text in state["tasks"]], [*notes, note])
        order = {number: -rank for (number, _), rank in zip(state["tasks"], ranks, strict=True)}
        state["tasks"].sort(key=lambda waiting: (order[waiting[0]], waiting[0]))

    def _report(self) -> None:
        state, objective, notes = self.state, self.state["objective"], notes_of(self.state)
        summary = prompts.summarise(self.ask, objective, notes)
        report = prompts.write_report(objective, summary, notes, model=state["model"], origin=self.corpus.origin)
        self.child.deliver(report, "you@localhost", f"Report: {objective}"[:120], key="naive",
                           maildir=str(self.child.room.maildir))  # fmt: skip
        state["report"] = report


def run(child: Child) -> None:
    """Start, or go on from the checkpoint."""
    began = perf_counter()
    loop = Loop(child)
    child.report({"what": "up", "took_s": perf_counter() - began})
    while loop.state["report"] is None:
        loop.turn()
        child.report({"what": "event", "kind": "checkpoint", "bytes": save(child.room, loop.state)})
    child.report({"what": "done", "status": "finished"})


if __name__ == "__main__":
    main(run)
