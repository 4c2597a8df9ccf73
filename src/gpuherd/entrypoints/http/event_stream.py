"""A reply that does not end by itself: server-sent events, for as long as client, key and server stay."""

from __future__ import annotations

import asyncio

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gpuherd.usecases.events.event_stream import EventFeed, EventStream, Reader

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
