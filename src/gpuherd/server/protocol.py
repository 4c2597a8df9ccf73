"""HTTP/1.1 with limits for untrusted clients: slow, endless or malformed requests are cut off.

uvicorn waits for a request's head as long as the client likes, and takes heads of any size. The limits here
cost nothing where a head comes in one piece, as nearly all do."""

from __future__ import annotations

import asyncio
import contextvars
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from gpuherd.clock import Clock, Ids
from gpuherd.contract.problem import Refusal
from gpuherd.entrypoints.problems import RETRY_AFTER_S, problem, problem_response
from gpuherd.entrypoints.request_context import RequestContext, current_request
from gpuherd.server.response_cycle import ResponseCycle, header_lines

# Beyond the limit some are still let in, only to be told that it is reached.
SPARE_CONNECTIONS = 100
# A colon, a blank and the end of the line.
HEADER_OVERHEAD_BYTES = 4
HTTP_VERSIONS = ("1.1", "1.0")
# What may still come of a body after its request was answered without it.
UNREAD_BODY_MAX_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True)
class ConnectionLimits:
    """How much patience there is with one client, and with all."""

    head_s: float = 10.0
    body_s: float = 30.0
    idle_s: float = 60.0
    connections: int = 2000
    head_bytes: int = 16 * 1024


MALFORMED = problem(400, "MALFORMED_REQUEST", "this is not HTTP/1.1")
HEAD_TOO_LARGE = problem(431, "HEADERS_TOO_LARGE", "the address and headers are larger than anybody needs")
OVERLOADED = problem(503, "OVERLOADED", "too many connections are open", retry_after_s=RETRY_AFTER_S)


class ServerConfig(uvicorn.Config):
    """What uvicorn needs to know, and what a refusal before any application needs."""

    def __init__(self, app: ASGIApp, limits: ConnectionLimits, clock: Clock, ids: Ids, **options: Any):
        super().__init__(
            app,
            http=HardenedProtocol,
            # There is nothing to talk about over it.
            ws="none",
            # Any number of seconds will do, whatever they say.
            timeout_keep_alive=limits.idle_s,  # type: ignore[arg-type]
            **options,
        )
        self.limits = limits
        self._clock = clock
        self._ids = ids

    def error_response(self, document: Refusal) -> bytes:
        """Return a whole reply that ends the connection."""
        return contextvars.copy_context().run(self._error_response, document)

    def _error_response(self, document: Refusal) -> bytes:
        request_id = self._ids.new("req_")
        current_request.set(RequestContext(request_id, request_id, self._clock.now()))
        reply = problem_response(document)
        headers = [*reply.raw_headers, (b"x-request-id", request_id.encode()), (b"connection", b"close")]
        return STATUS_LINE[reply.status_code] + header_lines(headers) + b"\r\n" + bytes(reply.body)


class _RequestRefused(Exception):
    """Ends the parser's work on what a client sent."""


class HardenedProtocol(HttpToolsProtocol):
    """One connection, with a limit on everything that its client could draw out."""

    def __init__(
        self,
        config: ServerConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._server_config = config
        self._limits = config.limits
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._refusal_document = MALFORMED
        # Bytes of a head that is not complete, or of a body that nobody waits for.
        self._pending_bytes = 0
        self._pending_scope: object = None
        self._chunk_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections + SPARE_CONNECTIONS:
            transport.abort()
        else:
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_head_timer()
        # uvicorn leaves it running after an error.
        self._unset_keepalive_if_required()
        if self._write_timer is not None:
            self._write_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._chunk_bytes = len(data)
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._count_pending_bytes(len(data))

    def on_headers_complete(self) -> None:
        self._cancel_head_timer()
        if self.parser.get_http_version() not in HTTP_VERSIONS:
            self._refuse(MALFORMED)
        if (
            self._pending_bytes + self._chunk_bytes > self._limits.head_bytes
            and self._head_bytes() > self._limits.head_bytes
        ):
            self._refuse(HEAD_TOO_LARGE)
        if max(len(self.connections), len(self.tasks)) > self._limits.connections:
            self._refuse(OVERLOADED)
        self._pending_bytes = 0
        super().on_headers_complete()
        # uvicorn has just made it, and begins with it later: in the next round of the loop, or when the
        # request before it has been answered.
        self.cycle.__class__ = ResponseCycle

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            # It closes when the client has read everything, which may be never.
            self._start_write_timer()

    def pause_writing(self) -> None:
        self._start_write_timer()
        super().pause_writing()

    def resume_writing(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Say why, unless a reply is half said already."""
        self._cancel_head_timer()
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()
            return
        self.transport.write(self._server_config.error_response(self._refusal_document))
        self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        # To close politely would wait for a client that does not read.
        self.transport.abort()

    def _count_pending_bytes(self, size: int) -> None:
        if self.transport.is_closing():
            return
        if self._pending_scope is not self.scope:
            self._pending_bytes, self._pending_scope = 0, self.scope
        self._pending_bytes += size
        in_head = self.cycle is None or self.scope is not self.cycle.scope
        if in_head and self._pending_bytes > self._limits.head_bytes:
            self._refusal_document = HEAD_TOO_LARGE
            self.send_400_response("")
        elif self._pending_bytes > UNREAD_BODY_MAX_BYTES:
            self.transport.abort()
        else:
            self._start_head_timer()

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._limits.head_s, self.transport.abort)

    def _start_write_timer(self) -> None:
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self._limits.idle_s, self.transport.abort)

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_bytes(self) -> int:
        return len(self.url) + sum(
            len(name) + len(value) + HEADER_OVERHEAD_BYTES for name, value in self.headers
        )

    def _refuse(self, document: Refusal) -> None:
        self._refusal_document = document
        raise _RequestRefused
