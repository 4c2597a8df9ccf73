"""A rate limiter's tokens where several processes share the limit and slow down together."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

from gpuherd.clock import Clock
from gpuherd.resilience.leased_tokens import LeasedTokens, LeaseTokens
from gpuherd.resilience.token_lease_bucket import Limit, TokenLease

# An unreachable store gives no tokens; so long until we ask again.
UNREACHABLE_RETRY_S = 1.0
# A draw that takes longer is as good as none.
LEASE_TIMEOUT_S = 2.0


class SharedLimiter(LeasedTokens):
    """`throttle` tells the others that we were refused, `look` asks how things stand and borrows nothing.

    `on_lost` is called once for each outage, with its cause.
    """

    def __init__(
        self,
        clock: Clock,
        limit: Limit,
        lease: LeaseTokens,
        throttle: Callable[[float], Awaitable[TokenLease]],
        look: Callable[[], Awaitable[TokenLease]],
        on_lost: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        super().__init__(clock, limit, lease)
        self._publish_throttle = throttle
        self._look = look
        self._on_lost = on_lost
        self._is_lost = False
        self._paused_until = -math.inf
        # A refusal that the others do not know of yet.
        self._unpublished = False
        self._publisher: asyncio.Task[None] | None = None

    def share(self, now: float) -> float:
        """The part of the nominal rate that was allowed when we last heard of it."""
        return self._share

    def throttle(self, now: float, pause_s: float) -> None:
        """Pause here at once, and tell the others."""
        self._held = 0
        self._paused_until = max(self._paused_until, now + pause_s)
        self._unpublished = True
        self._publisher = asyncio.create_task(self._guarded(self._publish()))

    def wait_s(self, now: float, tokens: int = 1) -> float:
        return max(super().wait_s(now, tokens), self._paused_until - now, 0.0)

    async def fetch_or_pause(self, wanted: int) -> None:
        """Borrow turns for those who wait; there are none while the way to the others is lost."""
        await self._guarded(self._publish_and_fetch(wanted))

    async def look(self) -> None:
        """Learn how fast all may go now, without wanting to, after telling what they do not know yet."""
        if self._publisher is not None:
            await asyncio.wait((self._publisher,))
        await self._publish()
        leased = await self._look()
        # Whether there are turns is for a draw to say: its answer would be out of date by then.
        self._share = leased.share

    def _usable(self, now: float) -> int:
        return 0 if now < self._paused_until else super()._usable(now)

    async def _publish_and_fetch(self, wanted: int) -> None:
        await self._publish()
        if self._clock.monotonic() >= self._paused_until:
            await self.fetch(wanted)

    async def _publish(self) -> None:
        if not self._unpublished:
            return
        self._unpublished = False
        try:
            self._learn(await self._publish_throttle(max(0.0, self._paused_until - self._clock.monotonic())))
        except BaseException:
            self._unpublished = True
            raise

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(LEASE_TIMEOUT_S):
                await work
            self._is_lost = False
        except Exception as error:
            if not self._is_lost:
                self._on_lost(error)
            self._is_lost = True
            # Whatever it was: without leave there is no call.
            self._next_at = self._clock.monotonic() + UNREACHABLE_RETRY_S
