"""Duty: what only one replica at a time may do, for a term that it must renew in time.

That somebody holds it is never certain: a process may sleep through the end of its term. Therefore each
write that belongs to a duty carries its fence, and the database refuses one that is out of date.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Protocol

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.errors import StoreUnavailable
from gpuherd.ports.duties import Duties

log = structlog.get_logger()

# The observer, the collector, the sweep and all clearing away.
WATCH = "watch"
TERM = timedelta(seconds=10)
RENEW_S = 2.5


class Duty(Protocol):
    """What whoever has such work needs to know."""

    @property
    def fence(self) -> int:
        """The number of the present term; what was learnt under another one may be out of date."""
        ...

    def is_held(self) -> bool:
        """Tell whether we hold it, as far as we know."""
        ...

    def borrowed(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Hold it for as long as the context lasts, whoever held it before."""
        ...


class SoleDuty:
    """Of one who is alone with the database: always held."""

    fence = 0

    def is_held(self) -> bool:
        return True

    @contextlib.asynccontextmanager
    async def borrowed(self) -> AsyncIterator[None]:
        yield


class SharedDuty:
    """Of one replica among others."""

    def __init__(self, duties: Duties, name: str, holder: str, clock: Clock):
        self._duties = duties
        self._name = name
        self._holder = holder
        self._clock = clock
        self._fence = 0
        self._until_s = -math.inf

    @property
    def fence(self) -> int:
        return self._fence

    def is_held(self) -> bool:
        return self._clock.monotonic() < self._until_s

    async def renew(self) -> bool:
        """Take the duty if it is free, keep it if it is ours; tell whether we hold it now."""
        # Our term ends no later than the one in the database, which begins after this.
        began_s, had = self._clock.monotonic(), self.is_held()
        fence = await self._duties.hold(self._name, self._holder, TERM)
        if fence is None:
            self._until_s = -math.inf
            if had:
                log.warning("duty.lost", duty=self._name, fence=self._fence)
            return False
        self._begin(fence, began_s)
        return True

    async def lay_down(self) -> None:
        """Free the duty, so that nobody has to wait for the end of the term."""
        self._until_s = -math.inf
        await self._duties.lay_down(self._name, self._holder)

    @contextlib.asynccontextmanager
    async def borrowed(self) -> AsyncIterator[None]:
        if self.is_held():
            yield
            return
        began_s = self._clock.monotonic()
        self._begin(await self._duties.seize(self._name, self._holder, TERM), began_s)
        try:
            yield
        finally:
            # Should that fail, the term ends by itself.
            with contextlib.suppress(StoreUnavailable):
                await self.lay_down()

    def _begin(self, fence: int, began_s: float) -> None:
        if fence != self._fence:
            log.info("duty.taken", duty=self._name, fence=fence)
        self._fence = fence
        self._until_s = began_s + TERM.total_seconds()
