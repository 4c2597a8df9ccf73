"""The clock of the machine that the proofs run on: a run in which somebody set it proves nothing about money.

The simulated cloud bills by the monotonic clock, the service by the clock on the wall. A suspended host lets
them part by as much as it slept, and a ledger that is right looks wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

STEP_S = 0.5


def _offset_s() -> float:
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


class HostClock:
    """Knows by how much the clock was set since this was made."""

    def __init__(self, offset_s: Callable[[], float] = _offset_s) -> None:
        self._offset_s = offset_s
        self._began_s = offset_s()

    def marked(self, broken: Sequence[str]) -> list[str]:
        """Return what was broken, each with a remark if the clock was set meanwhile."""
        step_s = self._offset_s() - self._began_s
        if abs(step_s) <= STEP_S:
            return list(broken)
        return [
            f"{it} (the host's clock was set by {step_s:+.1f} s meanwhile: play it again)" for it in broken
        ]
