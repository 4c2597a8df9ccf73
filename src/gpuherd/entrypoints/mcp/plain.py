"""Texts from outside as data: on one line, visible, and short, so that they cannot pass for anything else."""

from __future__ import annotations

from typing import Any

TEXT_MAX = 300
# Of lists and objects, whatever they hold.
ROWS_MAX = 50
DEPTH_MAX = 8


def plain(text: str, length: int = TEXT_MAX) -> str:
    """Return a text without line breaks, control, invisible and bidirectional characters, cut to a length."""
    # What is not printable for Python is what has no shape of its own, or changes that of others.
    # guard: texts of others are plain
    visible = "".join(it if it.isprintable() else " " for it in text)
    line = " ".join(visible.split())
    return line if len(line) <= length else line[: length - 1] + "…"


def plain_data(value: Any, depth: int = DEPTH_MAX) -> Any:
    """Return JSON with nothing but plain texts in it, and no more of it than anybody reads."""
    match value:
        case str():
            return plain(value)
        case dict() if depth:
            rows = list(value.items())[:ROWS_MAX]
            return {plain(str(name), 100): plain_data(it, depth - 1) for name, it in rows}
        case list() | tuple() if depth:
            return [plain_data(it, depth - 1) for it in value[:ROWS_MAX]]
        case dict() | list() | tuple():
            return "…"
        case _:
            return value
