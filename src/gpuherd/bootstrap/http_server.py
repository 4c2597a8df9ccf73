"""uvicorn behind a guard: clients that send slowly, endlessly or never read are cut off."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import re
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from gpuherd.bootstrap.service_lifecycle import build_application
from gpuherd.entrypoints.http.request_middleware import BODY_TIMEOUT_S, HEAD_MAX_BYTES
from gpuherd.entrypoints.problem_response import HeadersTooLarge, problem_of, problem_response
from gpuherd.entrypoints.use_case_access import Plane, RequestContext, current_request
from gpuherd.ports.clock_port import Clock, Ids

# For the database, the cloud, webhooks and probes.
RESERVED_FILES = 500
HEAD_END = re.compile(rb"\n\r?\n")


@dataclass(frozen=True)
class ConnectionLimits:
    """How long and how much the server takes from one client, and how many clients it serves."""

    head_s: float = 10.0
    body_s: float = BODY_TIMEOUT_S
    idle_s: float = 60.0
    head_bytes: int = HEAD_MAX_BYTES
    # What may still come of a body after its request was answered without it.
    unread_bytes: int = 2 * 1024 * 1024
    connections: int = 2000
    # So many more connections get a 503 instead of silence.
    spare_connections: int = 100


class GuardedConnection(asyncio.Protocol):
    """Stands in front of uvicorn's h11 protocol and enforces the limits of one connection.

    Outside of a request it limits what may come, and how long the next head may take. A client that does not
    read is cut off after `idle_s`. Within a request the application limits the body.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        head_refusal: Callable[[], bytes],
        *,
        app_state: dict[str, Any],
        **uvicorn_arguments: Any,
    ):
        self._limits, self._head_refusal = limits, head_refusal
        self._connections = uvicorn_arguments["server_state"].connections
        # uvicorn copies it to `scope["state"]`, where the middleware finds its connection.
        self._uvicorn = H11Protocol(app_state={**app_state, "connection": self}, **uvicorn_arguments)
        self._transport: asyncio.Transport
        # The bytes of the next head until it is complete; None while a request runs or its body is unread.
        self._head: bytearray | None = bytearray()
        self._is_serving, self._unread_bytes = False, 0
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._uvicorn.connection_made(transport)
        if len(self._connections) > self._limits.connections + self._limits.spare_connections:
            transport.abort()
        else:
            self._start_read_timer(self._limits.head_s)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing() or (not self._is_serving and not self._accepts(data)):
            return
        self._uvicorn.data_received(data)

    def eof_received(self) -> None:
        self._uvicorn.eof_received()

    def pause_writing(self) -> None:
        self._start_write_timer()
        self._uvicorn.pause_writing()

    def resume_writing(self) -> None:
        self._write_timer = _cancel(self._write_timer)
        self._uvicorn.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._read_timer, self._write_timer = _cancel(self._read_timer), _cancel(self._write_timer)
        self._uvicorn.connection_lost(error)

    def request_began(self) -> None:
        """The application got a request: its body is the application's matter."""
        self._is_serving, self._head, self._unread_bytes = True, None, 0
        self._read_timer = _cancel(self._read_timer)

    def request_ended(self, *, body_is_read: bool) -> None:
        """The reply is written: the next head may come, after what is left of this request's body."""
        self._is_serving, self._head = False, bytearray() if body_is_read else None
        self._start_read_timer(self._limits.idle_s)
        if self._transport.is_closing():
            # It closes when the client has read everything, which may be never.
            self._start_write_timer()

    def is_one_too_many(self) -> bool:
        """Return True if more connections are open than the server serves."""
        return len(self._connections) > self._limits.connections

    def _accepts(self, data: bytes) -> bool:
        """Count what comes before a request has begun; end the connection if it is too much."""
        self._unread_bytes += len(data)
        if self._unread_bytes == len(data):
            self._read_timer = _cancel(self._read_timer)
            self._start_read_timer(self._limits.head_s)
        if self._head is not None:
            searched = max(0, len(self._head) - 2)
            self._head += data
            if end := HEAD_END.search(self._head, searched):
                size, self._head = end.end(), None
            else:
                size = len(self._head)
            if size > self._limits.head_bytes:
                self._transport.write(self._head_refusal())
                self._transport.close()
                return False
        elif self._unread_bytes > self._limits.unread_bytes:
            self._transport.abort()
            return False
        return True

    def _start_read_timer(self, seconds: float) -> None:
        if self._read_timer is None:
            self._read_timer = asyncio.get_running_loop().call_later(seconds, self._transport.abort)

    def _start_write_timer(self) -> None:
        if self._write_timer is None:
            self._write_timer = asyncio.get_running_loop().call_later(
                self._limits.idle_s, self._transport.abort
            )


