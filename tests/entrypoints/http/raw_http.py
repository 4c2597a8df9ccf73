"""HTTP by hand, over real sockets: for clients that no library would let us be."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import uvicorn

from gpuherd.bootstrap.http_server import ConnectionLimits, HttpServer
from gpuherd.entrypoints.use_case_access import Plane


@dataclass(frozen=True)
class RawReply:
    """All that came until the server closed, or until the body was complete."""

    raw: bytes

    @property
    def status(self) -> int | None:
        return int(self.raw.split(b" ", 2)[1]) if self.raw.startswith(b"HTTP/1.1 ") else None

    @property
    def head(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[0].lower()

    @property
    def json(self) -> Any:
        return json.loads(self.raw.partition(b"\r\n\r\n")[2])


@dataclass(frozen=True)
class RunningServer:
    """A server that listens."""

    port: int
    server: HttpServer

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def send(self, raw: bytes) -> RawReply:
        """Send bytes as they are, and read until the server closes."""
        reader, writer = await self.connect()
        try:
            with contextlib.suppress(ConnectionError):
                writer.write(raw)
                await writer.drain()
            return RawReply(await until_closed(reader))
        finally:
            writer.close()


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the other side closes, however it does."""
    got = b""
    async with asyncio.timeout(20):
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(65536):
                got += part
    return got


@contextlib.asynccontextmanager
async def running_server(plane: Plane, limits: ConnectionLimits) -> AsyncIterator[RunningServer]:
    """Serve a plane on a free port of this machine."""
    server = HttpServer(SimpleNamespace(plane=plane), limits=limits)
    async with serving(server) as port:
        yield RunningServer(port, server)


@contextlib.asynccontextmanager
async def serving(server: uvicorn.Server) -> AsyncIterator[int]:
    """Run a server on a free port of this machine, and return the port."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        task = asyncio.create_task(server.serve(sockets=[listening]))
        async with asyncio.timeout(10):
            while not server.started:
                await asyncio.sleep(0.01)
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            await task
