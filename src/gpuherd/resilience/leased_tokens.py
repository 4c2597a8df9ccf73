"""The tokens that a process has leased from a limit it shares with others: spent soon, or void."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

from gpuherd.clock import Clock
from gpuherd.resilience.token_lease_bucket import Limit, ReturnedTokens, TokenLease

LeaseTokens = Callable[[int, ReturnedTokens | None], Awaitable[TokenLease]]

# A wait may come out a hair shorter than it was computed.
_EPSILON_S = 1e-6


class LeasedTokens:
    """`lease` lends so many, given those of the last loan that will not be spent any more."""

    def __init__(self, clock: Clock, limit: Limit, lease: LeaseTokens) -> None:
        self._clock = clock
        self._limit = limit
        self._lease = lease
        self._held = 0
        self._expires_at = -math.inf
        self._unreturned: ReturnedTokens | None = None
        self._next_at = -math.inf
        self._share = 1.0
        self._waiters = 0
        self._flight: asyncio.Task[None] | None = None

    def take(self, now: float) -> bool:
        if self._usable(now) < 1:
            return False
        self._held -= 1
        return True

    def give_back(self) -> None:
        self._held += 1

    def wait_s(self, now: float, tokens: int = 1) -> float:
        """How long until that many can be had, as far as is known; 0 also where one has to ask first."""
        missing = tokens - self._usable(now)
        until_next_s = self._next_at - now
        if missing <= 0 or until_next_s <= _EPSILON_S:
            return 0.0
        return until_next_s + (missing - 1) * 60 / (self._limit.per_minute * self._share)

    async def try_acquire_s(self) -> float:
        """Spend a token and return 0, or return after how many seconds there may be one."""
        while True:
            now = self._clock.monotonic()
            if self.take(now):
                return 0.0
            if (wait_s := self.wait_s(now)) > 0:
                return wait_s
            await self._fetch_single_flight()

    async def fetch(self, wanted: int) -> None:
        """Borrow so many, unless there are some left."""
        began = self._clock.monotonic()
        if self._usable(began):
            return
        # Said once: should the reply be lost, it may have been heard all the same.
        settled, self._unreturned, self._held = self._unreturned, None, 0
        leased = await self._lease(wanted, settled)
        self._held += leased.granted
        # They were lent after we asked, so in the books they are good for longer than that.
        self._expires_at = began + self._limit.lease_s
        self._unreturned = ReturnedTokens(leased.period, leased.granted)
        self._learn(leased)

    def _learn(self, leased: TokenLease) -> None:
        self._share = leased.share
        self._next_at = self._clock.monotonic() + leased.wait_s if leased.wait_s > 0 else -math.inf

    def _usable(self, now: float) -> int:
        return self._held if now < self._expires_at else 0

    async def _fetch_single_flight(self) -> None:
        """Ask once for all who want one now."""
        self._waiters += 1
        try:
            if self._flight is None:
                self._flight = asyncio.create_task(self._run_flight())
            # Who gives up must not take the others' tokens along.
            await asyncio.shield(self._flight)
        finally:
            self._waiters -= 1

    async def _run_flight(self) -> None:
        try:
            await self.fetch(self._waiters)
        finally:
            self._flight = None
