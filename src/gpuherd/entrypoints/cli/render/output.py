"""Where words go: tables for people, JSON for programs, and nothing that a terminal would obey."""

from __future__ import annotations

import io
import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Annotated, TextIO

import typer
from rich.console import Console, RenderableType
from rich.text import Text

JsonOption = Annotated[bool, typer.Option("--json", help="JSON, also on a terminal.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Only ids, one a line.")]
SilentOption = Annotated[bool, typer.Option("--quiet", "-q", help="Nothing; the exit code tells.")]

# Printable by Python's rules, invisible by everybody else's: joiners, fillers, variation selectors.
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


def safe(value: object) -> str:
    """Return what a stranger wrote with everything invisible or commanding shown as an escape.

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
    """Return a stranger's words for rich: safe, and never read as markup."""
    return Text(safe(value), style=style, no_wrap=True, overflow="ellipsis")


def as_json(value: object, *, indent: int | None = 2) -> str:
    """Return JSON in ASCII, so that no terminal obeys it and no encoding breaks it."""
    return json.dumps(value, indent=indent, ensure_ascii=True)


class Mode(Enum):
    """Who reads."""

    PEOPLE = auto()
    JSON = auto()
    IDS = auto()


@dataclass(frozen=True)
class Output:
    """The two streams of one command. Answers go to stdout, everything said about them to stderr."""

    mode: Mode
    out: Console
    err: Console

    @classmethod
    def for_command(cls, *, as_json: bool = False, quiet: bool = False) -> Output:
        """Decide from the options and from where stdout leads."""
        if as_json and quiet:
            raise typer.BadParameter("--json and --quiet exclude each other")
        for stream in (sys.stdout, sys.stderr):
            _never_fail_to_encode(stream)
        return cls(_mode(as_json=as_json, quiet=quiet), _console(sys.stdout), _console(sys.stderr))

    @property
    def for_people(self) -> bool:
        return self.mode is Mode.PEOPLE

    @property
    def unicode(self) -> bool:
        """Return True if the terminal can show more than ASCII."""
        return self.out.encoding.lower().replace("-", "").startswith("utf")

    def show(self, *renderables: RenderableType) -> None:
        """Show something to people, on stdout."""
        for renderable in renderables:
            self.out.print(renderable)

    @property
    def silent(self) -> bool:
        """Return True if a command that has no id to give should say nothing at all."""
        return self.mode is Mode.IDS

    def json(self, value: object) -> None:
        """Give the answer to a program, on stdout."""
        typer.echo(as_json(value))

    def answer(self, value: object, id_: str) -> None:
        """Give one thing to a program: whole, or only its id."""
        if self.mode is Mode.IDS:
            self.ids([id_])
        else:
            self.json(value)

    def ids(self, ids: list[str]) -> None:
        """Give one id a line, on stdout."""
        for one in ids:
            typer.echo(safe(one))

    def note(self, text: str, style: str = "") -> None:
        """Say something about the work, on stderr; the text must be safe already."""
        self.err.print(Text(text, style=style), soft_wrap=not self.err.is_terminal)


def mode_of_words(words: Sequence[str]) -> Mode:
    """Return who reads, from words that are no command. What follows `--` is not ours."""
    ours = list(itertools.takewhile(lambda it: it != "--", words))
    return _mode(as_json="--json" in ours, quiet=any(it in ours for it in ("--quiet", "-q")))


def _mode(*, as_json: bool, quiet: bool) -> Mode:
    if as_json:
        return Mode.JSON
    # Not Console.is_terminal: FORCE_COLOR makes that true for a pipe too.
    return Mode.IDS if quiet else Mode.PEOPLE if sys.stdout.isatty() else Mode.JSON


def _console(stream: TextIO) -> Console:
    return Console(file=stream, highlight=False, emoji=False, markup=False)


def _never_fail_to_encode(stream: TextIO) -> None:
    """A terminal that cannot show a character gets it escaped, not a traceback."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
