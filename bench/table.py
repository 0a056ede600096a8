"""The rows of the benchmark's one table, and how they are printed.

Owns: `Row`.
Must never: round a figure before it is compared with its limit.
Invariant: a row without a limit is for scale, and never fails.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One figure beside its limit. `ok` None: there is no limit, the figure is for scale."""

    name: str
    measured: str
    limit: str = ""
    ok: bool | None = None


def at_most(name: str, value: float, limit: float, unit: str, note: str = "") -> Row:
    """A row that holds if `value` is not above `limit`."""
    return Row(name, _text(value, unit) + note, f"<= {_text(limit, unit)}", value <= limit)


def at_least(name: str, value: float, limit: float, unit: str, note: str = "") -> Row:
    """A row that holds if `value` is not below `limit`."""
    return Row(name, _text(value, unit) + note, f">= {_text(limit, unit)}", value >= limit)


def scale(name: str, value: float, unit: str, note: str = "") -> Row:
    """A row without a limit."""
    return Row(name, _text(value, unit) + note)


def render(rows: list[Row], facts: dict[str, str]) -> str:
    """The table as text."""
    lines = [f"{name:<12} {fact}" for name, fact in facts.items()]
    head = Row("name", "measured", "limit")
    wide = [max(len(str(row[column])) for row in (head, *rows)) for column in range(3)]
    lines += ["", _line(head, wide, "ok"), "  ".join("-" * width for width in (*wide, 3))]
    lines += [_line(row, wide, {True: "yes", False: "NO", None: ""}[row.ok]) for row in rows]
    return "\n".join(lines)


def _line(row: Row, wide: list[int], ok: str) -> str:
    return f"{row.name:<{wide[0]}}  {row.measured:<{wide[1]}}  {row.limit:<{wide[2]}}  {ok}".rstrip()


def _text(value: float, unit: str) -> str:
    if unit == "ms":
        return f"{value:.3f} ms" if value < 10 else f"{value:.0f} ms"
    if unit == "x":
        return f"{value:.2f} x"
    if unit == "/s":
        return f"{value:,.0f} /s"
    if unit == "MB":
        return f"{value:.1f} MB"
    return f"{value:,.0f} {unit}".rstrip()
