"""Time for the client: stamps, durations, and a pause for a thread as well as for a task."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the client may know about time."""

    def now(self) -> datetime:
        """Return the wall clock, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that only ever grow."""
        ...

    def pause(self, seconds: float) -> None:
        """Let `seconds` pass in this thread."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` pass in this task."""
        ...


class SystemClock:
    """The real thing."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        # For the commands that work on the database with this clock; none of them decides by it.
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    async def sleep(self, seconds: float) -> None:
        import asyncio  # noqa: PLC0415  who blocks need not load it

        await asyncio.sleep(seconds)
