"""Turns of a rate limiter that several processes share, with one answer of all of them to a refusal."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

from gpuherd.clock import Clock
from gpuherd.resilience.drawn_tokens import Draw, DrawnTokens
from gpuherd.resilience.lending_bucket import Drawn, Limit

# Whoever cannot be asked for turns gives none; so long until we ask again.
ASK_AGAIN_S = 1.0
# A draw that takes longer is as good as none.
DRAW_LIMIT_S = 2.0


class DrawnTurns(DrawnTokens):
    """`throttle` tells the others that we were refused, `look` asks how things stand and borrows nothing.

    `lost` hears, once for each time, why nobody can be asked.
    """

    def __init__(
        self,
        clock: Clock,
        limit: Limit,
        draw: Draw,
        throttle: Callable[[float], Awaitable[Drawn]],
        look: Callable[[], Awaitable[Drawn]],
        lost: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        super().__init__(clock, limit, draw)
        self._tell = throttle
        self._look = look
        self._lost = lost
        self._is_lost = False
        self._paused_until = -math.inf
        # A refusal that the others do not know of yet.
        self._untold = False
        self._teller: asyncio.Task[None] | None = None

    def share(self, now: float) -> float:
        """The part of the nominal rate that was allowed when we last heard of it."""
        return self._share

    def throttle(self, now: float, pause_s: float) -> None:
        """Pause here at once, and tell the others."""
        self._held = 0
        self._paused_until = max(self._paused_until, now + pause_s)
        self._untold = True
        self._teller = asyncio.create_task(self._quietly(self._tell_others()))

    def wait_s(self, now: float, tokens: int = 1) -> float:
        return max(super().wait_s(now, tokens), self._paused_until - now, 0.0)

    async def fetch_turns(self, wanted: int) -> None:
        """Borrow turns for those who wait; there are none while the way to the others is lost."""
        await self._quietly(self._tell_and_fetch(wanted))

    async def look(self) -> None:
        """Learn how fast all may go now, without wanting to."""
        drawn = await self._look()
        # Whether there are turns is for a draw to say: its answer would be out of date by then.
        self._share = drawn.share

    def _usable(self, now: float) -> int:
        return 0 if now < self._paused_until else super()._usable(now)

    async def _tell_and_fetch(self, wanted: int) -> None:
        await self._tell_others()
        if self._clock.monotonic() >= self._paused_until:
            await self.fetch(wanted)

    async def _tell_others(self) -> None:
        if not self._untold:
            return
        self._untold = False
        try:
            self._learn(await self._tell(max(0.0, self._paused_until - self._clock.monotonic())))
        except BaseException:
            self._untold = True
            raise

    async def _quietly(self, work: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(DRAW_LIMIT_S):
                await work
            self._is_lost = False
        except Exception as error:
            if not self._is_lost:
                self._lost(error)
            self._is_lost = True
            # Whatever it was: without leave there is no call.
            self._next_at = self._clock.monotonic() + ASK_AGAIN_S
