"""What is written to the terminal, and how it is made harmless.

Owns: escaping, tables, times, JSON output.
Must never: let a character from outside move the cursor, change colours or read as markup.
Invariant: `safe(text)` is one line of printable characters, whatever `text` holds.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TextIO, cast

# Controls, line and paragraph separators, invisible and direction-changing characters, halves of pairs.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
                     "\ud800-\udfff\U000e0000-\U000e007f]")  # fmt: skip
_IDS = ("run", "action", "what", "strategy", "storage")
"""The columns of a table that hold ids or names, alone or at the beginning of a sentence."""
_COPIED = 60
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"}


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if character in _NAMED:
        return _NAMED[character]
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def safe(value: object, width: int = 0) -> str:
    """One harmless line of text; cut at `width` characters if that is given."""
    text = _UNSAFE.sub(_escaped, str(value))
    return text if not width or len(text) <= width else text[: width - 1] + "…"


def safe_block(text: str) -> str:
    """Text of several lines, each of them harmless."""
    return "\n".join(safe(line.replace("\t", "    ")) for line in text.split("\n"))


def prepare_streams() -> None:
    """Let no character that the terminal cannot show end the program."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def say(text: str = "") -> None:
    """A line on standard output. `text` must be harmless already."""
    print(text)


def note(text: str) -> None:
    """A line on standard error. `text` must be harmless already."""
    print(text, file=sys.stderr, flush=True)


def dump(value: Any) -> None:
    """A value as JSON on standard output, in ASCII, so that nothing in it acts on the terminal."""
    print(json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False))


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], to: TextIO | None = None) -> None:
    """Rows under their headings: fitted to the terminal on one, aligned and never cut elsewhere."""
    out: TextIO = to if to is not None else cast(TextIO, sys.stdout)
    cells = [[safe(cell) for cell in row] for row in rows]
    if out.isatty():
        _fitted(columns, cells, out)
        return
    widths = [max(len(row[n]) for row in [list(columns), *cells]) for n in range(len(columns))]
    for row in [[name.upper() for name in columns], *cells]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(), file=out)


def _fitted(columns: Sequence[str], cells: list[list[str]], out: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    console = Console(file=out, highlight=False)
    widths = [max(len(row[n]) for row in [list(columns), *cells]) for n in range(len(columns))]
    for n, name in enumerate(columns):
        drawn.add_column(name.upper(), overflow="fold", no_wrap=name in _IDS)
        if name in _IDS:
            _wrap(cells, n, console.width - sum(widths) - len(columns) + 1 + widths[n])
    for row in cells:
        drawn.add_row(*(Text(cell) for cell in row))  # Text, because a str would be read as markup
    console.print(drawn)


def _wrap(cells: list[list[str]], n: int, room: int) -> None:
    """Break a column of ids between words only, to `room` if every id fits there: an id that is broken is no use."""
    words = [word for row in cells for word in row[n].split() if len(word) <= _COPIED]
    width = max([room, *map(len, words)])
    for row in cells:
        row[n] = "\n".join(textwrap.wrap(row[n], width, break_on_hyphens=False)) if len(row[n]) > width else row[n]


def moment(at: float) -> str:
    """Epoch seconds as local time, "-" for none."""
    try:
        return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S") if at else "-"
    except (OverflowError, OSError, ValueError):
        return f"{at:g}"


def iso(at: float) -> str | None:
    """Epoch seconds for JSON: local time with its offset; None for none."""
    try:
        return datetime.fromtimestamp(at).astimezone().isoformat(timespec="milliseconds") if at else None
    except (OverflowError, OSError, ValueError):
        return None


def ago(seconds: float) -> str:
    """How long ago, in one unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{max(0, int(seconds))} s ago"


def dollars(usd: float, unpriced: int = 0) -> str:
    """Money spent, with the number of calls whose price is not known."""
    return f"${usd:.4f}" + (f" + {unpriced} unpriced" if unpriced else "")


def spent(usd: float, budget: float | None) -> str:
    """Money spent, and of what; "-" if there is neither."""
    if budget is None:
        return dollars(usd) if usd else "-"
    return f"{dollars(usd)} of ${budget:.10g}"


def brief(value: Any, width: int = 100) -> str:
    """A value from a journal, plain or natural, as one short harmless line."""
    from indelible.core.codec import to_json

    if isinstance(value, str):
        return safe(value, width)
    try:
        return safe(json.dumps(to_json(value), ensure_ascii=False), width)
    except Exception as error:
        return f"({type(error).__name__}: cannot be shown)"


def spread(value: Any, most: int = 40) -> str:
    """A value from a journal, plain or natural: on one line if it fits there, else over `most` lines."""
    line = brief(value, 0)
    if isinstance(value, str) or len(line) <= 100:
        return safe(line, 500)
    lines = safe_block(json.dumps(jsonable(value), ensure_ascii=False, indent=2)).split("\n")
    return "\n".join(lines[:most] + ([f"… {len(lines) - most} more lines (--json)"] if len(lines) > most else []))


def many(count: int, what: str) -> str:
    """How many of something, in words: `1 cycle`, `2 cycles`, `1 entry`, `2 entries`."""
    if count == 1:
        return f"1 {what}"
    return f"{count} {what.removesuffix('y')}ies" if what.endswith("y") else f"{count} {what}s"


def jsonable(value: Any) -> Any:
    """A value from a journal as data for JSON."""
    from indelible.core.codec import to_json

    try:
        return to_json(value)
    except Exception as error:
        return {"$unreadable": type(error).__name__}
