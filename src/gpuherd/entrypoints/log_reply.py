"""A log as a reply: text that is passed on as it comes, for as long as client, key and server stay."""

from __future__ import annotations

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gpuherd.domain.errors import CloudUnavailable
from gpuherd.resilience.first_of import first_of
from gpuherd.usecases.instances.read_log import LogReader, LogStream, ReadLog

log = structlog.get_logger()

# Proxies must pass on each line at once, as it is.
HEADERS = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}


class LogReply(Response):
    """Opens the log when it is sent, so that no place is taken by a reply that never is."""

    media_type = "text/plain"

    def __init__(self, logs: ReadLog, reader: LogReader):
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._logs = logs
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._logs.open(self._reader) as stream:
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
