"""Every error has its section in docs/errors.md, with its code, and no section lacks its error."""

from __future__ import annotations

import re

from indelible import errors
from tests.tidy.tree import ROOT

HEADING = re.compile(r"^## `(\w+)`(?: · `([\w-]+)`)?$", re.MULTILINE)
PARTS = ("**When.**", "**Looks like.**", "**Do.**")


def documented(markdown: str) -> dict[str, str]:
    """Class name to code ("" where a class has none), as the page's headings say."""
    return {match[1]: match[2] or "" for match in HEADING.finditer(markdown)}


def defined() -> dict[str, str]:
    """Class name to code, as the module says."""
    return {
        name: getattr(thing, "code", "")
        for name, thing in vars(errors).items()
        if isinstance(thing, type) and issubclass(thing, BaseException) and not name.startswith("_")
    }


def missing_parts(markdown: str) -> list[str]:
    """Sections that do not say when it comes, what it looks like and what to do."""
    _, *sections = re.split(r"(?m)^## ", markdown)
    return [section.splitlines()[0] for section in sections if any(part not in section for part in PARTS)]


def page() -> str:
    return (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")


def test_every_error_is_documented_with_its_code_and_nothing_else_is() -> None:
    assert documented(page()) == defined()


def test_every_section_says_when_what_and_what_to_do() -> None:
    assert missing_parts(page()) == []


def test_the_examples_show_the_code_of_their_section() -> None:
    for section in re.split(r"(?m)^## ", page())[1:]:
        code = HEADING.match("## " + section.splitlines()[0])
        assert code
        assert not code[2] or f"[{code[2]}]" in section, section.splitlines()[0]


def test_a_gap_in_the_page_is_found() -> None:
    planted = "# Errors\n\n## `A` · `a-b`\n\n**When.** x\n"
    assert documented(planted) == {"A": "a-b"}
    assert missing_parts(planted) == ["`A` · `a-b`"]
