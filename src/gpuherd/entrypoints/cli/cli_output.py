"""The output of commands: tables for people, JSON for programs, and no control codes of strangers."""

from __future__ import annotations

import codecs
import io
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_HALF_UP, Decimal, InvalidOperation
from enum import Enum, auto
from functools import cached_property
from typing import Any, Protocol, TextIO

import click
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from gpuherd.entrypoints.durations import relative_time

Row = Any
Reply = Mapping[str, Any]
GAP = 2
CENT, HUNDREDTH_CENT, MILLICENT = Decimal("0.01"), Decimal("0.0001"), Decimal("0.00001")

# Python calls these printable, but no reader sees them: joiners, fillers, variation selectors.
_INVISIBLE = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
            *range(0x180B, 0x1810),
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ),
    )
)
_KEPT_IN_LOGS = frozenset("\n\t")


class CommandClock(Protocol):
    """The time of a command."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...

    def pause(self, seconds: float) -> None: ...

    async def sleep(self, seconds: float) -> None: ...


class Mode(Enum):
    """Who reads the output."""

    PEOPLE = auto()
    JSON = auto()
    IDS = auto()


@dataclass(frozen=True)
class Ago:
    """A cell that shows how long ago the moment in this field was."""

    field: str


@dataclass(frozen=True)
class Column:
    """One column: its title, what it shows of a row, and what may happen to it on a narrow terminal."""

    title: str
    # A field of the row, or a function of the row.
    value: str | Ago | Callable[[Row], str]
    # On a narrow terminal the column with the highest number goes first.
    expendable: int = 0
    # Cells longer than this may be cut with an ellipsis before a column is dropped; 0: never cut.
    shrinks_to: int = 0
    # Long text continues in the next line of its own cell.
    wraps: bool = False
    right: bool = False
    style: Callable[[Row], str] = lambda _: ""


@dataclass(frozen=True)
class ListTable:
    """How a command shows a list of the API: the field with the rows, the columns, the id of a row."""

    field: str
    columns: Sequence[Column]
    empty: str
    id: Callable[[Row], str] = lambda row: str(row["id"])


@dataclass(frozen=True)
class Output:
    """The two streams of one command. Answers go to stdout, remarks and errors to stderr."""

    mode: Mode
    clock: CommandClock
    streams: tuple[TextIO, TextIO] = field(default_factory=lambda: (sys.stdout, sys.stderr))

    @classmethod
    def for_command(cls, clock: CommandClock, *, as_json: bool = False, quiet: bool = False) -> Output:
        """Return the output for the given options and stdout."""
        if as_json and quiet:
            raise click.BadParameter("--json and --quiet exclude each other")
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # A terminal that cannot show a character gets an escape, not a traceback.
                stream.reconfigure(errors="backslashreplace")
        return cls(_mode(as_json=as_json, quiet=quiet), clock)

    @cached_property
    def out(self) -> Console:
        return _console(self.streams[0])

    @cached_property
    def err(self) -> Console:
        return _console(self.streams[1])

    @property
    def for_people(self) -> bool:
        return self.mode is Mode.PEOPLE

    @property
    def silent(self) -> bool:
        """Return True if a command without an id must print nothing."""
        return self.mode is Mode.IDS

    @property
    def unicode(self) -> bool:
        """Return True if the terminal can show more than ASCII."""
        return self.out.encoding.lower().replace("-", "").startswith("utf")

    def on_stderr(self) -> Output:
        """Return an output for people whose answers go to stderr, too."""
        return Output(Mode.PEOPLE, self.clock, (self.streams[1], self.streams[1]))

    def show(self, *renderables: RenderableType) -> None:
        """Show something to people, on stdout."""
        for renderable in renderables:
            self.out.print(renderable)

    def line(self, text: str) -> None:
        """Show one line to people, on stdout; the text must be safe already."""
        self.out.print(text, soft_wrap=True)

    def note(self, text: str, style: str = "") -> None:
        """Print a remark on stderr; the text must be safe already."""
        self.err.print(Text(text, style=style), soft_wrap=not self.err.is_terminal)

    def json(self, value: object) -> None:
        """Print the answer for a program, on stdout."""
        click.echo(as_json(value))

    def ids(self, ids: Iterable[str]) -> None:
        """Print one id a line, on stdout."""
        for one in ids:
            click.echo(safe(one))

    def answer(self, value: object, id_: str) -> None:
        """Print one thing for a program: the whole, or only its id."""
        if self.mode is Mode.IDS:
            self.ids([id_])
        else:
            self.json(value)

    def list(self, table: ListTable, reply: Reply) -> bool:
        """Print a list of the API. Return True if people see its table."""
        rows = reply[table.field]
        if self.mode is Mode.JSON:
            self.json(reply)
        elif self.mode is Mode.IDS:
            self.ids(table.id(row) for row in rows)
        elif not rows:
            self.note(table.empty)
        else:
            self.table(table.columns, rows)
            if reply.get("nextCursor"):
                total = reply.get("total")
                count = total if isinstance(total, int) else len(rows)
                self.note(f"{len(rows)} of {count}; the rest with --all", "dim")
        return self.for_people and bool(rows)

    def table(self, columns: Sequence[Column], rows: Sequence[Row]) -> None:
        """Show a table of the columns that fit, on stdout."""
        self.show(table_of(columns, rows, self.out.width, self.clock.now()))

    def table_on_stderr(self, columns: Sequence[Column], rows: Sequence[Row]) -> None:
        self.err.print(table_of(columns, rows, self.err.width, self.clock.now()))

    def page(self, *lines: tuple[str, Text | str | None]) -> None:
        """Show names and values, a line each, without those that have no value."""
        self.show(pairs([(name, value) for name, value in lines if value]))

    def when(self, value: object) -> str:
        """Return how long ago a moment of the API was, or nothing if there is none."""
        moment = moment_of(value)
        return relative_time(moment, self.clock.now()) if moment else ""


def mode_of_words(words: Sequence[str]) -> Mode:
    """Return who reads, from words that are no command. What follows `--` is for another program."""
    ours = list(itertools.takewhile(lambda word: word != "--", words))
    return _mode(as_json="--json" in ours, quiet=any(word in ours for word in ("--quiet", "-q")))


def safe(value: object) -> str:
    """Return a stranger's text with everything invisible or commanding shown as an escape.

    Control characters, escape sequences, bidi overrides, zero-width characters and odd spaces come out like
    `\\x1b`: a name can neither move the cursor nor pretend to be another name.
    """
    return "".join(
        char
        if char.isprintable() and char not in _INVISIBLE
        else char.encode("unicode_escape").decode("ascii")
        for char in str(value)
    )


def shown(value: object, style: str = "") -> Text:
    """Return a stranger's text for rich: safe, and never read as markup."""
    return Text(safe(value), style=style, no_wrap=True, overflow="ellipsis")


