"""A short cut for the most frequent question, `GET /api/instances/{id}`: kept bytes need no framework.

It answers only what is kept and asked for without parameters; the route in `instances.py` answers the rest,
and would give the same bytes.
"""

from __future__ import annotations

from types import SimpleNamespace

from starlette.types import ASGIApp, Receive, Scope, Send

from gpuherd.usecases.find_instance import is_id
from gpuherd.usecases.read_instance import ReadInstance

PREFIX = "/api/instances/"
# What the framework would leave in the scope, for the meter.
ROUTE = SimpleNamespace(path=PREFIX + "{id_or_name}")


class HotDetails:
    """Stands behind the key check and in front of the framework."""

    def __init__(self, app: ASGIApp, reader: ReadInstance):
        self._app = app
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = self._kept(scope)
        if body is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = ROUTE
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _kept(self, scope: Scope) -> bytes | None:
        if scope["type"] != "http" or scope["method"] != "GET" or scope["query_string"]:
            return None
        path: str = scope["path"]
        word = path[len(PREFIX) :]
        return self._reader.kept(word) if path.startswith(PREFIX) and is_id(word) else None
