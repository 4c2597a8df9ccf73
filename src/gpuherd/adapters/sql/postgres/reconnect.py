"""Waiting in a thread for a database that is away: a moment is waited out, an outage is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from gpuherd.clock import Clock

T = TypeVar("T")

FIRST_PAUSE_S, PAUSE_MAX_S = 0.01, 0.25

# Lets so many seconds pass, and tells whether there is no point any more in waiting.
Wait = Callable[[float], bool]


class Patience:
    """Pauses that grow, until a limit is reached."""

    def __init__(self, clock: Clock, limit_s: float, wait: Wait):
        self._clock = clock
        self._wait = wait
        self._until_s = clock.monotonic() + limit_s
        self._pause_s = FIRST_PAUSE_S

    def lasts(self) -> bool:
        """Pause and say yes, or say no at once."""
        left_s = self._until_s - self._clock.monotonic()
        if left_s <= 0:
            return False
        ended = self._wait(min(self._pause_s, left_s))
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        return not ended


class Reconnect:
    """Tries again while the server restarts.

    Whoever has waited for the whole limit in vain has waited for all: until the server is there again, the
    next ones are refused at once.
    """

    def __init__(self, clock: Clock, limit_s: float, wait: Wait):
        self._clock = clock
        self._limit_s = limit_s
        self._wait = wait
        self._away = False

    def reach(self, attempt: Callable[[], T]) -> T:
        """Return what `attempt` returns; it must have done nothing when it fails."""
        patience = Patience(self._clock, 0 if self._away else self._limit_s, self._wait)
        was_dead = False
        while True:
            try:
                reached = attempt()
            except DBAPIError as error:
                # A connection that had died unnoticed says nothing about the server.
                first_dead, was_dead = error.connection_invalidated and not was_dead, True
                if not first_dead and not patience.lasts():
                    self._away = True
                    raise
            else:
                self._away = False
                return reached
