"""Limits for each request: the size of its head, and the size and the time of its body."""

from __future__ import annotations

import asyncio
from typing import Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpuherd.entrypoints.problems import (
    BodyTooLarge,
    HeadersTooLarge,
    MalformedRequest,
    Overloaded,
    RequestTimeout,
)

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
