"""What has to be borne from a database server, and for how long: that it is away, and that it is silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa

from gpuherd.adapters.sql.server.engine import lift_bounds
from gpuherd.adapters.sql.server.patience import Patience, Reconnect, Wait
from gpuherd.adapters.sql.server.silence import SilenceWatch
from gpuherd.clock import Clock

T = TypeVar("T")


class Server:
    """One PostgreSQL, as the threads of this process have to do with it."""

    def __init__(self, clock: Clock, wait: Wait, away_limit_s: float, silence_limit_s: float):
        self._clock = clock
        self._wait = wait
        self._reconnect = Reconnect(clock, away_limit_s, wait)
        self._silence = SilenceWatch(clock, silence_limit_s)

    def watch(self, *engines: sa.Engine) -> None:
        """Have a connection cut when the server does not answer any more."""
        for engine in engines:
            self._silence.attach(engine)

    def reach(self, attempt: Callable[[], T]) -> T:
        """Connect, or begin, as soon as the server is there."""
        return self._reconnect.reach(attempt)

    def unbounded(self, engine: sa.Engine) -> sa.Connection:
        """Return a connection on which this one transaction may take as long as it takes."""
        connection = self.reach(engine.connect)
        self._silence.spare(connection)
        lift_bounds(connection)
        return connection

    def patience(self, limit_s: float) -> Patience:
        """Return pauses for so long."""
        return Patience(self._clock, limit_s, self._wait)

    def end(self) -> None:
        """Let go of what watches."""
        self._silence.end()
