"""The door: the HTTP server around a service that works already."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator

import uvicorn

from gpuherd.bootstrap.service import Service
from gpuherd.entrypoints.http.app import build_app
from gpuherd.entrypoints.http.request_log import NoteRequest, log_request


class HttpServer(uvicorn.Server):
    """uvicorn with limits on slow and idle clients. It leaves the end of the process to us."""

    def __init__(self, service: Service, note_request: NoteRequest = log_request):
        config = uvicorn.Config(
            build_app(service.plane, note_request),
            log_config=None,
            access_log=False,
            server_header=False,
            # Whoever writes such a header says what he likes.
            proxy_headers=False,
            lifespan="off",
            timeout_keep_alive=60,
            timeout_graceful_shutdown=5,
            limit_concurrency=2000,
        )
        super().__init__(config)

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


def open_door(service: Service, note_request: NoteRequest | None) -> HttpServer:
    """Return the server, with the given way to note requests or the usual one."""
    return HttpServer(service, note_request or log_request)
