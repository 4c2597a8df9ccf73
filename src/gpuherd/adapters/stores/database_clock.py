"""One time for all replicas: that of the database, which they all can ask.

Evidence compares times that different machines have written: a list that was begun after an attempt was
sent must not seem to be older because a machine's clock is slow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa
import structlog

from gpuherd.adapters.sql.database import Database
from gpuherd.domain.errors import StoreUnavailable
from gpuherd.ports.clock_port import Clock

log = structlog.get_logger()
SAMPLES = 3


# No sample is better than this, however short its way was: threads and servers have pauses of their own.
UNCERTAINTY_MIN_S = 0.05


# Between machines that keep their time there are milliseconds; this one should be looked at by a person.
OFFSET_WARNING = timedelta(seconds=2)


_NOW = sa.text("SELECT clock_timestamp()")


@dataclass(frozen=True)
class Sample:
    """How far the database's time was ahead of ours, and how long its answer took to come."""

    offset: timedelta
    round_trip_s: float

    @property
    def uncertainty(self) -> timedelta:
        # It was read somewhere on the way; the middle is wrong by half of it at most.
        return timedelta(seconds=max(UNCERTAINTY_MIN_S, self.round_trip_s / 2))


class DatabaseClock:
    """Implements `Clock`: the system's time, moved by what the database was last found to be ahead of it."""

    def __init__(self, system: Clock, ask: Callable[[], Awaitable[datetime]] | None = None):
        self._system = system
        self._ask = ask
        self._offset = timedelta()
        self._is_skewed = False

    @property
    def offset(self) -> timedelta:
        """How far the agreed time is ahead of the system's."""
        return self._offset

    def follow(self, ask: Callable[[], Awaitable[datetime]]) -> None:
        """Name the one whose time counts, where it was not known at first."""
        self._ask = ask

    def now(self) -> datetime:
        return self._system.now() + self._offset

    def monotonic(self) -> float:
        return self._system.monotonic()

    def boottime(self) -> float:
        return self._system.boottime()

    async def sleep(self, seconds: float) -> None:
        await self._system.sleep(seconds)

    async def adjust(self) -> None:
        """Compare with the database. Where it cannot be asked, the offset stays as it is."""
        ask = self._ask
        if ask is None:
            return
        try:
            best = min([await self._sample(ask) for _ in range(SAMPLES)], key=lambda it: it.round_trip_s)
        except StoreUnavailable:
            return
        # Otherwise the time would tremble with each look.
        if abs(best.offset - self._offset) >= best.uncertainty:
            self._offset = best.offset
        self._warn()

    async def _sample(self, ask: Callable[[], Awaitable[datetime]]) -> Sample:
        ours, began_s = self._system.now(), self._system.monotonic()
        theirs = await ask()
        round_trip_s = self._system.monotonic() - began_s
        return Sample(theirs - (ours + timedelta(seconds=round_trip_s / 2)), round_trip_s)

    def _warn(self) -> None:
        was_skewed, self._is_skewed = self._is_skewed, abs(self._offset) > OFFSET_WARNING
        if self._is_skewed and not was_skewed:
            log.warning(
                "clock.differs_from_database",
                offset_s=round(self._offset.total_seconds(), 3),
                advice="gpuherd goes by the database's time; set this machine's clock right",
            )


async def database_time(database: Database) -> datetime:
    """Return what time it is for the database (PostgreSQL)."""
    return await database.read(lambda c: c.execute(_NOW).scalar_one())
