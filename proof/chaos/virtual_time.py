"""An event loop and a clock of its own time: when everybody waits, time jumps to the next who is due."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tests.support.fake_clock import MONOTONIC_START_NS, START

T = TypeVar("T")

_MONOTONIC_START_S = MONOTONIC_START_NS / 1e9


class Deadlocked(Exception):
    """Everybody waits for something that nobody will do."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Single-threaded and without a system call, so that a seed repeats a run exactly."""

    # Of the base class; its stubs do not show them.
    _ready: deque[asyncio.Handle]
    _scheduled: list[Any]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self._time_s = 0.0
        self.unhandled: list[BaseException] = []
        self.set_exception_handler(self._note)

    def time(self) -> float:
        return self._time_s

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end."""
        return self.run_until_complete(work)

    def _run_once(self) -> None:
        """Run all that is ready; when nothing is, let time jump to the next who waits for it.

        The base class does the same with sockets, slow callbacks and debugging in mind; there are none here.
        """
        waiting, ready = self._scheduled, self._ready
        while waiting and waiting[0]._cancelled:
            heapq.heappop(waiting)._scheduled = False
        if not ready and not self._stopping:
            if not waiting:
                raise Deadlocked("nobody is due and nobody ever will be")
            self._time_s = max(self._time_s, waiting[0]._when)
        while waiting and waiting[0]._when <= self._time_s:
            alarm = heapq.heappop(waiting)
            alarm._scheduled = False
            ready.append(alarm)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _note(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if (error := context.get("exception")) is not None:
            self.unhandled.append(error)


class VirtualClock:
    """Implements `gpuherd.ports.clock_port.Clock` on a `VirtualLoop`."""

    def __init__(self, loop: VirtualLoop):
        self._loop = loop
        self._start = START
        # Many ask before time goes on.
        self._now, self._now_s = START, 0.0

    def now(self) -> datetime:
        time_s = self._loop._time_s
        if time_s != self._now_s:
            self._now, self._now_s = self._start + timedelta(seconds=time_s), time_s
        return self._now

    def monotonic(self) -> float:
        return _MONOTONIC_START_S + self._loop._time_s

    def boottime(self) -> float:
        return self.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning, whatever the wall clock says."""
        return self._loop.time()

    def jump_wall(self, seconds: float) -> None:
        """Step the wall clock as NTP or a person would; no time passes and nobody wakes."""
        self._start += timedelta(seconds=seconds)
        self._now = self._start + timedelta(seconds=self._now_s)