def foldable(value: object, style: str = "") -> Text:
    """Return a stranger's text that may take several lines."""
    text = shown(value, style)
    text.no_wrap = False
    text.overflow = "fold"
    return text


def as_json(value: object, *, indent: int | None = 2) -> str:
    """Return JSON in ASCII, so that no terminal obeys it and no encoding breaks it."""
    return json.dumps(value, indent=indent, ensure_ascii=True)


def text_of(value: object) -> str:
    """Return a value of the API as text, and nothing for none."""
    return "" if value is None else str(value)


def joined(*parts: object, by: str = " ") -> str:
    """Return the parts that are not empty, as one text."""
    return by.join(str(part) for part in parts if part)


def moment_of(value: object) -> datetime | None:
    """Return a moment of the API, or None if this is none."""
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def amount_of(value: object) -> Decimal | None:
    """Return an amount of the API, or None if this is none."""
    try:
        return None if value is None else Decimal(str(value))
    except InvalidOperation:
        return None


def usd(value: object) -> str:
    """Return an amount: to the cent, or finer where that would be nothing."""
    amount = amount_of(value)
    if amount is None:
        return ""
    cents = amount.quantize(CENT, ROUND_HALF_UP)
    fine = amount.quantize(HUNDREDTH_CENT, ROUND_HALF_UP)
    rounded = cents if abs(amount) >= 1 or cents == amount else fine
    return f"-${-rounded}" if rounded < 0 else f"${rounded}"


def usd_with_doubt(value: object, uncertainty: object) -> str:
    """Return an amount and by how much it may be wrong."""
    doubt = amount_of(uncertainty) or Decimal(0)
    return usd(value) if doubt < HUNDREDTH_CENT else f"{usd(value)} ± {usd(doubt).removeprefix('$')}"


def usd_an_hour(value: object) -> str:
    """Return a price, rounded up: a shown price that is used as a cap must not be refused."""
    price = amount_of(value)
    if price is None:
        return ""
    fine = price.quantize(MILLICENT, ROUND_CEILING)
    cents = fine.quantize(CENT)
    return f"${cents if cents == fine else fine.normalize():,f}/h"


