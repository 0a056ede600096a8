"""The shipped agent: researches a question in a folder of text, and delivers a report by mail.

Owns: the cycle (plan, then task by task: search, quote, note, new tasks, re-prioritise; at the end report and
deliver), its State, and its actions.
Must never: put a password into the journal, or a quote that does not stand in its source into the report.
Invariant: which corpus, model and delivery a run uses is part of its state, so that a resume needs no options.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import indelible as ind
from indelible.agents import delivery, prompts
from indelible.agents.corpus import Corpus
from indelible.agents.models import Model, open_model
from indelible.agents.prompts import Note
from indelible.errors import Misuse

MAX_NOTES = 8
DEFAULT_DELIVERY = "maildir:out/"


class Research(ind.State):
    """What the researcher knows."""

    tasks: ind.Queue[str]
    notes: ind.Log[Note]
    known: ind.Log[str]
    planned: bool = False
    corpus: str = ""
    model: str = ""
    deliver: str = ""
    to: str = ""
    message_id: str = ""


@dataclass
class Tools:
    """The options of this process, and what they open; opened when it is first needed.

    An option left at None is taken from the run, or, for a new run, from the defaults.
    """

    corpus_folder: str | None = None
    deliver: str | None = None
    model_spec: str | None = None
    to: str | None = None

    @cached_property
    def delivery(self) -> delivery.Delivery:
        """Where this process was told to deliver to."""
        return delivery.parse_delivery(self.deliver or DEFAULT_DELIVERY, self.to)

    @cached_property
    def model(self) -> Model:
        """The model this process was told to use, or finds."""
        return open_model(self.model_spec)

    @cached_property
    def corpus(self) -> Corpus:
        """The texts this process was told to research."""
        return Corpus.folder(self.corpus_folder) if self.corpus_folder else Corpus.default()

    def adopt(self, state: Research) -> None:
        """Take the run's own choices where this process was told nothing; refuse where it was told otherwise."""
        self.corpus_folder = _agree("corpus", self.corpus_folder, state.corpus)
        self.model_spec = _agree("model", self.model_spec, state.model)
        if self.deliver is None:
            self.deliver, self.to = state.deliver, state.to
        else:
            _agree("deliver", self.delivery.label, state.deliver)

    def target(self, label: str) -> str:
        """The full address that a label in the journal stands for."""
        if self.delivery.label != label:
            raise Misuse(f"the report was to go to {label}, not to {self.delivery.label}", hint=f"--deliver {label}")
        return self.delivery.smtp or self.delivery.maildir or ""


def _agree(option: str, given: str | None, chosen: str) -> str | None:
    if given is not None and given != chosen:
        raise Misuse(
            f"this run was started with --{option} {chosen or '(default)'}, not {given}",
            hint=f"leave --{option} out to go on with it, or start a new run with another --run-id",
        )
    return chosen or None


def configure(
    corpus: str | None = None, deliver: str | None = None, model: str | None = None, to: str | None = None
) -> Any:
    """The researcher with these options; what is left out comes from the run, or from the defaults."""
    tools = Tools(corpus, deliver, model, to)
    ask, by_maildir, by_smtp = _actions(tools)

    def research(run: ind.Run[Research]) -> None:
        state = run.state
        tools.adopt(state)

        def asking(kind: str, text: str) -> str:
            return str(ask(kind, text, state.model))

        if not state.planned:
            tasks = prompts.plan(asking, tools.corpus, run.objective)
            state.known.extend(tasks)
            state.tasks.extend(tasks)
            state.planned = True
        elif state.tasks and len(state.notes) < MAX_NOTES:
            _investigate(run, tools.corpus, asking)
        else:
            notes = list(state.notes)
            summary = prompts.summarise(asking, run.objective, notes)
            report = prompts.write_report(run.objective, summary, notes, model=state.model, origin=tools.corpus.origin)
            send = by_maildir if state.deliver.startswith("maildir:") else by_smtp
            state.message_id = send(report, state.to, f"Report: {run.objective}"[:120], state.deliver)
            run.finish(report)

    researcher = ind.agent(state=Research, version=1, name="researcher")(research)

    @researcher.start
    def start(run: ind.Run[Research]) -> None:
        # Opened here, so that what is missing is said before the run is accepted.
        state = run.state
        state.corpus = tools.corpus_folder or ""
        state.model = tools.model.name
        state.deliver, state.to = tools.delivery.label, tools.delivery.to
        if not tools.corpus.search(run.objective, 1):
            raise Misuse(
                f"nothing in {tools.corpus.origin} has a word in common with the objective",
                hint="--corpus DIR, a folder of text files on the subject",
            )

    return researcher


def _investigate(run: ind.Run[Research], corpus: Corpus, asking: prompts.Ask) -> None:
    """One task: its quotes, the model's note, the new tasks, and the order of all that wait."""
    state = run.state
    task = state.tasks.take()
    notes = list(state.notes)
    quotes = prompts.investigate(corpus, task, [quote.text for note in notes for quote in note.quotes])
    note = Note(task, prompts.take_note(asking, task, quotes), tuple(quotes))
    state.notes.append(note)
    fresh = prompts.follow_up(asking, corpus, run.objective, quotes, list(state.known))
    state.known.extend(fresh)
    state.tasks.extend(fresh)
    waiting = list(state.tasks)
    # A queue serves the lowest number first, a rank is higher for what matters more.
    order = {
        text: -rank for text, rank in zip(waiting, prompts.rank(run.objective, waiting, [*notes, note]), strict=True)
    }
    state.tasks.reprioritise(lambda text: order[text])


def _actions(tools: Tools) -> tuple[Any, Any, Any]:
    """The calls to the world: the model, and the two ways of delivery."""

    @ind.action(name="ask_model")
    def ask_model(kind: str, text: str, model: str) -> str:
        answer = prompts.complete(tools.model, kind, text)
        ind.usage(tokens_in=answer.tokens_in, tokens_out=answer.tokens_out, usd=answer.usd,
                  model=answer.model or model, provider=answer.provider)  # fmt: skip
        return answer.text

    def in_maildir(report: str, to: str, subject: str, target: str, *, key: str) -> Any:
        found = delivery.in_maildir(report, to, subject, key=key, maildir=tools.target(target))
        return ind.did_not_happen() if found is None else ind.happened(found)

    @ind.action(name="deliver_to_maildir", effect="irreversible", probe=in_maildir)
    def deliver_to_maildir(report: str, to: str, subject: str, target: str, *, key: str = "") -> str:
        return delivery.deliver_maildir(report, to, subject, key=key, maildir=tools.target(target))

    @ind.action(name="deliver_by_smtp", effect="irreversible")
    def deliver_by_smtp(report: str, to: str, subject: str, target: str, *, key: str = "") -> str:
        return delivery.deliver_smtp(report, to, subject, key=key, url=tools.target(target))

    return ask_model, deliver_to_maildir, deliver_by_smtp


researcher = configure()
