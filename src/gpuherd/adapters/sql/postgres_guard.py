"""PostgreSQL: the limits of a call, retries while the server is away, connections that get no answer."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy as sa
import structlog
from sqlalchemy.exc import DBAPIError

from gpuherd.ports.clock_port import Clock

# Enforced by the server, in milliseconds. A session that does nothing in the middle of a transaction belongs
# to a process that hangs, and its locks hold up all others.
SESSION_TIMEOUTS = {
    "statement_timeout": 15_000,
    "lock_timeout": 8_000,
    # Shorter than others wait for a lock: one replica that is stopped must not make the others refuse.
    "idle_in_transaction_session_timeout": 5_000,
}


def disable_timeouts(connection: sa.Connection) -> None:
    """Let this one transaction take the time that it needs: a migration must not be cut off half way."""
    for name in SESSION_TIMEOUTS:
        connection.exec_driver_sql(f"SET LOCAL {name} = 0")


T = TypeVar("T")
FIRST_PAUSE_S, PAUSE_MAX_S = 0.01, 0.25


# Lets so many seconds pass, and tells whether there is no point any more in waiting.
Wait = Callable[[float], bool]


class Backoff:
    """Pauses that grow, until a limit is reached."""

    def __init__(self, clock: Clock, limit_s: float, wait: Wait):
        self._clock = clock
        self._wait = wait
        self._until_s = clock.monotonic() + limit_s
        self._pause_s = FIRST_PAUSE_S

    def pause_unless_expired(self) -> bool:
        """Pause and say yes, or say no at once."""
        left_s = self._until_s - self._clock.monotonic()
        if left_s <= 0:
            return False
        ended = self._wait(min(self._pause_s, left_s))
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        return not ended


class Reconnector:
    """Tries again while the server restarts.

    One caller that has waited for the whole limit has waited for all: until the server is there again, the
    next ones are refused at once.
    """

    def __init__(self, clock: Clock, limit_s: float, wait: Wait):
        self._clock = clock
        self._limit_s = limit_s
        self._wait = wait
        self._away = False

    def retry_while_away(self, attempt: Callable[[], T]) -> T:
        """Return what `attempt` returns; it must have done nothing when it fails."""
        backoff = Backoff(self._clock, 0 if self._away else self._limit_s, self._wait)
        was_dead = False
        while True:
            try:
                reached = attempt()
            except DBAPIError as error:
                # A connection that had died unnoticed says nothing about the server.
                first_dead, was_dead = error.connection_invalidated and not was_dead, True
                if not first_dead and not backoff.pause_unless_expired():
                    self._away = True
                    raise
            else:
                self._away = False
                return reached


class PostgresGuard:
    """One PostgreSQL, as the threads of this process have to do with it."""

    def __init__(self, clock: Clock, wait: Wait, reconnect_limit_s: float, response_timeout_s: float):
        self._clock = clock
        self._wait = wait
        self._reconnect = Reconnector(clock, reconnect_limit_s, wait)
        self._watchdog = SocketWatchdog(clock, response_timeout_s)

    def watch(self, *engines: sa.Engine) -> None:
        """Have a connection cut when the server does not answer any more."""
        for engine in engines:
            self._watchdog.attach(engine)

    def retry_while_away(self, attempt: Callable[[], T]) -> T:
        """Connect, or begin, as soon as the server is there."""
        return self._reconnect.retry_while_away(attempt)

    def connect_without_timeouts(self, engine: sa.Engine) -> sa.Connection:
        """Return a connection on which this one transaction may take as long as it takes."""
        connection = self.retry_while_away(engine.connect)
        self._watchdog.exempt(connection)
        disable_timeouts(connection)
        return connection

    def backoff(self, limit_s: float) -> Backoff:
        """Return pauses for so long."""
        return Backoff(self._clock, limit_s, self._wait)

    def end(self) -> None:
        """Let go of what watches."""
        self._watchdog.end()


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
