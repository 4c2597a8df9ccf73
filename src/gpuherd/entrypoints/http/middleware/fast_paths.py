"""Fast paths for the two most frequent requests, which need nothing of the framework.

`GET /api/instances/{id}` without parameters is answered with the cached bytes, if there are any; `POST
/api/instances` goes straight to its handler. The framework's routes would give the same bytes, and answer
everything else."""

from __future__ import annotations

from types import SimpleNamespace

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from gpuherd.entrypoints.http.middleware.authorization import declared_route
from gpuherd.entrypoints.http.routes.instances.instances import launch
from gpuherd.entrypoints.replies import JSON_TYPE
from gpuherd.usecases.instances.find import is_id
from gpuherd.usecases.instances.read import ReadInstance

PREFIX = "/api/instances/"
LAUNCH = ("POST", "/api/instances")
DETAILS = ("GET", PREFIX + "{id_or_name}")
# What the framework would leave in the scope, for the meter.
LAUNCH_ROUTE, DETAILS_ROUTE = SimpleNamespace(path=LAUNCH[1]), SimpleNamespace(path=DETAILS[1])


class FastPaths:
    """Runs behind authorization; whatever has no fast path goes to `inside`."""

    def __init__(self, app: Starlette, inside: ASGIApp, reader: ReadInstance):
        self._app = app
        self._inside = inside
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            route = declared_route(scope)
            if route == DETAILS:
                if (body := self._cached_body(scope)) is not None:
                    scope["route"] = DETAILS_ROUTE
                    headers = [JSON_TYPE, (b"content-length", b"%d" % len(body))]
                    await send({"type": "http.response.start", "status": 200, "headers": headers})
                    await send({"type": "http.response.body", "body": body})
                    return
            elif route == LAUNCH:
                scope["route"], scope["app"] = LAUNCH_ROUTE, self._app
                response = await launch(Request(scope, receive))
                await response(scope, receive, send)
                return
        await self._inside(scope, receive, send)

    def _cached_body(self, scope: Scope) -> bytes | None:
        if scope["query_string"]:
            return None
        word = scope["path"][len(PREFIX) :]
        return self._reader.cached_details(word, scope["caller"]) if is_id(word) else None
