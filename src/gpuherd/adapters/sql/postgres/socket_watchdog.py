"""Cuts the socket to a server that has stopped answering, so that nothing waits for it for ever.

The server's own limits do not help against a server that stands still, and the network sees nothing wrong
with a connection whose other end is merely frozen."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import Any

import sqlalchemy as sa
import structlog

from gpuherd.clock import Clock

log = structlog.get_logger()

# How often the watchdog looks, as a part of the limit.
CHECKS_PER_TIMEOUT = 10


class SocketWatchdog:
    """A connection may be used for `limit_s` at a time; then it is lost."""

    def __init__(self, clock: Clock, limit_s: float):
        self._clock = clock
        self._limit_s = limit_s
        self._lock = threading.Lock()
        # Until when, by whose it is: the connection itself may be gone when it is given back.
        self._in_use: dict[int, tuple[float, Any]] = {}
        self._ended = threading.Event()
        self._watcher: threading.Thread | None = None

    def attach(self, engine: sa.Engine) -> None:
        """Watch every connection of this engine from when it is taken until it is given back."""
        sa.event.listen(engine, "checkout", lambda driver, record, _: self._taken(driver, record.info))
        sa.event.listen(engine, "checkin", lambda _, record: self._given_back(record.info))

    def exempt(self, connection: sa.Connection) -> None:
        """Let this one take as long as it takes, this time."""
        self._given_back(connection.info)

    def end(self) -> None:
        """Watch no longer."""
        self._ended.set()

    def _taken(self, driver: Any, info: dict[Any, Any]) -> None:
        with self._lock:
            self._in_use[id(info)] = (self._clock.monotonic() + self._limit_s, driver)
            if self._watcher is None:
                self._watcher = threading.Thread(
                    target=self._watch, name="gpuherd-socket-watchdog", daemon=True
                )
                self._watcher.start()

    def _given_back(self, info: dict[Any, Any]) -> None:
        with self._lock:
            self._in_use.pop(id(info), None)

    def _watch(self) -> None:
        while not self._ended.wait(self._limit_s / CHECKS_PER_TIMEOUT):
            now_s = self._clock.monotonic()
            # All of it under the lock: a moment later the connection may belong to another caller.
            with self._lock:
                for key, (until_s, driver) in tuple(self._in_use.items()):
                    if now_s >= until_s:
                        del self._in_use[key]
                        _cut(driver)


def _cut(driver: Any) -> None:
    log.error(
        "database.unresponsive", advice="the server did not answer in time; the connection was given up"
    )
    # The caller that waits for it gets an error; closing it stays its own task.
    with contextlib.suppress(Exception), socket.socket(fileno=os.dup(driver.fileno())) as sock:
        sock.shutdown(socket.SHUT_RDWR)
