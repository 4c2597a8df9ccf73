"""ASGI middleware for callers that keep traces: their requests are spans in them."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpuherd.entrypoints.http.middleware.request_context import route_of
from gpuherd.ports.tracing.tracer import Tracer

TRACEPARENT = b"traceparent"
UNAUTHORIZED = 401


class TracingMiddleware:
    """Outermost, and only there where traces are kept. A request without a `traceparent` passes untouched."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        said = None
        if scope["type"] == "http":
            said = next((value for name, value in scope["headers"] if name == TRACEPARENT), None)
        if said is None:
            await self._app(scope, receive, send)
            return
        status: int | None = None

        async def noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with self._tracer.request(said.decode("latin-1")) as span:
            await self._app(scope, receive, noting_status)
            method, route = scope["method"], route_of(scope)
            span.rename(f"{method} {route}")
            span.note("http.request.method", method)
            span.note("http.route", route)
            if status is not None:
                span.note("http.response.status_code", status)
            if status == UNAUTHORIZED:
                # Whoever has no key writes nothing into anybody's traces.
                span.forget()
