"""Authorization: finds the route of a request, and refuses a key whose scope is too small for it."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from gpuherd.entrypoints.auth.authorization import ROUTE_SCOPES, RouteKey, RouteTable, check_scope


class AuthorizationMiddleware:
    """Runs behind authentication. It is the only place that compares scopes with those of `ROUTE_SCOPES`.

    What is inside finds the route in the scope: None if there is none, and the framework says so.
    """

    def __init__(self, app: ASGIApp, routes: RouteTable):
        self._app = app
        self._routes = routes

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            key = scope["declared_route"] = self._routes.find(scope["method"], scope["path"])
            needed = None if key is None else ROUTE_SCOPES[key]
            if needed is not None:
                check_scope(scope["caller"], needed)
        await self._app(scope, receive, send)


def declared_route(scope: AsgiScope) -> RouteKey | None:
    """Return which route of the table a request is for."""
    found: RouteKey | None = scope["declared_route"]
    return found
