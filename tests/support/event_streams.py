"""A client of an endless reply, in the same process: httpx would wait for its end first."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import ASGIApp, Message


class StreamedReply:
    """What has come so far of a reply."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.complete = False
        # While it is clear, the client reads nothing.
        self.reads = asyncio.Event()
        self.reads.set()
        self._asked = False
        self._left = asyncio.Event()

    async def receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.reads.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message.get("body", b"")
            self.complete = not message.get("more_body", False)

    def leave(self) -> None:
        self._left.set()

    @property
    def messages(self) -> list[dict[str, str]]:
        """The whole messages, as the standard says that a stream is read."""
        *whole, _ = self.body.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n\n")
        found = []
        for block in whole:
            fields: dict[str, str] = {}
            for line in block.split("\n"):
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
            found.append(fields)
        return found

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(it["data"]) for it in self.messages if "data" in it]

    @property
    def ids(self) -> list[int]:
        return [int(it["id"]) for it in self.messages if "id" in it]


@asynccontextmanager
async def asking(
    app: ASGIApp, path: str, headers: Mapping[str, str], query: str = ""
) -> AsyncIterator[StreamedReply]:
    """Ask, and leave at the end."""
    reply = StreamedReply()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("gpuherd", 80),
    }
    task = asyncio.ensure_future(app(scope, reply.receive, reply.send))
    try:
        yield reply
    finally:
        reply.leave()
        reply.reads.set()
        async with asyncio.timeout(5):
            await task
