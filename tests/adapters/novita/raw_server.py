"""A server that says exactly the bytes a test wants, on a real socket, and counts what it was sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class RawServer:
    answer: Callable[[Request, asyncio.StreamWriter], Awaitable[None]]
    base_url: str = ""
    requests: list[Request] = field(default_factory=list)
    connections: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while not writer.is_closing():
                request = await _read_request(reader)
                self.requests.append(request)
                await self.answer(request, writer)
        writer.close()


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    line, *lines = head.strip().split("\r\n")
    method, target, _ = line.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body)


@contextlib.asynccontextmanager
async def raw_server(
    answer: Callable[[Request, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[RawServer]:
    raw = RawServer(answer)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await raw.serve(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    raw.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield raw
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def http(status: int, body: bytes | dict[str, Any], *headers: str) -> bytes:
    """Return a whole HTTP reply as bytes."""
    raw = json.dumps(body).encode() if isinstance(body, dict) else body
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(raw)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + raw


def saying(reply: bytes) -> Callable[[Request, asyncio.StreamWriter], Awaitable[None]]:
    """Answer every request with the same bytes."""

    async def answer(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)
        await writer.drain()

    return answer


def in_turn(*replies: bytes) -> Callable[[Request, asyncio.StreamWriter], Awaitable[None]]:
    """Answer each request with the next bytes; the last ones are said again and again."""
    rest = list(replies)

    async def answer(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(rest.pop(0) if len(rest) > 1 else rest[0])
        await writer.drain()

    return answer


def reset(writer: asyncio.StreamWriter) -> None:
    """Cut the connection so that the other side sees a reset rather than an end."""
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def free_port() -> int:
    """Return a port on which nobody listens."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port