def _cancel(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancel a timer, and return what takes its place: nothing."""
    if timer is not None:
        timer.cancel()
    return None


class HasPlane(Protocol):
    """Anything with a plane to serve."""

    @property
    def plane(self) -> Plane: ...


class HttpServer(uvicorn.Server):
    """uvicorn that ends endless replies at its shutdown, and leaves the end of the process to us."""

    def __init__(
        self,
        service: HasPlane,
        limits: ConnectionLimits | None = None,
        *,
        worker: bool = False,
    ):
        limits = limits or fit_to_file_limit(ConnectionLimits())
        plane = service.plane
        app = build_application(plane, body_timeout_s=limits.body_s, worker=worker)
        super().__init__(guarded_config(app, limits, plane.clock, plane.ids))
        self._feed, self._logs = plane.services.event_feed, plane.services.log_streams

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn waits for open replies. The streams of events and logs end only when they are closed.
        self._feed.close()
        self._logs.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn would raise the signal again when it ends, before the service has finished its work.
        yield

    def handle_signals(self) -> None:
        """End politely on the first signal, and at once on the second."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        if self.should_exit:
            # Nothing is lost: the next start finds whatever is under way, as after a crash.
            os._exit(1)
        self.should_exit = True


def guarded_config(app: ASGIApp, limits: ConnectionLimits, clock: Clock, ids: Ids) -> uvicorn.Config:
    """Return uvicorn's settings: h11 behind the guard, and nothing that trusts a client's headers."""

    def head_refusal() -> bytes:
        return contextvars.copy_context().run(_head_refusal, clock, ids)

    return uvicorn.Config(
        app,
        http=partial(GuardedConnection, limits, head_refusal),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        h11_max_incomplete_event_size=limits.head_bytes,
        # Any number of seconds works, whatever its type says.
        timeout_keep_alive=limits.idle_s,  # type: ignore[arg-type]
        timeout_graceful_shutdown=5,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )


def fit_to_file_limit(limits: ConnectionLimits) -> ConnectionLimits:
    """Return the limits with as many connections as this process may have files open for.

    Without this, clients could take the last file, and the process could not call the cloud any more.
    """
    wanted = limits.connections + limits.spare_connections + RESERVED_FILES
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit == resource.RLIM_INFINITY or soft_limit >= wanted:
        return limits
    with contextlib.suppress(ValueError, OSError):
        raised = wanted if hard_limit == resource.RLIM_INFINITY else min(wanted, hard_limit)
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard_limit))
        soft_limit = raised
    connections_max = max(soft_limit - limits.spare_connections - RESERVED_FILES, soft_limit // 4)
    return replace(limits, connections=min(limits.connections, connections_max))


def _head_refusal(clock: Clock, ids: Ids) -> bytes:
    """Return the whole reply to a head that is too large, which no application ever sees."""
    request_id = ids.new("req_")
    current_request.set(RequestContext(request_id, request_id, clock.now()))
    reply = problem_response(problem_of(HeadersTooLarge()))
    headers = [*reply.raw_headers, (b"x-request-id", request_id.encode())]
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return b"HTTP/1.1 431 Request Header Fields Too Large\r\n" + lines + b"\r\n" + bytes(reply.body)
