"""User programs for the probes to look at: real servers on loopback that note what they were asked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from gpuherd.domain.cloud.machine import PortMapping

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Program:
    """A server that runs; `asked` holds the path and query of each request."""

    port: int
    asked: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def at(self, below: str = "") -> PortMapping:
        return PortMapping(8080, f"http://127.0.0.1:{self.port}{below}", "http")


def says(text: str = "ok", status: int = 200, content_type: str = "text/html", **headers: str) -> Answer:
    """Return a program that always answers the same."""

    async def answer(_: web.Request) -> web.Response:
        body = None if status in (204, 304) else text.encode()
        return web.Response(body=body, status=status, content_type=content_type, headers=headers)

    return answer


@asynccontextmanager
async def program(answer: Answer | None = None) -> AsyncIterator[Program]:
    """Run a program on a free port of loopback."""
    running = Program(0)

    async def note(request: web.Request) -> web.StreamResponse:
        running.asked.append(request.raw_path)
        running.headers.append(dict(request.headers))
        return await (answer or says())(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", note)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    running.port = runner.addresses[0][1]
    try:
        yield running
    finally:
        await runner.cleanup()


async def drip(request: web.Request) -> web.StreamResponse:
    """Answer one byte at a time, for ever."""
    reply = web.StreamResponse(headers={"content-type": "text/html"})
    await reply.prepare(request)
    while True:
        await reply.write(b"x")
        await asyncio.sleep(0.01)


async def pour(request: web.Request) -> web.StreamResponse:
    """Answer as fast as possible, for ever."""
    reply = web.StreamResponse(headers={"content-type": "text/html"})
    await reply.prepare(request)
    while True:
        await reply.write(b"<title>502 Bad Gateway</title>".ljust(65_536))


async def reset(request: web.Request) -> web.StreamResponse:
    """Break the connection off instead of an answer."""
    assert request.transport is not None
    sock = request.transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert isinstance(request.transport, asyncio.WriteTransport)
    request.transport.abort()
    return web.Response()
