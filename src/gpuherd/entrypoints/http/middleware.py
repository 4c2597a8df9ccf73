"""Around every request, as plain ASGI: its ids, a size limit, the key, one line in the log, and the meter."""

from __future__ import annotations

import hashlib
import hmac

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpuherd.clock import Clock, Ids
from gpuherd.domain.errors import GpuherdError
from gpuherd.domain.secret import Secret
from gpuherd.entrypoints.http.context import RequestContext, current, sane
from gpuherd.entrypoints.http.problems import BodyTooLarge, Unauthorized, problem_of, problem_response
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
        headers = Headers(scope=scope)
        request_id = sane(headers.get("x-request-id")) or self._ids.new("req_")
        correlation_id = sane(headers.get("x-correlation-id")) or request_id
        context = RequestContext(request_id, correlation_id, self._clock.now())
        token = current.set(context)
        structlog.contextvars.bind_contextvars(request_id=request_id, correlation_id=correlation_id)
        reply = _Reply(send, context)
        started_s = self._clock.monotonic()
        try:
            await self._answer(scope, receive, reply, headers)
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

    async def _answer(self, scope: Scope, receive: Receive, reply: _Reply, headers: Headers) -> None:
        try:
            await self._app(scope, _limited(receive, headers), reply)
        except GpuherdError as error:
            await problem_response(problem_of(error))(scope, receive, reply)
        except Exception:
            # The framework has answered with a 500 by now (`app.py`); here it only gets its line in the log.
            log.exception("http.unexpected", path=scope["path"])


class _Reply:
    """Sends, and adds the request's ids and the headers that every reply has."""

    def __init__(self, send: Send, context: RequestContext):
        self._send = send
        self._context = context
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-ID"] = self._context.request_id
            headers["X-Correlation-ID"] = self._context.correlation_id
            headers["X-Content-Type-Options"] = "nosniff"
            headers.setdefault("Cache-Control", "no-store")
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


def _route(scope: Scope) -> str:
    """Return the template of the route that answered: the framework leaves it in the scope."""
    return getattr(scope.get("route"), "path", NO_ROUTE)


def _digest(key: str | bytes) -> bytes:
    raw = key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
    return hashlib.sha256(raw).digest()


def _limited(receive: Receive, headers: Headers) -> Receive:
    """Return `receive` with a limit, so that no body is read to its end just to be refused."""
    declared = headers.get("content-length", "")
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
