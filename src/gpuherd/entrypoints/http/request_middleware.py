"""What every request passes: ids, limits, log line, meter, trace."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Protocol

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import (
    ASGIApp,
    Message,
    Receive,
    Scope,
    Send,
)

from gpuherd.domain.errors import GpuherdError
from gpuherd.entrypoints.http.instance_routes import launch
from gpuherd.entrypoints.http_auth import declared_route
from gpuherd.entrypoints.problem_response import (
    BodyTooLarge,
    HeadersTooLarge,
    MalformedRequest,
    Overloaded,
    RequestTimeout,
    problem,
    problem_of,
    problem_response,
    unexpected,
)
from gpuherd.entrypoints.use_case_access import (
    RequestContext,
    current_request,
    sanitized_id,
)
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.ports.telemetry_port import Meter, Tracer

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


LAUNCH = ("POST", "/api/instances")
# What the framework would leave in the scope, for the meter.
LAUNCH_ROUTE = SimpleNamespace(path=LAUNCH[1])


class FastPaths:
    """Runs behind authorization. Calls the route of launches itself, and `inside` for all others."""

    def __init__(self, app: Starlette, inside: ASGIApp):
        self._app = app
        self._inside = inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and declared_route(scope) == LAUNCH:
            scope["route"], scope["app"] = LAUNCH_ROUTE, self._app
            response = await launch(Request(scope, receive))
            await response(scope, receive, send)
            return
        await self._inside(scope, receive, send)


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
                # A caller without a key writes nothing into a trace.
                span.forget()


SERVED = frozenset({"/livez", "/readyz", "/health", "/metrics"})


class WorkerOnlyMiddleware:
    """Passes on only what monitoring asks about this process."""

    def __init__(self, inside: ASGIApp):
        self._inside = inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in SERVED:
            await self._inside(scope, receive, send)
            return
        detail = "this process is a worker (serve --role worker); ask a replica that serves the API"
        await problem_response(problem(404, "NOT_SERVED_HERE", detail))(scope, receive, send)


HEAD_MAX_BYTES = 16 * 1024
BODY_MAX_BYTES = 1024 * 1024
BODY_TIMEOUT_S = 30.0


# The colon, the blank and the end of the line of a header.
HEADER_OVERHEAD_BYTES = 4


HTTP_VERSIONS = ("1.1", "1.0")
BODY_HEADERS = frozenset({b"content-length", b"transfer-encoding"})


class GuardedClient(Protocol):
    """The connection that a request came on. It learns when a request begins and ends."""

    def request_began(self) -> None: ...

    def request_ended(self, *, body_is_read: bool) -> None: ...

    def is_one_too_many(self) -> bool:
        """Return True if more connections are open than the server serves."""
        ...


class LimitRequests:
    """The outermost middleware: tells the connection when a request begins and when its reply is written."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = _connection_of(scope)
        if connection is None:
            await self._app(scope, receive, send)
            return
        body_is_read = not BODY_HEADERS.intersection(name for name, _ in scope["headers"])

        async def noting_the_end() -> Message:
            nonlocal body_is_read
            message = await receive()
            body_is_read = body_is_read or not message.get("more_body", False)
            return message

        connection.request_began()
        try:
            await self._app(scope, noting_the_end, send)
        finally:
            connection.request_ended(body_is_read=body_is_read)


def check_head(scope: Scope) -> None:
    """Refuse a head that is too large or ambiguous, and a request that is one too many."""
    headers = scope["headers"]
    size = len(scope["raw_path"]) + len(scope["query_string"])
    if size + sum(len(name) + len(value) + HEADER_OVERHEAD_BYTES for name, value in headers) > HEAD_MAX_BYTES:
        raise HeadersTooLarge
    if scope["http_version"] not in HTTP_VERSIONS or BODY_HEADERS.issubset(name for name, _ in headers):
        raise MalformedRequest
    connection = _connection_of(scope)
    if connection is not None and connection.is_one_too_many():
        raise Overloaded


def limited_receive(scope: Scope, receive: Receive, timeout_s: float) -> Receive:
    """Return a `receive` that refuses a body of more than 1 MiB, and one that is not complete in time.

    The time is for the body as a whole: one byte now and then does not prolong it. After the body there is
    no limit, because a long poll then waits for the client to leave.
    """
    declared = dict(scope["headers"]).get(b"content-length", b"")
    ends_at, size, is_complete = asyncio.get_running_loop().time() + timeout_s, 0, False

    async def receive_in_limits() -> Message:
        nonlocal size, is_complete
        if is_complete:
            return await receive()
        if declared.isdigit() and int(declared[:20]) > BODY_MAX_BYTES:
            raise _too_large()
        try:
            async with asyncio.timeout_at(ends_at):
                message = await receive()
        except TimeoutError:
            raise RequestTimeout(f"the body was not complete after {timeout_s:g} seconds") from None
        size += len(message.get("body", b""))
        if size > BODY_MAX_BYTES:
            raise _too_large()
        is_complete = not message.get("more_body", False)
        return message

    return receive_in_limits


def _connection_of(scope: Scope) -> GuardedClient | None:
    """Return the connection; None for a test client that talks to the application without a server."""
    connection: GuardedClient | None = scope.get("state", {}).get("connection")
    return connection


def _too_large() -> BodyTooLarge:
    return BodyTooLarge(f"a request body may have at most {BODY_MAX_BYTES} bytes")
