"""The HTTP API in process; every request that goes through here is recorded with its reply."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import httpx

from gpuherd.bootstrap.service_lifecycle import build_application
from gpuherd.entrypoints.use_case_access import Plane
from tests.entrypoints.http.conftest import KEY
from tests.golden.recording import Recording, body_lines, header_lines

# It follows from the body, which is recorded.
LEFT_OUT = frozenset({"content-length"})


@dataclass(frozen=True)
class Caller:
    """Who asks, and with which key."""

    name: str
    key: str | None = None


ADMIN = Caller("admin", KEY)
NOBODY = Caller("nobody")


class RecordedApi:
    """Asks and records."""

    def __init__(
        self, http: httpx.AsyncClient, recording: Recording, numbers: Iterator[int] | None = None
    ) -> None:
        self._http = http
        self.recording = recording
        self._numbers = numbers or count(1)

    @asynccontextmanager
    async def of(self, plane: Plane) -> AsyncIterator[RecordedApi]:
        """Yield the API of another plane, into the same recording."""
        transport = httpx.ASGITransport(build_application(plane), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://gpuherd") as http:
            yield RecordedApi(http, self.recording, self._numbers)

    async def __call__(
        self,
        title: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        caller: Caller = ADMIN,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Return the JSON of the reply. A body of bytes or text is sent as it is."""
        said = dict(headers or {})
        content = _encoded(body)
        # Its own name for the request keeps one more or one fewer of them from changing every id after it.
        sent = {"X-Request-Id": f"request-{next(self._numbers)}", **said}
        if caller.key is not None:
            sent["Authorization"] = f"Bearer {caller.key}"
        reply = await self._http.request(method, path, content=content, headers=sent)
        self.recording.heading(title)
        self.recording.add(f"{method} {path}", f"> {caller.name}", *header_lines(">", said))
        if content is not None:
            self.recording.add(*(f"> {line}" for line in body_lines(content)))
        self.recording.add(f"< {reply.status_code}", *_reply_headers(reply))
        self.recording.add_body(reply.content)
        is_json = "json" in reply.headers.get("content-type", "") and reply.content
        return reply.json() if is_json else None


def _encoded(body: Any) -> bytes | None:
    match body:
        case None | bytes():
            return body
        case str():
            return body.encode()
        case _:
            return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def _reply_headers(reply: httpx.Response) -> list[str]:
    return header_lines("<", [it for it in reply.headers.multi_items() if it[0] not in LEFT_OUT])
