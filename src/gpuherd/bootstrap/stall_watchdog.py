"""A watchdog for the event loop.

While something blocks it no request is served, so log the stack that does.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from types import TracebackType

import structlog

from gpuherd.clock import Clock

log = structlog.get_logger()

STALL_THRESHOLD_S = 1.0
STACK_FRAMES_MAX = 12
# In the time after which a silence is a stall.
HEARTBEATS_PER_STALL = 2


class StallWatchdog:
    """A thread that listens to the loop's heartbeat, and tells once of each stall where the loop hangs."""

    def __init__(self, clock: Clock, stall_s: float = STALL_THRESHOLD_S):
        self._clock = clock
        self._stall_s = stall_s
        self._last_heartbeat_s = clock.monotonic()
        self._reported = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stall-watchdog", daemon=True)
        self._next: asyncio.TimerHandle | None = None
        self._loop_thread_id = 0

    def __enter__(self) -> StallWatchdog:
        self._loop_thread_id = threading.get_ident()
        self.heartbeat()
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._next is not None:
            self._next.cancel()

    def heartbeat(self) -> None:
        """Show that the loop goes round, and do so again soon."""
        self._last_heartbeat_s = self._clock.monotonic()
        self._next = asyncio.get_running_loop().call_later(
            self._stall_s / HEARTBEATS_PER_STALL, self.heartbeat
        )

    def check(self) -> None:
        """Look once whether the loop still goes round."""
        late_s = self._clock.monotonic() - self._last_heartbeat_s
        if late_s < self._stall_s:
            self._reported = False
        elif not self._reported:
            self._reported = True
            log.warning("loop.stalled", seconds=round(late_s, 1), stack=self._stack())

    def _run(self) -> None:
        while not self._ended.wait(self._stall_s / HEARTBEATS_PER_STALL):
            self.check()

    def _stack(self) -> list[str]:
        """Return where the loop's thread is now: places only, no values."""
        frame = sys._current_frames().get(self._loop_thread_id)
        frames = traceback.extract_stack(frame, limit=None) if frame is not None else []
        return [f"{it.filename}:{it.lineno} {it.name}" for it in frames[-STACK_FRAMES_MAX:]]
