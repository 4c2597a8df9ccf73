"""uvicorn with connection limits and our own signal handling, around a service that works already."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import uvicorn

from gpuherd.bootstrap.application import build_application
from gpuherd.entrypoints.http.middleware.request_log import RequestLogger, log_request
from gpuherd.entrypoints.plane import Plane
from gpuherd.server.protocol import SPARE_CONNECTIONS, ConnectionLimits, ServerConfig

# For the database, the cloud, webhooks and probes, whatever clients do.
RESERVED_FILES = 500


class HasPlane(Protocol):
    """Anything with a plane to serve."""

    @property
    def plane(self) -> Plane: ...


class HttpServer(uvicorn.Server):
    """uvicorn with limits on slow and idle clients. It leaves the end of the process to us."""

    def __init__(
        self,
        service: HasPlane,
        request_logger: RequestLogger = log_request,
        limits: ConnectionLimits | None = None,
        *,
        worker: bool = False,
    ):
        limits = limits or fit_to_file_limit(ConnectionLimits())
        plane = service.plane
        config = ServerConfig(
            build_application(plane, request_logger, body_timeout_s=limits.body_s, worker=worker),
            limits,
            plane.clock,
            plane.ids,
            log_config=None,
            access_log=False,
            server_header=False,
            # Whoever writes such a header says what he likes.
            proxy_headers=False,
            lifespan="off",
            timeout_graceful_shutdown=5,
        )
        super().__init__(config)
        self._feed, self._logs = plane.events.feed, plane.read_log

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Nobody else could tell an endless reply that it is time.
        self._feed.close()
        self._logs.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn would raise the signal again after its own end, before the service could end its work.
        yield

    def handle_signals(self) -> None:
        """End politely on the first signal, and at once on the second."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        if self.should_exit:
            # Nothing is lost: whatever is under way is found again at the next start, as after a crash.
            os._exit(1)
        self.should_exit = True


def fit_to_file_limit(limits: ConnectionLimits) -> ConnectionLimits:
    """Return the limits with as many connections as this process may have files open for.

    Without that, clients could take the last one, and the cloud could not be called any more.
    """
    wanted = limits.connections + SPARE_CONNECTIONS + RESERVED_FILES
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit == resource.RLIM_INFINITY or soft_limit >= wanted:
        return limits
    with contextlib.suppress(ValueError, OSError):
        raised = wanted if hard_limit == resource.RLIM_INFINITY else min(wanted, hard_limit)
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard_limit))
        soft_limit = raised
    connections_max = max(soft_limit - SPARE_CONNECTIONS - RESERVED_FILES, soft_limit // 4)
    return replace(limits, connections=min(limits.connections, connections_max))


def build_server(service: HasPlane, request_logger: RequestLogger | None, *, worker: bool) -> HttpServer:
    """Return the server, with the given way to note requests or the usual one."""
    return HttpServer(service, request_logger or log_request, worker=worker)
