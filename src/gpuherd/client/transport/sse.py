"""Reads server-sent events out of bytes, wherever the network cuts them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BREAK = re.compile(rb"\r\n|\n|\r")
# No event of ours comes near; what sends more is not gpuherd.
MESSAGE_MAX = 4 * 1024 * 1024


class NotAnEventStream(ValueError):
    """What came is not a stream of events."""


@dataclass(frozen=True)
class SseMessage:
    """One message. Its id is the last that the stream has said."""

    id: str
    type: str
    data: str


class SseParser:
    """Give it what has come, and get what is complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._size = 0
        self._id = self._type = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[SseMessage]:
        """Return the messages that this chunk completes."""
        for line in self._lines(chunk):
            if not line:
                if self._data:
                    yield SseMessage(self._id, self._type or "message", "\n".join(self._data))
                self._size, self._type, self._data = 0, "", []
                continue
            self._size += len(line)
            if self._size > MESSAGE_MAX:
                raise NotAnEventStream("a message has no end")
            self._take(line)

    def _lines(self, chunk: bytes) -> Iterator[bytes]:
        held = self._rest + chunk
        if len(held) > MESSAGE_MAX:
            raise NotAnEventStream("a line has no end")
        start = 0
        for found in _BREAK.finditer(held):
            if found.group() == b"\r" and found.end() == len(held):
                # Half a line break, perhaps.
                break
            yield held[start : found.start()]
            start = found.end()
        self._rest = held[start:]

    def _take(self, line: bytes) -> None:
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._type = value
        elif name == "id" and "\0" not in value:
            self._id = value
