"""The door: the HTTP server around a service that works already."""

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

from gpuherd.bootstrap.http_protocol import SPARE_CONNECTIONS, DoorConfig, DoorLimits
from gpuherd.entrypoints.http.app import build_app
from gpuherd.entrypoints.http.request_log import NoteRequest, log_request
from gpuherd.entrypoints.plane import Plane

# For the database, the cloud, webhooks and probes, whatever clients do.
FILES_OF_OUR_OWN = 500


class Behind(Protocol):
    """What is behind the door."""

    @property
    def plane(self) -> Plane: ...


class HttpServer(uvicorn.Server):
    """uvicorn with limits on slow and idle clients. It leaves the end of the process to us."""

    def __init__(
        self,
        service: Behind,
        note_request: NoteRequest = log_request,
        limits: DoorLimits | None = None,
        *,
        worker: bool = False,
    ):
        limits = limits or fitting(DoorLimits())
        plane = service.plane
        config = DoorConfig(
            build_app(plane, note_request, body_timeout_s=limits.body_s, worker=worker),
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
        self._feed = plane.events.feed

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Nobody else could tell an endless reply that it is time.
        self._feed.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn would raise the signal again after its own end, before the service could end its work.
        yield

    def obey_signals(self) -> None:
        """End politely on the first signal, and at once on the second."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._told)

    def _told(self) -> None:
        if self.should_exit:
            # Nothing is lost: whatever is under way is found again at the next start, as after a crash.
            os._exit(1)
        self.should_exit = True


def fitting(limits: DoorLimits) -> DoorLimits:
    """Return the limits with as many connections as this process may have files open for.

    Without that, clients could take the last one, and the cloud could not be called any more.
    """
    wanted = limits.connections + SPARE_CONNECTIONS + FILES_OF_OUR_OWN
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY or files >= wanted:
        return limits
    with contextlib.suppress(ValueError, OSError):
        raised = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, most))
        files = raised
    room = max(files - SPARE_CONNECTIONS - FILES_OF_OUR_OWN, files // 4)
    return replace(limits, connections=min(limits.connections, room))


def open_door(service: Behind, note_request: NoteRequest | None, *, worker: bool) -> HttpServer:
    """Return the server, with the given way to note requests or the usual one."""
    return HttpServer(service, note_request or log_request, worker=worker)
