"""Replies that go on: event streams, logs, long polls."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gpuherd.domain.errors import CloudUnavailable
from gpuherd.resilience.concurrency import first_of
from gpuherd.usecases.events.stream_events import EventFeed, EventStream, Reader
from gpuherd.usecases.instances.read_log import LogReader, LogStream, read_log
from gpuherd.usecases.services import Services

MEDIA_TYPE = "text/event-stream"


# Proxies must pass on each event at once, as it is.
HEADERS = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}


# What clients wait before they come back, in milliseconds.
RETRY_HINT = b"retry: 2000\n\n"


class EventStreamReply(Response):
    """Opens the stream when it is sent, so that no place is taken by a reply that never is."""

    media_type = MEDIA_TYPE

    def __init__(self, feed: EventFeed, reader: Reader):
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        # The format is UTF-8 by definition.
        self.headers["content-type"] = MEDIA_TYPE
        self._feed = feed
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._feed.open(self._reader) as stream:
            leaving = asyncio.create_task(_end_with_client(stream, receive))
            try:
                # First, so that a client that has seen it open can look, and then misses nothing.
                await stream.begin()
                start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
                await send(start)
                chunk: bytes | None = RETRY_HINT
                while chunk is not None:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                    chunk = await stream.next()
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            finally:
                leaving.cancel()
                await asyncio.gather(leaving, return_exceptions=True)


async def _end_with_client(stream: EventStream, receive: Receive) -> None:
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    finally:
        # Also when the client sends what no client sends here.
        stream.end()


log = structlog.get_logger()


class LogReply(Response):
    """Opens the log when it is sent, so that no place is taken by a reply that never is."""

    media_type = "text/plain"

    def __init__(self, services: Services, reader: LogReader):
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._services = services
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with read_log(self._services, self._reader) as stream:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            # At once: the log of a program that says nothing yet is open, too.
            await send({"type": "http.response.body", "body": b"", "more_body": True})
            try:
                await first_of(_pass_on(stream, send), _until_left(receive))
            except CloudUnavailable as broken:
                # The reply has begun. That its end is missing tells the client that there was more.
                log.info("logs.broken", code=broken.code)


async def _pass_on(stream: LogStream, send: Send) -> None:
    while chunk := await stream.next():
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


T = TypeVar("T")


# Only the log will ever see it.
CLIENT_CLOSED_REQUEST = 499


async def until_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what `work` gives; if the client goes away first, end `work` and return None."""
    result: T | None = await first_of(work, _wait_for_disconnect(request))
    return result


async def _wait_for_disconnect(request: Request) -> None:
    """Return when the client has gone away; raise what is wrong with the body that nobody asked it for."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
