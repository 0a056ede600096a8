"""What the researcher asks a model, and what it makes of the answers.

Owns: the few-shot prompts, their schemas, reading replies, and the parts of the work that code does itself:
searching, choosing quotes, ordering tasks, assembling the report.
Must never: trust a reply. A model may say nothing, nonsense, or the same thing again; code decides what is kept.
Invariant: everything here is a pure function of its arguments and of the model's answer, never raises because
of an answer, and adds only tasks that differ from all known ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from indelible.agents.corpus import Corpus, Quote, select_quotes, terms, verify_quote
from indelible.agents.models import Completion, Message, Model, Schema

# (kind, text) -> the reply's text. This is the one call to wrap as an action: its arguments are plain and short.
Ask = Callable[[str, str], str]

TASK_CHARS = 90
_SPACE = re.compile(r"\s+")
_CODE_NAME = re.compile(
    r"\w+(?:[._]\w+)+|\b[A-Z]?[a-z]+[A-Z]\w*|\b[A-Z]{2,}[a-z]\w*|(?<=`)\w+(?=[`(])|\d+\.\d+|\w+(?=\(\))"
)
_NAME = re.compile(r'"([A-Za-z_][\w.]{3,40})(?:\(\))?"|`([A-Za-z_][\w.]{3,40})(?:\(\))?`|\*([a-z][a-z ]{4,30})\*')


@dataclass(frozen=True)
class Note:
    """What became of one task: the model's words, and quotes that code has verified."""

    task: str
    text: str
    quotes: tuple[Quote, ...]


@dataclass(frozen=True)
class Kind:
    """One kind of question: its instruction, its worked examples, and the shape of its answer."""

    system: str
    shots: tuple[tuple[str, str], ...]
    schema: Schema | None
    max_tokens: int


def _question(opening: str) -> dict[str, str]:
    # Each place in the answer begins with a word of its own: a small model left alone says the same thing three times.
    return {"type": "string", "pattern": f'^{opening} [^"\\\\\\n]{{8,72}}\\?$'}


def _object(properties: Mapping[str, Any]) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


_PLAN_KEYS = ("what", "how", "when")
KINDS: Mapping[str, Kind] = {
    "plan": Kind(
        "Break the question into three short questions that a manual can answer.",
        (
            (
                "How does garbage collection work?\nSee: gc, gc.collect, weakref",
                '{"what": "What does the gc module do?", "how": "How does gc.collect find unused objects?",'
                ' "when": "When is a weakref object cleared?"}',
            ),
            (
                "Which tools sort a list?\nSee: sorted, list.sort, heapq",
                '{"what": "What does the sorted function return?", "how": "How does list.sort compare two items?",'
                ' "when": "When is heapq better than sorting?"}',
            ),
        ),
        _object({key: _question(key.capitalize()) for key in _PLAN_KEYS}),
        110,
    ),
    "follow_up": Kind(
        "Read the text and ask one short new question about it.",
        (
            (
                "The sorted function returns a new list. It accepts a key function.",
                '{"question": "How does the key function change the order?"}',
            ),
            (
                "Unused objects are freed at once. Reference cycles wait for the collector.",
                '{"question": "When does the collector free reference cycles?"}',
            ),
        ),
        _object({"question": _question("(What|How|When|Which)")}),
        40,
    ),
    "note": Kind(
        "Answer the question in one short sentence, using only the text.",
        (
            (
                "Text: The sorted function builds a new list from any iterable, while list.sort changes the list."
                "\nQuestion: What does the sorted function return?",
                "The sorted function returns a new list and leaves the original as it was.",
            ),
        ),
        None,
        45,
    ),
    "summary": Kind("Answer the question in two short sentences, using only the text.", (), None, 80),
}


def messages(kind: str, text: str) -> list[Message]:
    """The whole conversation for a question of that kind."""
    shape = KINDS[kind]
    turns = [Message(role="system", content=shape.system)]
    for question, answer in shape.shots:
        turns += [Message(role="user", content=question), Message(role="assistant", content=answer)]
    return [*turns, Message(role="user", content=text)]


def complete(model: Model, kind: str, text: str) -> Completion:
    """Put one question to the model. This call costs; the rest of this module does not."""
    shape = KINDS[kind]
    return model.complete(messages(kind, text), schema=shape.schema, max_tokens=shape.max_tokens)


def asking(model: Model) -> Ask:
    """The model as a plain function, for use without a journal."""
    return lambda kind, text: complete(model, kind, text).text


# -- planning ---------------------------------------------------------------------------------------------------------


