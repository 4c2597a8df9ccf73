"""Markdown that shows words as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NOTICE = "<!-- Made from the code by `python -m tools.reference`: do not edit. -->"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, or none for no rows."""
    lines = [_row(row) for row in rows]
    return [_row(titles), _row("---" for _ in titles), *lines, ""] if lines else []


def code(words: str) -> str:
    return f"`{words}`" if words else ""


def _row(cells: Iterable[str]) -> str:
    # A bar inside a cell would end it, even between backticks.
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
