"""The clock and the random numbers of the host."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

# macOS has no clock that counts while the host sleeps; its monotonic clock takes the place.
_BOOT_CLOCK = time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC


def host_boot_id(path: Path = Path("/proc/sys/kernel/random/boot_id")) -> str:
    """Return what tells this boot of the host from all others, or nothing where the platform has no such."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


class SystemClock:
    """The real thing."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.clock_gettime(_BOOT_CLOCK)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


SystemRandom = random.SystemRandom