def plan(ask: Ask, corpus: Corpus, objective: str, limit: int = 3) -> list[str]:
    """Up to `limit` tasks (at least one) for an objective; made by code where the model's are of no use."""
    pages = _pages(corpus, objective)
    reply = ask("plan", f"{_shorten(objective, 300)}\nSee: {', '.join(pages)}" if pages else _shorten(objective, 300))
    answer = _object_in(reply)
    proposed = [answer.get(key) for key in _PLAN_KEYS]
    tasks = keep_new(proposed, (), corpus=corpus, about=f"{objective} {' '.join(pages)}", limit=limit)
    spare = [objective, *(f"What is {page}?" for page in pages)]
    return tasks + keep_new(spare, tasks, corpus=corpus, limit=limit - len(tasks)) or [_shorten(objective, TASK_CHARS)]


def _pages(corpus: Corpus, objective: str, limit: int = 3) -> list[str]:
    names = (_page(passage.source) for passage in corpus.search(objective, 20))
    return [name for name in dict.fromkeys(names) if len(name) <= 60][:limit]


def _page(source: str) -> str:
    return source.removeprefix("python:").removeprefix("pydoc:")


def follow_up(
    ask: Ask, corpus: Corpus, objective: str, quotes: Sequence[Quote], known: Collection[str], limit: int = 2
) -> list[str]:
    """Up to `limit` new tasks that the quotes give rise to; none when they give rise to nothing new."""
    if not quotes:
        return []
    reply = ask("follow_up", _material(quotes, 500))
    about = f"{objective} {_material(quotes, 1000)}"
    quoted = [quote.text for quote in quotes]
    asked = _object_in(reply).get("question")
    tasks = keep_new([asked], known, corpus=corpus, about=about, quoted=quoted, limit=limit)
    if any(terms(task) & terms(objective) for task in tasks):
        return tasks
    # A small model drifts away from the objective; what the corpus has on it leads back.
    named = [f"What is {page}?" for page in _pages(corpus, objective, 12)]
    named += [f"What is {name}?" for text in quoted for name in _names(text)]
    room = min(limit - len(tasks), 1)
    return tasks + keep_new(named, (*known, *tasks), corpus=corpus, quoted=quoted, limit=room)


def _names(text: str) -> list[str]:
    return [next(name for name in match if name) for match in _NAME.findall(text)]


def keep_new(
    proposed: Sequence[object],
    known: Collection[str],
    *,
    limit: int,
    corpus: Corpus | None = None,
    about: str = "",
    quoted: Collection[str] = (),
) -> list[str]:
    """Those of the proposals that are tasks at all, differ from what is known, and have something to be found.

    `about`, if given, is text with which a task must share a word that matters; `quoted` holds the words of
    quotes that do not count as found, because the report has them already.
    """
    kept: list[str] = []
    topic = terms(about)
    for proposal in proposed:
        task = _as_task(proposal)
        if task is None or any(_alike(task, other) for other in (*known, *kept)):
            continue
        if topic and not (terms(task) & topic and _inventions(task, about) == []):
            continue
        if corpus is not None and not investigate(corpus, task, quoted, 1):
            continue
        kept.append(task)
    return kept[: max(limit, 0)]


def _as_task(proposal: object) -> str | None:
    if not isinstance(proposal, str):
        return None
    task = _SPACE.sub(" ", proposal.encode("utf-8", "ignore").decode()).strip()
    words = task.rstrip("?.! ").lower().split()
    # A last word such as "the" shows that the model was cut off in mid-sentence.
    if len(task) > TASK_CHARS or len(words) < 2 or not terms(task) or not (terms(words[-1]) or len(words[-1]) > 4):
        return None
    # A small model that has lost its way says the same words over and over.
    counts = [words.count(word) for word in set(words) if terms(word)]
    return None if max(counts) > 2 or sum(count > 1 for count in counts) > 1 else task


def _inventions(text: str, material: str) -> list[str]:
    """Names of functions, classes and modules in a text that do not stand in the material: made up, as a rule."""
    return [name for name in _CODE_NAME.findall(text) if name.lower() not in material.lower()]


def _alike(one: str, other: str) -> bool:
    """Questions with the same words are the same question, however they begin."""
    mine, theirs = terms(one), terms(other)
    if not mine or not theirs:
        return one.lower() == other.lower()
    return len(mine & theirs) >= 0.67 * len(mine | theirs)


# -- investigating ----------------------------------------------------------------------------------------------------


