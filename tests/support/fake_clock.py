"""A clock that stands still until a test moves it, so that hours pass in microseconds and always alike."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections import Counter
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)

# Not zero: code that treats "monotonic is small" as "just started" should fail here as it would at boot.
MONOTONIC_START_NS = 1_000 * 10**9
# Another number: who takes one clock for the other should fail here as on a host that has slept.
BOOTTIME_START_NS = 500_000 * 10**9

# Enough turns for the selector to be polled; after that we go on for as long as anything is ready to run.
TURNS_AT_LEAST = 5
TURNS_AT_MOST = 2_000
TURNS_ON_OTHER_LOOPS = 100

# How many settle on each loop at the moment, by whichever clock.
_settling: Counter[asyncio.AbstractEventLoop] = Counter()


class FakeClock:
    """Implements `gpuherd.ports.clock_port.Clock`.

    By hand: `await clock.advance(seconds)` wakes whoever falls due on the way, one moment at a time, and lets
    them run until they block again before the next moment comes; so a loop that sleeps 1 s goes round ten
    times in `advance(10)`.

    `auto=True`: nobody calls advance. As soon as every task is blocked, time jumps to the next sleeper;
    sleeps that overlap still overlap. Waiting for a real socket or thread counts as blocked, so do not use it
    where both matter.
    """

    def __init__(self, start: datetime = START, *, auto: bool = False) -> None:
        if start.tzinfo is None:
            raise ValueError("start must be aware")
        self._start = start
        self._auto = auto
        self._elapsed_ns = 0
        self._suspended_ns = 0
        self._wall_offset = timedelta()
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._pump: asyncio.Task[None] | None = None

    def now(self) -> datetime:
        return self._start + self._wall_offset + timedelta(microseconds=self._elapsed_ns // 1_000)

    def monotonic(self) -> float:
        return (MONOTONIC_START_NS + self._elapsed_ns) / 1e9

    def boottime(self) -> float:
        return (BOOTTIME_START_NS + self._suspended_ns + self._elapsed_ns) / 1e9

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        alarm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed_ns + _ns(seconds), next(self._order), alarm))
        if self._auto:
            self._start_pump()
        await alarm

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass, waking sleepers in the order in which they fall due."""
        if not 0 <= seconds < math.inf:
            raise ValueError(f"time cannot move by {seconds} s")
        # Tasks that were only just created get to their first sleep before time moves.
        await self.settle()
        target_ns = self._elapsed_ns + round(seconds * 1e9)
        while (due_ns := self._next_due_ns()) is not None and due_ns <= target_ns:
            self._wake_at(due_ns)
            await self.settle()
        self._elapsed_ns = max(self._elapsed_ns, target_ns)

    async def settle(self) -> None:
        """Run everything that can run without time passing."""
        # The default loop shows what is ready; another loop (uvloop) does not, so there we take a fixed many.
        loop = asyncio.get_running_loop()
        ready = getattr(loop, "_ready", None)
        _settling[loop] += 1
        try:
            for turn in range(TURNS_ON_OTHER_LOOPS if ready is None else TURNS_AT_MOST):
                await asyncio.sleep(0)
                # Others who settle are always ready; to take that for work would be to wait for each other.
                if ready is not None and turn >= TURNS_AT_LEAST and len(ready) < _settling[loop]:
                    return
        finally:
            _settling[loop] -= 1
            if not _settling[loop]:
                del _settling[loop]

    def jump_wall(self, seconds: float) -> None:
        """Step the wall clock as NTP or a person would; no time passes and nobody wakes."""
        self._wall_offset += timedelta(seconds=seconds)

    def suspend(self, seconds: float) -> None:
        """Let the host sleep, as a laptop does: only the monotonic clock does not notice; nobody wakes."""
        self._suspended_ns += round(seconds * 1e9)
        self.jump_wall(seconds)

    @property
    def sleepers(self) -> int:
        """How many are asleep now."""
        return sum(not alarm.done() for _, _, alarm in self._sleepers)

    @property
    def next_wake_s(self) -> float | None:
        """Seconds until the next sleeper falls due, or None when nobody sleeps."""
        due_ns = self._next_due_ns()
        return None if due_ns is None else (due_ns - self._elapsed_ns) / 1e9

    def _next_due_ns(self) -> float | None:
        while self._sleepers and self._sleepers[0][2].done():  # cancelled in its sleep
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def _wake_at(self, due_ns: float) -> None:
        self._elapsed_ns = max(self._elapsed_ns, int(due_ns))
        while self._next_due_ns() == due_ns:
            heapq.heappop(self._sleepers)[2].set_result(None)

    def _start_pump(self) -> None:
        if self._pump is None or self._pump.done():
            self._pump = asyncio.get_running_loop().create_task(self._run_by_itself())

    async def _run_by_itself(self) -> None:
        while True:
            await self.settle()
            due_ns = self._next_due_ns()
            if due_ns is None or due_ns == math.inf:
                return
            self._wake_at(due_ns)


def _ns(seconds: float) -> float:
    """Whole nanoseconds, so that ten sleeps of 0.1 s are exactly 1 s; at least one, so that time moves on."""
    return math.inf if math.isinf(seconds) else max(1, round(seconds * 1e9))
