"""Tables that fit: on a narrow terminal the least important columns go, and no line ever wraps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from gpuherd.entrypoints.cli.render.output import safe, shown

Row = TypeVar("Row")
GAP = 2


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column: its title, what it shows of a row, and what may happen to it where room is short."""

    title: str
    value: Callable[[Row], str]
    # The highest goes first.
    expendable: int = 0
    # Cells longer than this may be cut with an ellipsis before a column is dropped; 0: never cut.
    shrinks_to: int = 0
    # Long text goes on in the next line of its own cell instead of being cut.
    wraps: bool = False
    right: bool = False
    style: Callable[[Row], str] = lambda _: ""

    def natural_width(self, rows: Sequence[Row]) -> int:
        return max((cell_len(safe(self.value(row))) for row in rows), default=0)


def fitting(columns: Sequence[Column[Row]], rows: Sequence[Row], width: int) -> list[tuple[Column[Row], int]]:
    """Return the columns that fit side by side into `width`, each with its own width; one always stays."""
    wanted = [(c, max(cell_len(c.title), c.natural_width(rows))) for c in columns]
    while len(wanted) > 1 and _total(_least(c, wide) for c, wide in wanted) > width:
        wanted.remove(max(wanted, key=lambda pair: pair[0].expendable))
    excess = _total(wide for _, wide in wanted) - width
    fitted = []
    for column, wide in wanted:
        cut = min(max(excess, 0), wide - _least(column, wide)) if len(wanted) > 1 else max(excess, 0)
        excess -= cut
        fitted.append((column, max(1, wide - cut)))
    return fitted


def _least(column: Column[Row], wide: int) -> int:
    return min(wide, max(column.shrinks_to, cell_len(column.title))) if column.shrinks_to else wide


def _total(widths: Iterable[int]) -> int:
    each = list(widths)
    return sum(each) + GAP * (len(each) - 1)


def table(columns: Sequence[Column[Row]], rows: Sequence[Row], width: int) -> Table:
    """Build a table of the columns that fit."""
    fitted = fitting(columns, rows, width)
    grid = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column, wide in fitted:
        grid.add_column(
            Text(column.title, no_wrap=True, overflow="ellipsis"),
            justify="right" if column.right else "left",
            width=wide,
            no_wrap=not column.wraps,
            overflow="fold" if column.wraps else "ellipsis",
        )
    for row in rows:
        grid.add_row(*(_cell(column, row) for column, _ in fitted))
    return grid


def _cell(column: Column[Row], row: Row) -> Text:
    text = foldable(column.value(row)) if column.wraps else shown(column.value(row))
    text.style = column.style(row)
    return text


def pairs(lines: Sequence[tuple[str, Text | str]]) -> Table:
    """Build a grid with a name and a value a line; a value may be long, and wraps only beside its name."""
    grid = Table.grid(padding=(0, GAP, 0, 0))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for name, value in lines:
        grid.add_row(shown(name), value if isinstance(value, Text) else foldable(value))
    return grid


def foldable(value: str) -> Text:
    """Return a stranger's words that may take several lines."""
    text = shown(value)
    text.no_wrap = False
    text.overflow = "fold"
    return text
