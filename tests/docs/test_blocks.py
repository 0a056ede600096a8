"""What the documentation shows compiles; what it shows as runnable runs, and prints what it says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks, differences
from tests.tidy.tree import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
ALL = [block for page in PAGES for block in blocks(page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8"))]
PYTHON = [block for block in ALL if block.marks[:1] == ("python",)]
LIVE_PAGES = sorted({block.page for block in ALL if "runnable" in block.marks})


def compiles(block: Block) -> None:
    compile(block.text, block.where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.where)
def test_every_python_block_compiles(block: Block) -> None:
    compiles(block)


@pytest.mark.parametrize("page", LIVE_PAGES)
def test_every_runnable_block_does_what_its_page_says(page: str, tmp_path: Path) -> None:
    assert not list(differences([block for block in ALL if block.page == page], tmp_path))


def test_the_pages_hold_runnable_code() -> None:
    assert {"README.md", "docs/quickstart.md"} <= set(LIVE_PAGES)


def test_a_block_that_does_not_compile_is_found() -> None:
    (block,) = blocks("x.md", "text\n```python\nif:\n```\n")
    assert block.where == "x.md:2"
    with pytest.raises(SyntaxError):
        compiles(block)


RUNNABLE = "```python runnable\nprint(1)\n```\n"


@pytest.mark.parametrize(
    "markdown",
    [
        "```python runnable\nraise SystemExit(3)\n```\n",
        RUNNABLE + "\nand\n\n```text output\n2\n```\n",
        "```console runnable\n$ echo 1\n2\n```\n",
        "```python file=x.py\nprint(1)\n```\n```console runnable\n$ python x.py\n```\n",
        "```ruby runnable\n```\n",
    ],
)
def test_a_block_that_does_not_do_what_its_page_says_is_found(markdown: str, tmp_path: Path) -> None:
    assert list(differences(blocks("x.md", markdown), tmp_path))


@pytest.mark.parametrize(
    "markdown",
    [
        RUNNABLE,
        RUNNABLE + "\n```text output\n1\n```\n",
        "```python file=x.py\nprint(1)\n```\n```console runnable\n$ python x.py\n1\n$ echo 2\n2\n```\n",
        "```python\nraise SystemExit(3)\n```\n",
        "```python file=x.py\nimport os\nprint(os.environ['A'], flush=True)\nos.kill(os.getpid(), 9)\n```\n"
        "```console runnable\n$ A=3 python x.py\n3\nKilled\n```\n",
    ],
)
def test_a_block_that_does_what_its_page_says_passes(markdown: str, tmp_path: Path) -> None:
    assert not list(differences(blocks("x.md", markdown), tmp_path))
