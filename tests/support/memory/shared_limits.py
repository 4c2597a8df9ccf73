"""Shared limits and the shared breaker in memory, with a clock that a test can move and a way to be lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from gpuherd.domain.errors import StoreUnavailable
from gpuherd.resilience.circuit_breaker import SharedBreakerState
from gpuherd.resilience.shared_rate_limit import (
    Limit,
    ReturnedTokens,
    TokenLease,
    TokenLeaseBucket,
)
from tests.support.fake_clock import FakeClock


class _Away:
    is_away = False

    def _reach(self) -> None:
        if self.is_away:
            raise StoreUnavailable("gone")


class MemorySharedLimits(_Away):
    """The port `SharedLimits`."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._rows: dict[str, tuple[float, dict[str, Any]]] = {}
        self.leases = 0
        # What the next draw goes through before it is answered.
        self.on_the_way: Callable[[], Any] | None = None

    async def lease(
        self, name: str, limit: Limit, wanted: int, returned: ReturnedTokens | None = None
    ) -> TokenLease:
        self.leases += 1
        leased = self._change(name, limit, lambda bucket: bucket.lease(wanted, returned))
        if self.on_the_way is not None:
            await self.on_the_way()
        return leased

    async def throttle(self, name: str, limit: Limit, pause_s: float) -> TokenLease:
        return self._change(name, limit, lambda bucket: bucket.throttle(pause_s))

    async def look(self, name: str, limit: Limit) -> TokenLease:
        self._reach()
        return self._bucket(name, limit).lease(0)

    def _change(
        self, name: str, limit: Limit, change: Callable[[TokenLeaseBucket], TokenLease]
    ) -> TokenLease:
        self._reach()
        bucket = self._bucket(name, limit)
        leased = change(bucket)
        self._rows[name] = self._clock.monotonic(), bucket.doc()
        return leased

    def _bucket(self, name: str, limit: Limit) -> TokenLeaseBucket:
        at, doc = self._rows.get(name, (self._clock.monotonic(), None))
        return TokenLeaseBucket(limit, doc, self._clock.monotonic() - at)


class MemoryBreakerStore(_Away):
    """The port `BreakerStore`."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._row = (0, 0.0, SharedBreakerState())
        # The next write is done, and its answer lost; or it is not even done.
        self.loses_answer = False
        self.refuses = False
        # What another replica does between our look and the next write.
        self.before_write: Awaitable[bool] | None = None

    async def read(self) -> tuple[int, SharedBreakerState]:
        self._reach()
        number, at, told = self._row
        age_s = self._clock.monotonic() - at
        if not told.is_open:
            return number, told
        return number, SharedBreakerState(
            True, max(0.0, told.rest_s - age_s), told.growth, told.open_s + age_s
        )

    async def write(self, shared_state: SharedBreakerState, number: int) -> bool:
        self._reach()
        if self.before_write is not None:
            faster, self.before_write = self.before_write, None
            await faster
        if self.refuses:
            raise StoreUnavailable("not now")
        if self._row[0] != number:
            return False
        self._row = (number + 1, self._clock.monotonic(), shared_state)
        if self.loses_answer:
            self.loses_answer = False
            raise StoreUnavailable("no answer")
        return True
