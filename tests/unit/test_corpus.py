"""The corpus: what it reads, what it finds, and that a quote stands where it says."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from indelible.agents import corpus as corpus_module
from indelible.agents.corpus import Corpus, Passage, Quote, select_quotes, verify_quote
from indelible.errors import Misuse

AWKWARD = [
    "",
    "   ",
    "🎉🎉",
    "\ud800",
    "a\0b",
    '"unbalanced',
    "AND OR NOT NEAR(a b, 2) * ^ : - + ( ) { } name : x",
    "'; drop table passages; --",
    "body:context",
    "é ß 漢字 العربية",
    "word " * 5000,
]


@pytest.fixture(scope="module")
def python_docs() -> Corpus:
    return Corpus.default()


def test_python_documentation_answers_questions_about_python(python_docs: Corpus) -> None:
    found = python_docs.search("How do context managers work?", 5)
    assert "python:context-managers" in [passage.source for passage in found]
    assert python_docs.passage_count > 500


def test_the_same_corpus_gives_the_same_passages(python_docs: Corpus) -> None:
    again = Corpus.default()
    assert again.sources == python_docs.sources
    for query in ("import system", "exceptions raised", "sorting"):
        assert again.search(query, 10) == python_docs.search(query, 10)


def test_the_hooks_of_a_program_do_not_change_pythons_documentation(
    python_docs: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a quote that a run in one program noted could not be found again by another."""

    def hook(*args: object) -> None:
        """A hook of the program's own, which is documented at more than forty characters' length."""

    for module, name in ((sys, "excepthook"), (sys, "displayhook"), (sys, "unraisablehook"), (threading, "excepthook")):
        monkeypatch.setattr(module, name, hook)
    other = Corpus.default()
    assert other.sources == python_docs.sources
    assert all(other.text(source) == python_docs.text(source) for source in other.sources)
    assert other.text("pydoc:sys.excepthook") == sys.__excepthook__.__doc__


@pytest.mark.parametrize("query", AWKWARD)
def test_any_text_is_a_query(python_docs: Corpus, query: str) -> None:
    for passage in python_docs.search(query, 3):
        text = python_docs.text(passage.source)
        assert text is not None
        assert text[passage.start : passage.end] == passage.text


def test_every_quote_verifies_and_a_changed_one_does_not(python_docs: Corpus) -> None:
    question = "How does the import statement find a module?"
    quotes = [quote for passage in python_docs.search(question, 8) for quote in select_quotes(passage, question)]
    assert quotes
    for quote in quotes:
        assert verify_quote(python_docs, quote)
        assert not verify_quote(python_docs, Quote(quote.source, quote.start + 1, quote.text))
        assert not verify_quote(python_docs, Quote(quote.source, quote.start, quote.text + " indeed"))
        assert not verify_quote(python_docs, Quote("no such source", quote.start, quote.text))
    assert not verify_quote(python_docs, Quote(quotes[0].source, 0, ""))
    assert not verify_quote(python_docs, Quote(quotes[0].source, -len(quotes[0].text), quotes[0].text))


def test_quotes_are_sentences_that_share_words_with_the_question() -> None:
    text = (
        "Cats sleep for most of the day and dream of fish. A Maildir keeps each mail in a file of its own.\n"
        "Delivery into a Maildir is a rename, e.g. from tmp to new, which cannot be torn.\n\nx ::= maildir | y"
    )
    quotes = select_quotes(Passage("s", 100, 100 + len(text), text), "What is the delivery into a Maildir?", 2)
    assert [quote.text.split()[0] for quote in quotes] == ["Delivery", "A"]
    assert quotes[0].text.endswith("cannot be torn.")
    assert all(text.startswith(quote.text, quote.start - 100) for quote in quotes)


def test_folder_reads_text_whatever_its_encoding_and_names_what_it_left_out(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("Zebras have stripes, and every zebra has its own.", encoding="utf-8")
    (tmp_path / "a.txt").write_bytes("Caf\xe9 owners grind zebra beans.".encode("latin-1"))
    (tmp_path / "wide.txt").write_text("Zebra in sixteen bits.", encoding="utf-16")
    (tmp_path / "page.html").write_text("<p>A zebra &amp; a horse</p><script>zebra()</script>")
    (tmp_path / "picture.txt").write_bytes(b"\x89PNG\0\0zebra")
    (tmp_path / "ignored.bin").write_bytes(b"zebra")
    (tmp_path / ".hidden.txt").write_text("zebra")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "code.py").write_text("# zebra crossing\r\nx = 1\r\n")
    corpus = Corpus.folder(tmp_path)
    assert corpus.sources == ("a.txt", "b.md", "page.html", "wide.txt", "sub/code.py")
    assert corpus.skipped == ("picture.txt: not text",)
    assert corpus.text("a.txt") == "Café owners grind zebra beans."
    assert corpus.text("wide.txt") == "Zebra in sixteen bits."
    assert corpus.text("sub/code.py") == "# zebra crossing\nx = 1\n"
    page = corpus.text("page.html")
    assert page is not None
    assert "A zebra & a horse" in page
    assert "()" not in page
    assert len(corpus.search("zebra", 10)) == 5


def test_folder_ends_despite_link_loops_pipes_and_links_that_lead_out(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "real.txt").write_text("A heron stands on one leg.")
    (root / "loop").symlink_to(root, target_is_directory=True)
    (root / "self.txt").symlink_to(root / "self.txt")
    (tmp_path / "secret.txt").write_text("The heron's password.")
    (root / "outside.txt").symlink_to(tmp_path / "secret.txt")
    os.mkfifo(root / "pipe.txt")
    corpus = Corpus.folder(root)
    assert corpus.sources == ("real.txt",)
    assert corpus.skipped == (
        "outside.txt: a link that leads out of the folder",
        "pipe.txt: not a regular file",
        # Python 3.13 resolves a link to itself and finds nothing there; earlier ones refuse to resolve it.
        "self.txt: not a regular file" if sys.version_info >= (3, 13) else "self.txt: not readable",
    )


def test_folder_leaves_out_files_that_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "MAX_FILE_BYTES", 100)
    (tmp_path / "large.txt").write_text("heron " * 100)
    (tmp_path / "small.txt").write_text("A heron stands on one leg.")
    corpus = Corpus.folder(tmp_path)
    assert corpus.sources == ("small.txt",)
    assert corpus.skipped == ("large.txt: too large (600 bytes)",)


def test_text_without_paragraphs_or_sentences_is_still_cut_into_passages(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("heron " * 5000)
    corpus = Corpus.folder(tmp_path)
    assert corpus.passage_count > 20
    assert all(len(passage.text) <= corpus_module.PASSAGE_CHARS for passage in corpus.search("heron", 50))


def test_a_nul_in_a_text_hides_nothing_after_it() -> None:
    corpus = Corpus({"odd": "before\0after the heron\ud800 left"}, origin="a test")
    (passage,) = corpus.search("heron", 1)
    assert passage.text == "before\0after the heron\ud800 left"


@pytest.mark.parametrize("content", [None, b"", b"  \n\n ", b"\0\1\2"])
def test_a_corpus_without_text_says_so(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(Misuse, match="no text to research") as caught:
        Corpus.folder(tmp_path)
    assert "--corpus" in caught.value.hint


def test_a_missing_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="is not a folder"):
        Corpus.folder(tmp_path / "missing")
