"""Around every request, as plain ASGI: its ids, a size limit, the key, one line in the log, and the meter."""

from __future__ import annotations

import hashlib
import hmac

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpuherd.clock import Clock, Ids
from gpuherd.domain.errors import GpuherdError
from gpuherd.domain.secret import Secret
from gpuherd.entrypoints.http.context import RequestContext, current, sane
from gpuherd.entrypoints.http.problems import (
    BodyTooLarge,
    Unauthorized,
    problem_of,
    problem_response,
    unexpected,
)
from gpuherd.ports.meter import Meter

log = structlog.get_logger()

BODY_MAX = 1024 * 1024
OPEN_PATHS = frozenset({"/livez", "/readyz", "/health", "/openapi.json", "/docs"})
# What no route of ours answers: its path is anybody's invention.
NO_ROUTE = "other"


class Surroundings:
    """The outermost layer: gives the request its ids and a limit, and takes note of how it went."""

    def __init__(self, app: ASGIApp, clock: Clock, ids: Ids, meter: Meter):
        self._app = app
        self._clock = clock
        self._ids = ids
        self._meter = meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id, correlation_id, declared = _read_headers(scope)
        request_id = request_id or self._ids.new("req_")
        context = RequestContext(request_id, correlation_id or request_id, self._clock.now())
        token = current.set(context)
        structlog.contextvars.bind_contextvars(request_id=request_id, correlation_id=context.correlation_id)
        reply = _Reply(send, context)
        started_s = self._clock.monotonic()
        try:
            await self._answer(scope, receive, reply, declared)
        finally:
            took_s = self._clock.monotonic() - started_s
            self._meter.request(_route(scope), scope["method"], reply.status, took_s)
            log.info(
                "http.request",
                method=scope["method"],
                path=scope["path"],
                status=reply.status,
                duration_ms=round(took_s * 1000, 3),
            )
            structlog.contextvars.unbind_contextvars("request_id", "correlation_id")
            current.reset(token)

    async def _answer(self, scope: Scope, receive: Receive, reply: _Reply, declared: bytes) -> None:
        try:
            await self._app(scope, _limited(receive, declared), reply)
        except GpuherdError as error:
            await problem_response(problem_of(error))(scope, receive, reply)
        except Exception:
            log.exception("http.unexpected", path=scope["path"])
            # Where the framework was in between, it has answered by now.
            if reply.status is None:
                await problem_response(unexpected())(scope, receive, reply)


class _Reply:
    """Sends, and adds the request's ids and the headers that every reply has."""

    def __init__(self, send: Send, context: RequestContext):
        self._send = send
        self._context = context
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            ids = self._context
            headers = message["headers"] = [
                *message["headers"],
                (b"x-request-id", ids.request_id.encode()),
                (b"x-correlation-id", ids.correlation_id.encode()),
                (b"x-content-type-options", b"nosniff"),
            ]
            if not any(name == b"cache-control" for name, _ in headers):
                headers.append((b"cache-control", b"no-store"))
        await self._send(message)


class KeyCheck:
    """Lets nobody past without a key, except to the few open paths."""

    def __init__(self, app: ASGIApp, admin_key: Secret):
        self._app = app
        self._digest = _digest(admin_key.reveal())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS and not self._knows(scope):
            raise Unauthorized(
                "send the header 'Authorization: Bearer <key>' with a key that this server knows"
            )
        await self._app(scope, receive, send)

    def _knows(self, scope: Scope) -> bool:
        sent = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(sent) != 1:
            return False
        scheme, _, key = sent[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(_digest(key.strip()), self._digest)


def _read_headers(scope: Scope) -> tuple[str | None, str | None, bytes]:
    """Return the ids that the client sent, where they are harmless, and the length that it declared."""
    request_id = correlation_id = None
    declared = b""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            request_id = request_id or sane(value)
        elif name == b"x-correlation-id":
            correlation_id = correlation_id or sane(value)
        elif name == b"content-length":
            declared = value
    return request_id, correlation_id, declared


def _route(scope: Scope) -> str:
    """Return the template of the route that answered: the framework leaves it in the scope."""
    return getattr(scope.get("route"), "path", NO_ROUTE)


def _digest(key: str | bytes) -> bytes:
    raw = key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
    return hashlib.sha256(raw).digest()


def _limited(receive: Receive, declared: bytes) -> Receive:
    """Return `receive` with a limit, so that no body is read to its end just to be refused."""
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        if declared.isdigit() and int(declared[:20]) > BODY_MAX:
            raise BodyTooLarge(f"a request body may have at most {BODY_MAX} bytes")
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > BODY_MAX:
            raise BodyTooLarge(f"a request body may have at most {BODY_MAX} bytes")
        return message

    return limited
