"""A fair queue in front of a token bucket.

Urgent calls go first, the observer keeps a share, and a call that would come too late fails at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from enum import IntEnum

from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.retry import RETRY_AFTER_CAP_S
from gpuherd.resilience.token_bucket import TokenBucket

# Differences smaller than this come from floats, not from the queue.
_EPSILON_S = 1e-6


# While more urgent calls wait, the observer gets one of this many turns.
WATCH_EVERY = 4


class Lane(IntEnum):
    """Priority of a call. A lane waits while an earlier lane has callers, except for the share of `WATCH`."""

    # Changes: create, start, stop, delete.
    URGENT = 0
    # Reads that a rental needs.
    RENTAL = 1
    # The observer's lists.
    WATCH = 2
    # Requests of people.
    BROWSE = 3


class RateLimitExceeded(Exception):
    """The turn would come too late. `retry_after_s` says when it would come."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"rate limited: the next turn is {retry_after_s:.1f} s away")
        self.retry_after_s = retry_after_s


@dataclass(eq=False, slots=True)
class _Waiter:
    turn: asyncio.Future[None]
    deadline: float


class RateLimiter:
    """Allows `per_minute` calls in the long run and `burst` at once; `per_minute=0` means unlimited.

    A waiting call can still fail, if urgent calls or a pause move its turn past its deadline. With
    `divide_by`, rate and burst are divided by the number of processes that share the limit.
    """

    def __init__(self, clock: Clock, per_minute: float = 300, burst: int = 60) -> None:
        self._clock = clock
        self._per_minute = per_minute
        self._burst = burst
        self._sharers: Callable[[], int] = lambda: 1
        self._divisor = 1
        self._own_bucket = TokenBucket(per_minute / 60, burst, clock.monotonic())
        # Dicts as ordered sets: first in, first out, and a caller that gives up leaves at once.
        self._lanes: tuple[dict[_Waiter, None], ...] = tuple({} for _ in Lane)
        # How many turns in a row went to others while a caller waited in `WATCH`.
        self._passed = 0
        self._server: asyncio.Task[None] | None = None

    def divide_by(self, sharers: Callable[[], int]) -> None:
        """Share the limit from now on; `sharers` counts the processes that make calls."""
        self._sharers = sharers

    @property
    def _bucket(self) -> TokenBucket:
        divisor = max(1, self._sharers())
        if divisor != self._divisor:
            self._divisor = divisor
            burst = max(1, self._burst // divisor)
            self._own_bucket.resize(self._per_minute / 60 / divisor, burst, self._clock.monotonic())
        return self._own_bucket

    async def acquire(self, lane: Lane, max_wait_s: float) -> None:
        """Wait for a token. Raise `RateLimitExceeded` as soon as it is certain to come after `max_wait_s`."""
        now = self._clock.monotonic()
        if not self._count(self._lanes[: lane + 1]) and self._bucket.take(now):
            self._reject_overdue(now)
            return
        waiter = _Waiter(asyncio.get_running_loop().create_future(), now + max_wait_s)
        self._lanes[lane][waiter] = None
        self._reject_overdue(now)
        if not waiter.turn.done():
            self._start_serving()
        await self._wait_for_turn(waiter, lane)

    def throttled(self, retry_after_s: float | None) -> None:
        """React to a "too many": pause as requested (300 s at most), then continue at half the rate."""
        pause_s = min(max(0.0, retry_after_s or 0.0), RETRY_AFTER_CAP_S)
        now = self._clock.monotonic()
        self._bucket.throttle(now, pause_s)
        self._reject_overdue(now)

    @property
    def rate_per_minute(self) -> float:
        """Return this process's present rate; 0 if there is no limit."""
        share = self._bucket.share(self._clock.monotonic())
        return self._per_minute / self._divisor * share

    @property
    def waiting(self) -> int:
        return self._count(self._lanes)

    @staticmethod
    def _count(lanes: tuple[dict[_Waiter, None], ...]) -> int:
        return sum(map(len, lanes))

    async def _wait_for_turn(self, waiter: _Waiter, lane: Lane) -> None:
        try:
            await waiter.turn
        except asyncio.CancelledError:
            self._lanes[lane].pop(waiter, None)
            # Cancelled between its turn and its run: the turn goes to the next caller.
            if not waiter.turn.cancelled() and waiter.turn.exception() is None:
                self._bucket.give_back()
                self._serve_ready()
            self._stop_when_idle()
            raise

    def _reject_overdue(self, now: float) -> None:
        """Reject the callers whose turn would come after their deadline."""
        place, passed = 1, self._passed
        queues = tuple(map(deque, self._lanes))
        while (lane := _next_lane(queues, passed)) is not None:
            waiter = queues[lane].popleft()
            wait_s = self._bucket.wait_s(now, place)
            if now + wait_s <= waiter.deadline + _EPSILON_S:
                place, passed = place + 1, _passed_after(lane, queues, passed)
                continue
            del self._lanes[lane][waiter]
            if not waiter.turn.done():
                waiter.turn.set_exception(RateLimitExceeded(wait_s))
        self._stop_when_idle()

    def _serve_ready(self) -> None:
        now = self._clock.monotonic()
        while (lane := _next_lane(self._lanes, self._passed)) is not None:
            waiter = next(iter(self._lanes[lane]))
            # A cancelled caller that has not run since must not use up a token.
            if not waiter.turn.done():
                if not self._bucket.take(now):
                    return
                waiter.turn.set_result(None)
                self._passed = _passed_after(lane, self._lanes, self._passed)
            del self._lanes[lane][waiter]

    def _start_serving(self) -> None:
        if self._server is None or self._server.done():
            self._server = asyncio.get_running_loop().create_task(self._serve())

    def _stop_when_idle(self) -> None:
        if self._server is not None and not self.waiting:
            self._server.cancel()
            self._server = None

    async def _serve(self) -> None:
        while self.waiting:
            await self._clock.sleep(self._bucket.wait_s(self._clock.monotonic()))
            self._serve_ready()


def _next_lane(lanes: Sequence[Sized], passed: int) -> Lane | None:
    """Return the lane of the next turn: the first with a caller, or `WATCH` for its share."""
    if lanes[Lane.WATCH] and passed + 1 >= WATCH_EVERY:
        return Lane.WATCH
    return next((lane for lane in Lane if lanes[lane]), None)


def _passed_after(lane: Lane, lanes: Sequence[Sized], passed: int) -> int:
    """Return how often `WATCH` was passed over in a row, after a turn of this lane."""
    return passed + 1 if lane < Lane.WATCH and lanes[Lane.WATCH] else 0
