"""A listener on loopback, and everything of it that has nothing to do with what it says."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from types import TracebackType
from typing import Self


class LoopbackServer:
    """Counts connections, and ends those that are still open when the block ends."""

    host: str = "127.0.0.1"
    # As it listens; 0 before that lets the system choose.
    port: int = 0
    connections: int = 0

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Say what is to be said on one connection."""
        raise NotImplementedError

    def listening_tls(self) -> ssl.SSLContext | None:
        """Return with what the connections begin; without, they begin in the clear."""
        return None

    async def __aenter__(self) -> Self:
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._serve, self.host, self.port, ssl=self.listening_tls())
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self.converse(reader, writer)
        writer.close()
