"""ASGI middleware around every request.

Its ids, a body limit, one line in the log, and the meter.
"""

from __future__ import annotations

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpuherd.clock import Clock, Ids
from gpuherd.domain.errors import GpuherdError
from gpuherd.entrypoints.http.middleware.limit_requests import check_head, limited_receive
from gpuherd.entrypoints.problems import (
    problem_of,
    problem_response,
    unexpected,
)
from gpuherd.entrypoints.request_context import RequestContext, current_request, sanitized_id
from gpuherd.ports.metrics import Meter

log = structlog.get_logger()

# What no route of ours answers: its path is anybody's invention.
NO_ROUTE = "other"
REQUEST_ID, CORRELATION_ID = b"x-request-id", b"x-correlation-id"
NO_SNIFFING = (b"x-content-type-options", b"nosniff")
CACHE_CONTROL = b"cache-control"
NOT_CACHED = (CACHE_CONTROL, b"no-store")


class RequestContextMiddleware:
    """Around everything but the limits of the connection.

    Gives the request its ids and a body limit, and logs and measures how it went.
    """

    def __init__(
        self,
        app: ASGIApp,
        clock: Clock,
        ids: Ids,
        meter: Meter,
        body_timeout_s: float,
    ):
        self._app = app
        self._body_timeout_s = body_timeout_s
        self._clock = clock
        self._ids = ids
        self._meter = meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id, correlation_id = _read_headers(scope)
        at = self._clock.now()
        request_id = request_id or self._ids.new("req_", at)
        context = RequestContext(request_id, correlation_id or request_id, at)
        token = current_request.set(context)
        reply = _ResponseSender(send, context)
        started_s = self._clock.monotonic()
        try:
            check_head(scope)
            await self._app(scope, limited_receive(scope, receive, self._body_timeout_s), reply)
        except GpuherdError as error:
            await problem_response(problem_of(error))(scope, receive, reply)
        except Exception:
            log.exception("http.unexpected", path=scope["path"])
            # Where the framework was in between, it has answered by now.
            if reply.status is None:
                await problem_response(unexpected())(scope, receive, reply)
        finally:
            took_s = self._clock.monotonic() - started_s
            method, status = scope["method"], reply.status
            self._meter.request(route_of(scope), method, status, took_s)
            log.info(
                "http.request",
                method=method,
                path=scope["path"],
                status=status,
                duration_ms=round(took_s * 1000, 3),
                request_id=request_id,
                correlation_id=context.correlation_id,
            )
            current_request.reset(token)


class _ResponseSender:
    """Sends, and adds the request's ids and the headers that every reply has."""

    __slots__ = ("_context", "_send", "status")

    def __init__(self, send: Send, context: RequestContext):
        self._send = send
        self._context = context
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            ids = self._context
            headers = message["headers"]
            message["headers"] = [
                *headers,
                (REQUEST_ID, ids.request_id.encode()),
                (CORRELATION_ID, ids.correlation_id.encode()),
                NO_SNIFFING,
                *(() if CACHE_CONTROL in dict(headers) else (NOT_CACHED,)),
            ]
        await self._send(message)


def _read_headers(scope: Scope) -> tuple[str | None, str | None]:
    """Return the ids that the client sent, if they are harmless."""
    sent = dict(scope["headers"])
    request_id = correlation_id = None
    if REQUEST_ID in sent or CORRELATION_ID in sent:
        # Of several, the first that is harmless.
        for name, value in scope["headers"]:
            if name == REQUEST_ID:
                request_id = request_id or sanitized_id(value)
            elif name == CORRELATION_ID:
                correlation_id = correlation_id or sanitized_id(value)
    return request_id, correlation_id


def route_of(scope: Scope) -> str:
    """Return the template of the route that answered: the framework leaves it in the scope."""
    return getattr(scope.get("route"), "path", NO_ROUTE)