def investigate(corpus: Corpus, task: str, known: Collection[str] = (), limit: int = 3) -> list[Quote]:
    """The best quotes for a task, each verified; `known` holds the words of quotes that are not wanted again."""
    seen = {_flat(text) for text in known}
    found: list[tuple[int, int, Quote]] = []
    wanted = terms(task)
    for rank_, passage in enumerate(corpus.search(task, 6)):
        for quote in select_quotes(passage, task):
            shared = len(terms(f"{quote.source} {quote.text}") & wanted)
            if shared < min(2, len(wanted)):
                continue
            if _flat(quote.text) not in seen and verify_quote(corpus, quote):
                seen.add(_flat(quote.text))
                found.append((-shared, rank_, quote))
    return [quote for _, _, quote in sorted(found, key=lambda item: item[:2])[:limit]]


def take_note(ask: Ask, task: str, quotes: Sequence[Quote]) -> str:
    """The model's one sentence on the quotes; empty when there is nothing to say, or it said nothing of use."""
    if not quotes:
        return ""
    text = f"Text: {_material(quotes, 600)}\nQuestion: {_shorten(task, 120)}"
    return _grounded(_sentences(ask("note", text), 1), text)


def rank(objective: str, tasks: Sequence[str], notes: Sequence[Note]) -> list[int]:
    """A priority for each task (higher is sooner): close to the objective, and not yet covered by the notes."""
    goal = terms(objective)
    covered = frozenset().union(*(terms(note.task) for note in notes)) if notes else frozenset()
    priorities = []
    for task in tasks:
        words = terms(task)
        priorities.append(10 * len(words & goal) + 4 * min(len(words - covered), 3) - len(words))
    return priorities


# -- reporting --------------------------------------------------------------------------------------------------------


def summarise(ask: Ask, objective: str, notes: Sequence[Note]) -> str:
    """Two sentences by the model on what stands in the best quotes; may be empty."""
    goal = terms(objective)
    quotes = [quote for note in notes for quote in note.quotes]
    best = sorted(quotes, key=lambda quote: -len(terms(quote.text) & goal))[:3]
    if not best:
        return ""
    text = f"Text: {_material(best, 700)}\nQuestion: {_shorten(objective, 200)}"
    return _grounded(_sentences(ask("summary", text), 2), text)


def write_report(objective: str, summary: str, notes: Sequence[Note], *, model: str, origin: str) -> str:
    """The report as plain text. What a model wrote is marked as such; quotes carry source and offset."""
    lines = [_flat(objective), "=" * min(len(_flat(objective)), 72), ""]
    if summary:
        lines += [f"In short (written by the model {model}, not verified):", f"  {summary}", ""]
    answered = [note for note in notes if note.quotes]
    for number, note in enumerate(answered, 1):
        lines += [f"{number}. {_flat(note.task)}"]
        lines += [f'   "{_flat(quote.text)}"\n      [{quote.source}, at {quote.start}]' for quote in note.quotes]
        lines += [f"   The model's note: {note.text}"] * bool(note.text) + [""]
    empty = [note for note in notes if not note.quotes]
    if empty:
        lines += ["Nothing was found for:", *(f"  - {_flat(note.task)}" for note in empty), ""]
    count = sum(len(note.quotes) for note in notes)
    lines += [f"{count} quotes from {origin}; each was checked to stand in its source, line breaks aside."]
    return "\n".join(lines) + "\n"


# -- reading replies --------------------------------------------------------------------------------------------------


def _object_in(reply: str) -> dict[str, Any]:
    """The JSON object in a reply, whatever stands around it; empty when there is none."""
    start, stop = reply.find("{"), reply.rfind("}")
    if start < 0 or stop < start or len(reply) > 20_000:
        return {}
    try:
        value = json.loads(reply[start : stop + 1])
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _sentences(reply: str, limit: int) -> str:
    """The first whole sentences of a reply's first paragraph; what was cut off is left out."""
    text = _flat(reply.strip().partition("\n")[0])[:600]
    ends = [match.end() for match in re.finditer(r"(?<!\d)[.!?](?=\s|$)", text)][:limit]
    text = text[: ends[-1]] if ends else ""
    return text if len(terms(text)) >= 2 else ""


def _grounded(text: str, material: str) -> str:
    """The text, if most of its words that matter and all its code names come from the material; else nothing."""
    words = terms(text)
    known = len(words & terms(material))
    return text if words and known >= 0.6 * len(words) and not _inventions(text, material) else ""


def _material(quotes: Sequence[Quote], length: int) -> str:
    return _shorten(" ".join(_flat(quote.text) for quote in quotes), length)


def _shorten(text: str, length: int) -> str:
    flat = _flat(text)
    return flat if len(flat) <= length else flat[: length - 1].rsplit(" ", 1)[0] + "…"


def _flat(text: str) -> str:
    return _SPACE.sub(" ", text.encode("utf-8", "replace").decode()).strip()
