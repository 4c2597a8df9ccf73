"""Backoff and reconnect while a PostgreSQL server is away, and the guard that applies them everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from gpuherd.adapters.sql.postgres.engine import disable_timeouts
from gpuherd.adapters.sql.postgres.socket_watchdog import SocketWatchdog
from gpuherd.clock import Clock

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