def bar(share: Decimal, width: int, *, unicode: bool) -> str:
    """Return a bar for a share of the whole; any share above zero is visible."""
    length = int(max(Decimal(0), min(Decimal(1), share)) * width + Decimal("0.5"))
    return ("█" if unicode else "#") * (max(1, length) if share > 0 else 0)


def table_of(columns: Sequence[Column], rows: Sequence[Row], width: int, now: datetime) -> Table:
    """Return a table of the columns that fit; no line is longer than the terminal is wide."""
    cells = [[_cell_text(column, row, now) for row in rows] for column in columns]
    fitted = _fitting(columns, cells, width)
    grid = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for at, wide in fitted:
        column = columns[at]
        grid.add_column(
            Text(column.title, no_wrap=True, overflow="ellipsis"),
            justify="right" if column.right else "left",
            width=wide,
            no_wrap=not column.wraps,
            overflow="fold" if column.wraps else "ellipsis",
        )
    for n, row in enumerate(rows):
        grid.add_row(*(_cell(columns[at], cells[at][n], columns[at].style(row)) for at, _ in fitted))
    return grid


def pairs(lines: Sequence[tuple[str, Text | str]]) -> Table:
    """Return a grid with a name and a value a line; a long value wraps beside its name."""
    grid = Table.grid(padding=(0, GAP, 0, 0))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for name, value in lines:
        grid.add_row(shown(name), value if isinstance(value, Text) else foldable(value))
    return grid


class LogText:
    """Turns the bytes of a log into text that no terminal obeys; characters may be cut anywhere."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._after_return = False

    def feed(self, chunk: bytes) -> str:
        """Return the text of a chunk. A return without a line feed, as of progress bars, begins a line."""
        text = []
        for char in self._decoder.decode(chunk):
            if not (char == "\n" and self._after_return):
                text.append("\n" if char == "\r" else char if char in _KEPT_IN_LOGS else safe(char))
            self._after_return = char == "\r"
        return "".join(text)


class LastLine:
    """Finds the last complete line in a log that comes in chunks."""

    def __init__(self, chars_max: int) -> None:
        self._text = LogText()
        self._chars_max = chars_max
        self._rest = ""

    def feed(self, chunk: bytes) -> str | None:
        """Return the last complete line that ends in this chunk, if one does."""
        *complete, rest = (self._rest + self._text.feed(chunk)).split("\n")
        self._rest = rest[-self._chars_max :]
        lines = [line for line in complete if line.strip()]
        return lines[-1][: self._chars_max] if lines else None


def _mode(*, as_json: bool, quiet: bool) -> Mode:
    if as_json:
        return Mode.JSON
    # Not Console.is_terminal: FORCE_COLOR makes that true for a pipe too.
    return Mode.IDS if quiet else Mode.PEOPLE if sys.stdout.isatty() else Mode.JSON


def _console(stream: TextIO) -> Console:
    return Console(file=stream, highlight=False, emoji=False, markup=False)


def _cell_text(column: Column, row: Row, now: datetime) -> str:
    match column.value:
        case str(name):
            return text_of(row.get(name))
        case Ago(name):
            moment = moment_of(row.get(name))
            return relative_time(moment, now) if moment else ""
        case read:
            return read(row)


def _cell(column: Column, text: str, style: str) -> Text:
    return foldable(text, style) if column.wraps else shown(text, style)


def _fitting(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> list[tuple[int, int]]:
    """Return the columns that fit side by side, by number, each with its own width; one always stays."""
    wanted = [
        (at, max(cell_len(column.title), *(cell_len(safe(text)) for text in cells[at]), 0))
        for at, column in enumerate(columns)
    ]

    def least(at: int, wide: int) -> int:
        column = columns[at]
        return min(wide, max(column.shrinks_to, cell_len(column.title))) if column.shrinks_to else wide

    while len(wanted) > 1 and _total(least(at, wide) for at, wide in wanted) > width:
        wanted.remove(max(wanted, key=lambda pair: columns[pair[0]].expendable))
    excess = _total(wide for _, wide in wanted) - width
    fitted = []
    for at, wide in wanted:
        cut = min(max(excess, 0), wide - least(at, wide)) if len(wanted) > 1 else max(excess, 0)
        excess -= cut
        fitted.append((at, max(1, wide - cut)))
    return fitted


def _total(widths: Iterable[int]) -> int:
    each = list(widths)
    return sum(each) + GAP * (len(each) - 1)
