"""The line between a browser and the server, which can be cut, or fall silent without anybody noticing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(eq=False)
class Connection:
    """One of the browser, and what is known of it."""

    browser: asyncio.StreamWriter
    server: asyncio.StreamWriter
    is_silent: bool = False
    # Whether something is still to come over it: an answer, or a stream that does not end.
    awaits: bool = False

    def end(self) -> None:
        self.browser.transport.abort()
        self.server.transport.abort()


class Line:
    """Passes bytes on, both ways, over TCP on the loopback."""

    def __init__(self, server_port: int):
        self.port = 0
        self._is_cut = False
        self._server_port = server_port
        self._connections: set[Connection] = set()

    def cut(self) -> None:
        """End every connection, and take none."""
        self._is_cut = True
        for it in self._connections:
            it.end()

    def mend(self) -> None:
        """Take connections again."""
        self._is_cut = False

    def fall_silent(self) -> None:
        """Carry nothing any more over what is open now, and tell nobody; later connections are good."""
        for it in self._connections:
            it.is_silent = True

    def end_idle(self) -> None:
        """End what nobody waits for, as browsers do themselves when the network changes."""
        for it in self._connections:
            if not it.awaits:
                it.end()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        answers, server = await asyncio.open_connection("127.0.0.1", self._server_port)
        connection = Connection(writer, server)
        self._connections.add(connection)
        try:
            await asyncio.gather(_ask(connection, reader), _answer(connection, answers))
        finally:
            self._connections.discard(connection)
            connection.end()


async def _ask(connection: Connection, source: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65536):
            connection.awaits = True
            if not connection.is_silent:
                connection.server.write(data)
    connection.end()


async def _answer(connection: Connection, source: asyncio.StreamReader) -> None:
    is_stream = False
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65536):
            is_stream |= b"text/event-stream" in data
            if not connection.is_silent:
                connection.awaits = is_stream
                connection.browser.write(data)
    if not connection.is_silent:
        connection.end()


@asynccontextmanager
async def open_line(server_port: int) -> AsyncIterator[Line]:
    """Have a line for as long as the context lasts."""
    line = Line(server_port)
    listening = await asyncio.start_server(line.connect, "127.0.0.1")
    line.port = listening.sockets[0].getsockname()[1]
    try:
        yield line
    finally:
        line.cut()
        listening.close()
