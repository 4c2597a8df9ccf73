"""A rate limit that replicas share."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.token_bucket import BucketState, TokenBucket

LEASE_S, LEASE_MIN_S = 1.0, 0.25


# One who asks gets more than it needs only while there is enough for so many others to do the same.
BATCH_RESERVE = 4


@dataclass(frozen=True, slots=True)
class Limit:
    """So many in the long run and so many at once, of which a process may borrow a batch in advance."""

    per_minute: float
    burst: int
    batch: int = 1

    def __post_init__(self) -> None:
        if self.per_minute <= 0 or self.burst < 1 or self.batch < 1:
            raise ValueError("the rate must be positive, the burst and the batch at least 1")

    @property
    def lease_s(self) -> float:
        """How long borrowed tokens are good: not so long that those of a fast rate fill the bucket's room."""
        return max(LEASE_MIN_S, min(LEASE_S, 15 * self.burst / self.per_minute))


@dataclass(frozen=True, slots=True)
class ReturnedTokens:
    """Tokens that were lent in one period and are gone for certain."""

    period: int
    tokens: int


@dataclass(frozen=True, slots=True)
class TokenLease:
    """What was lent, and if that is less than was wanted, when the next one can be had."""

    granted: int
    wait_s: float
    # The part of the nominal rate that is allowed now.
    share: float
    period: int


@dataclass(slots=True)
class _Outstanding:
    """What may still be spent of this period and of the one before; those of earlier ones are void."""

    period: int = 0
    left_s: float = 0.0
    now: int = 0
    before: int = 0

    @property
    def out(self) -> int:
        return self.now + self.before

    def next_period(self, length_s: float) -> None:
        self.before, self.now = self.now, 0
        self.period += 1
        self.left_s += length_s

    def settle(self, returned: ReturnedTokens) -> None:
        if returned.period == self.period:
            self.now = max(0, self.now - returned.tokens)
        elif returned.period == self.period - 1:
            self.before = max(0, self.before - returned.tokens)


class TokenLeaseBucket:
    """Made from what `doc` returned `elapsed_s` ago, or full; lives for one draw."""

    def __init__(self, limit: Limit, doc: dict[str, Any] | None = None, elapsed_s: float = 0.0) -> None:
        self._limit = limit
        self._now = max(0.0, elapsed_s)
        state, loans = _read(doc, limit)
        self._loans = loans
        self._bucket = TokenBucket.restored(limit.per_minute / 60, limit.burst, state, at=0.0)
        self._bucket.reserve(loans.out, 0.0)
        self._advance()

    def lease(self, wanted: int, returned: ReturnedTokens | None = None) -> TokenLease:
        """Lend what is wanted, as far as there is; in plenty a whole batch."""
        if returned is not None:
            self._loans.settle(returned)
            self._bucket.reserve(self._loans.out, self._now)
        whole, batch = self._bucket.whole(self._now), self._limit.batch
        granted = min(wanted, whole)
        if wanted and whole >= BATCH_RESERVE * batch:
            granted = max(granted, batch)
        self._bucket.take_many(granted)
        self._loans.now += granted
        self._bucket.reserve(self._loans.out, self._now)
        return self._answer(granted, 0.0 if granted >= wanted else self._wait_s())

    def throttle(self, pause_s: float) -> TokenLease:
        """Yield to a refusal, as `TokenBucket` does."""
        self._bucket.throttle(self._now, pause_s)
        return self._answer(0, self._wait_s())

    def doc(self) -> dict[str, Any]:
        """Return how it stands now, in words for the database."""
        loans = asdict(self._loans)
        loans["left_s"] -= self._now
        return {"bucket": asdict(self._bucket.state(self._now)), "loans": loans}

    def _advance(self) -> None:
        """Go on to now, period by period: room that comes free is filled from then on, not from before."""
        loans, length_s = self._loans, self._limit.lease_s
        while loans.left_s <= self._now and loans.out:
            ended_s = loans.left_s
            loans.next_period(length_s)
            self._bucket.reserve(loans.out, ended_s)
        if loans.left_s <= self._now:
            loans.period += 1
            loans.left_s = self._now + length_s

    def _wait_s(self) -> float:
        wait_s = self._bucket.wait_s(self._now)
        if self._limit.burst - self._loans.out < 1:
            # All are out; there is no room before the oldest of them are void.
            return max(wait_s, self._loans.left_s - self._now)
        return wait_s

    def _answer(self, granted: int, wait_s: float) -> TokenLease:
        return TokenLease(granted, wait_s, self._bucket.share(self._now), self._loans.period)


def _read(doc: dict[str, Any] | None, limit: Limit) -> tuple[BucketState, _Outstanding]:
    if doc is None:
        return BucketState(float(limit.burst)), _Outstanding()
    return BucketState(**doc["bucket"]), _Outstanding(**doc["loans"])


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
