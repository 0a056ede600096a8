"""A body of text to research: where it comes from, how it is searched, what may be quoted from it.

Owns: reading sources, the full-text index, choosing quotes, and checking them.
Must never: write to the corpus, follow a link out of its folder, or import a module that is not in the fixed list.
Invariant: every passage and quote stands verbatim in its source at the offset it names, and the same
files give the same passages in the same order.
"""

from __future__ import annotations

import html
import importlib
import inspect
import os
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from indelible.errors import Misuse

SUFFIXES = frozenset({".txt", ".md", ".rst", ".html", ".htm", ".py"})
MAX_FILE_BYTES = 2_000_000
MAX_TOTAL_BYTES = 64_000_000
PASSAGE_CHARS = 900
QUOTE_CHARS = (40, 320)

# Cheap and free of side effects to import. The list is fixed, so what is imported never depends on input.
_MODULES = """
    abc argparse ast asyncio base64 bisect calendar codecs collections collections.abc concurrent.futures
    configparser contextlib contextvars copy csv dataclasses datetime decimal difflib enum fnmatch fractions functools
    gc glob gzip hashlib heapq hmac html importlib importlib.abc importlib.machinery importlib.util inspect io
    itertools json keyword logging math mimetypes numbers operator os os.path pathlib pickle pkgutil platform pprint
    queue random re reprlib sched secrets select selectors shelve shlex shutil signal socket sqlite3 statistics string
    struct subprocess sys tempfile textwrap threading time timeit tokenize traceback types typing unicodedata unittest
    urllib.parse uuid warnings weakref zipfile zipimport zlib zoneinfo
"""
_COMMON_WORDS = """
    a about after all also an and any are as at be been before being between but by can could did do does doing for
    from had has have having how i if in into is it its itself may me more most must my no nor not of on once only or
    other our out over own same shall she should so some such than that the their them then there these they this
    those through to too under until up upon use used using very was way we were what when where which while who whom
    whose why will with within would you your python explain describe find work works
    better difference purpose meaning mean kind like need way return returns
"""
_STOPWORDS = frozenset(_COMMON_WORDS.split())
_WORD = re.compile(r"\w+")
_SENTENCE_END = re.compile(r"""(?<!e\.g)(?<!i\.e)(?<!etc)(?<!vs)[.!?]["')\]]*(?=\s+[A-Z"'(\[*`_]|\s*\Z)""")
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n\s*")
_TAGS = re.compile(r"<(script|style)\b.*?</\1\s*>|<!--.*?-->|<[^<>]*>", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Passage:
    """A stretch of one source: `text == source[start:end]`, offsets in characters."""

    source: str
    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Quote:
    """Words that stand verbatim in `source` from character `start` on."""

    source: str
    start: int
    text: str


def terms(text: str) -> frozenset[str]:
    """The words that carry meaning, lower-cased and crudely stemmed, for comparing texts with each other."""
    return frozenset(_stem(word) for word in _content_words(text))


def _content_words(text: str) -> list[str]:
    words = (word.strip("_") for word in _WORD.findall(text.lower()))
    return [word for word in words if len(word) > 1 and word not in _STOPWORDS]


def _stem(word: str) -> str:
    for suffix in ("ations", "ation", "ings", "ing", "ers", "ies", "er", "ed", "es", "s", "e"):
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            return word[: -len(suffix)]
    return word


class Corpus:
    """Named texts with a full-text index over their passages, held in memory.

    May be used from several threads. Raises `Misuse` when there is no text at all.
    """

    def __init__(self, texts: Mapping[str, str], *, origin: str, skipped: Collection[str] = ()) -> None:
        self.origin = origin
        self.skipped = tuple(skipped)
        self._texts = dict(texts)
        self._lock = threading.Lock()
        self._index = apsw.Connection(":memory:")
        self._index.execute(
            "create virtual table passages using fts5(name, body, source unindexed, start unindexed, stop unindexed,"
            " tokenize = 'porter unicode61')"
        )
        with self._index:
            self._index.executemany("insert into passages values (?, ?, ?, ?, ?)", self._rows())
        self.passage_count: int = next(self._index.execute("select count(*) from passages"))[0]
        if not self.passage_count:
            raise Misuse(
                f"no text to research in {origin}",
                hint=f"point --corpus at a folder that holds {' '.join(sorted(SUFFIXES))} files with text in them",
            )

    @classmethod
    def default(cls) -> Corpus:
        """Python's own documentation, as this interpreter carries it.

        Sources are help topics (`python:import`) and docstrings (`pydoc:contextlib.chdir`).
        """
        return cls(dict(_python_documentation()), origin="Python's own documentation")

    @classmethod
    def folder(cls, path: str | os.PathLike[str]) -> Corpus:
        """The text files below a folder, each source named by its path from there.

        Binary, unreadable and oversized files are left out and named in `skipped`. Links to folders are not
        followed, nor are links to files outside. Raises `Misuse` when the folder is missing or holds no text.
        """
        root = Path(path)
        if not root.is_dir():
            raise Misuse(
                f"the corpus {str(root)!r} is not a folder", hint="--corpus DIR, where DIR is a folder of text files"
            )
        skipped: list[str] = []
        texts = dict(_read_folder(root.resolve(), skipped))
        return cls(texts, origin=f"the folder {str(root)!r}", skipped=skipped)

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of all sources, in the order in which they were read."""
        return tuple(self._texts)

    def text(self, source: str) -> str | None:
        """The whole text of a source, or None when there is no such source."""
        return self._texts.get(source)

    def search(self, query: str, limit: int = 5) -> list[Passage]:
        """The passages that fit the query's words best, best first; any text is a valid query."""
        words = list(dict.fromkeys(_content_words(query) or _WORD.findall(query.lower())))[:32]
        if not words or limit < 1:
            return []
        # Each word as a quoted string: nothing in a query can then act as an operator of the index.
        expression = " OR ".join(f'"{word}"' for word in words if _indexable(word))
        if not expression:
            return []
        with self._lock:
            rows: list[Any] = self._index.execute(
                "select source, start, stop from passages where passages match ?"
                " order by bm25(passages, 4.0, 1.0), rowid limit ?",
                (expression, limit),
            ).fetchall()
        return [Passage(source, start, stop, self._texts[source][start:stop]) for source, start, stop in rows]

    def _rows(self) -> Iterator[tuple[str, str, str, int, int]]:
        for source, text in self._texts.items():
            name = _name_words(source)
            for start, stop in _passage_spans(text):
                # SQLite would end the text at a NUL, and knows no lone surrogates. Offsets come from the original.
                body = text[start:stop].replace("\0", " ").encode("utf-8", "replace").decode()
                yield name, body, source, start, stop


def _indexable(word: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" or character == "\0" for character in word)


def _name_words(source: str) -> str:
    return re.sub(r"[\W_]+", " ", source.removeprefix("python:").removeprefix("pydoc:"))


def select_quotes(passage: Passage, question: str, limit: int = 2) -> list[Quote]:
    """The sentences of a passage that share most words with the question, best first; may be none."""
    wanted = terms(question)
    name = terms(_name_words(passage.source)) & wanted
    scored: list[tuple[float, int, Quote]] = []
    for start, stop in _sentence_spans(passage.text):
        sentence = passage.text[start:stop]
        if not _is_prose(sentence):
            continue
        score = len(terms(sentence) & wanted) + 0.5 * len(name)
        if score >= 1:
            scored.append((-score, start, Quote(passage.source, passage.start + start, sentence)))
    return [quote for _, _, quote in sorted(scored, key=lambda item: item[:2])[:limit]]


def verify_quote(corpus: Corpus, quote: Quote) -> bool:
    """Whether the quote's words stand in its source exactly where it says."""
    text = corpus.text(quote.source)
    if text is None or not quote.text or quote.start < 0:
        return False
    return text.startswith(quote.text, quote.start)


def _is_prose(sentence: str) -> bool:
    """Grammar productions, signatures, tables and doctests are true, but nobody wants to read them as a quote."""
    low, high = QUOTE_CHARS
    if not low <= len(sentence) <= high or sentence.count("\n") > 6 or len(terms(sentence)) < 3:
        return False
    if any(sign in sentence for sign in (">>>", "::=", "\\n")) or sentence[-2:-1].isdigit():
        return False
    letters = sum(character.isalpha() or character.isspace() for character in sentence)
    # Scripts without letter case begin a sentence with an ordinary letter.
    opening = sentence.lstrip("\"'(*`_[")[:1]
    return letters / len(sentence) > 0.82 and opening.isalpha() and not opening.islower()


def _passage_spans(text: str) -> Iterator[tuple[int, int]]:
    """Whole paragraphs up to the usual passage size; a longer paragraph is cut at sentence ends, or anywhere."""
    begin: int | None = None
    end = 0
    for start, stop in _bounded(_split(text, _PARAGRAPH_END), text):
        if begin is not None and stop - begin > PASSAGE_CHARS:
            yield begin, end
            begin = None
        if begin is None:
            begin = start
        end = stop
    if begin is not None:
        yield begin, end


def _bounded(spans: Iterable[tuple[int, int]], text: str) -> Iterator[tuple[int, int]]:
    for start, stop in spans:
        if stop - start <= PASSAGE_CHARS:
            yield start, stop
            continue
        for low, high in _sentence_spans(text[start:stop]):
            for piece in range(start + low, start + high, PASSAGE_CHARS):
                yield piece, min(piece + PASSAGE_CHARS, start + high)


def _sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    for start, stop in _split(text, _PARAGRAPH_END):
        position = start
        for match in _SENTENCE_END.finditer(text, start, stop):
            yield from _trimmed(text, position, match.end())
            position = match.end()
        yield from _trimmed(text, position, stop)


def _split(text: str, separator: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    position = 0
    for match in separator.finditer(text):
        yield from _trimmed(text, position, match.start())
        position = match.end()
    yield from _trimmed(text, position, len(text))


def _trimmed(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    while start < stop and text[start].isspace():
        start += 1
    while stop > start and text[stop - 1].isspace():
        stop -= 1
    if start < stop:
        yield start, stop


def _python_documentation() -> Iterator[tuple[str, str]]:
    topics: Mapping[str, str] = importlib.import_module("pydoc_data.topics").topics
    for topic in sorted(topics):
        yield f"python:{topic}", topics[topic]
    for name in _MODULES.split():
        try:
            module = importlib.import_module(name)
        except ImportError:  # some builds of CPython leave modules out
            continue
        yield from _docstrings(name, module)


def _docstrings(prefix: str, module: object) -> Iterator[tuple[str, str]]:
    """Docstrings of a module, of what it defines itself, and of its classes' public methods."""
    yield from _documented(f"pydoc:{prefix}", module)
    exported = getattr(module, "__all__", None)
    for name in sorted(exported if exported is not None else vars(module)):
        # A program may have put a hook of its own in place of Python's; the original stays under this name.
        original = f"__{name}__" if name.endswith("hook") else name
        member = vars(module).get(original, vars(module).get(name))
        if name.startswith("_") or not (inspect.isclass(member) or inspect.isroutine(member)):
            continue
        own = getattr(member, "__module__", None) == prefix
        if exported is None and not own:
            continue
        yield from _documented(f"pydoc:{prefix}.{name}", member)
        if inspect.isclass(member) and own:
            for method in sorted(vars(member)):
                if not method.startswith("_") and inspect.isroutine(vars(member)[method]):
                    yield from _documented(f"pydoc:{prefix}.{name}.{method}", vars(member)[method])


def _documented(name: str, thing: object) -> Iterator[tuple[str, str]]:
    text = getattr(thing, "__doc__", None)
    if isinstance(text, str) and len(text) >= QUOTE_CHARS[0]:
        yield name, inspect.cleandoc(text)


def _read_folder(root: Path, skipped: list[str]) -> Iterator[tuple[str, str]]:
    total = 0
    for path in _files_below(root):
        name = _printable(path.relative_to(root).as_posix())
        try:
            if not path.resolve().is_relative_to(root):
                skipped.append(f"{name}: a link that leads out of the folder")
                continue
            # Only a plain file: opening a pipe or a device could wait for ever.
            size = path.stat().st_size if path.is_file() else None
            if size is None:
                skipped.append(f"{name}: not a regular file")
                continue
            if size > MAX_FILE_BYTES or total + size > MAX_TOTAL_BYTES:
                skipped.append(f"{name}: too large ({size:,} bytes)")
                continue
            raw = path.read_bytes()
        except (OSError, RuntimeError):  # a link that leads to itself is the latter before Python 3.13
            skipped.append(f"{name}: not readable")
            continue
        total += len(raw)
        text = _decode(raw)
        if text is None:
            skipped.append(f"{name}: not text")
        elif path.suffix.lower() in {".html", ".htm"}:
            yield name, _without_tags(text)
        else:
            yield name, text


def _files_below(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root, followlinks=False):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if Path(name).suffix.lower() in SUFFIXES and not name.startswith("."):
                yield Path(folder) / name


def _printable(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _decode(raw: bytes) -> str | None:
    """The text in a file, whatever its encoding; None when it is not text."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    if b"\0" in raw[:8192]:
        return None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _without_tags(text: str) -> str:
    # Blanks, not nothing: words on both sides of a tag must stay apart.
    return html.unescape(_TAGS.sub(" ", text))
