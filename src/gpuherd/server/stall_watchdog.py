"""A watch on the event loop: while something blocks it nobody is served, so say what does."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from types import TracebackType

import structlog

from gpuherd.clock import Clock

log = structlog.get_logger()

STALL_S = 1.0
FRAMES = 12
# In the time after which a silence is a stall.
BEATS = 2


class StallWatch:
    """A thread that listens to the loop's heartbeat, and tells once of each stall where the loop hangs."""

    def __init__(self, clock: Clock, stall_s: float = STALL_S):
        self._clock = clock
        self._stall_s = stall_s
        self._beat_s = clock.monotonic()
        self._told = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="stall-watch", daemon=True)
        self._next: asyncio.TimerHandle | None = None
        self._watched = 0

    def __enter__(self) -> StallWatch:
        self._watched = threading.get_ident()
        self.beat()
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._next is not None:
            self._next.cancel()

    def beat(self) -> None:
        """Show that the loop goes round, and do so again soon."""
        self._beat_s = self._clock.monotonic()
        self._next = asyncio.get_running_loop().call_later(self._stall_s / BEATS, self.beat)

    def check(self) -> None:
        """Look once whether the loop still goes round."""
        late_s = self._clock.monotonic() - self._beat_s
        if late_s < self._stall_s:
            self._told = False
        elif not self._told:
            self._told = True
            log.warning("loop.stalled", seconds=round(late_s, 1), stack=self._stack())

    def _listen(self) -> None:
        while not self._ended.wait(self._stall_s / BEATS):
            self.check()

    def _stack(self) -> list[str]:
        """Return where the loop's thread is now: places only, no values."""
        frame = sys._current_frames().get(self._watched)
        frames = traceback.extract_stack(frame, limit=None) if frame is not None else []
        return [f"{it.filename}:{it.lineno} {it.name}" for it in frames[-FRAMES:]]
