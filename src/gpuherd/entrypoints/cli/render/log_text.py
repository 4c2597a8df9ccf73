"""Bytes that a machine wrote as text for a terminal: readable, and nothing in it is obeyed."""

from __future__ import annotations

import codecs

from gpuherd.entrypoints.cli.render.output import safe

_KEPT = frozenset("\n\t")


class LogText:
    """Give it what has come, and get what can be shown; characters may be cut anywhere."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._after_return = False

    def feed(self, chunk: bytes) -> str:
        """Return the text of a chunk; a return without a line feed, as of progress bars, begins a line."""
        shown = []
        for char in self._decoder.decode(chunk):
            if not (char == "\n" and self._after_return):
                shown.append("\n" if char == "\r" else char if char in _KEPT else safe(char))
            self._after_return = char == "\r"
        return "".join(shown)


class LastLine:
    """Give it what has come, and get the last line that is complete."""

    def __init__(self, chars_max: int) -> None:
        self._text = LogText()
        self._chars_max = chars_max
        self._rest = ""

    def feed(self, chunk: bytes) -> str | None:
        """Return the last whole line of all so far that is in this chunk, if one is."""
        *whole, rest = (self._rest + self._text.feed(chunk)).split("\n")
        self._rest = rest[-self._chars_max :]
        said = [line for line in whole if line.strip()]
        return said[-1][: self._chars_max] if said else None
