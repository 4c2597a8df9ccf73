"""Promptly or not at all: what was decided some time ago may not be sent to the cloud any more.

A process can be stopped between writing its intent down and sending it, for longer than its lease. By then
another replica may have decided otherwise, and a call that arrives late would undo or double its work.
"""

from __future__ import annotations

from gpuherd.clock import Clock
from gpuherd.domain.errors import CloudUnavailable

# Half of a short lease. To write an intent down takes milliseconds, so whoever needs longer was stopped.
SEND_WITHIN_S = 5.0


def refuse_late(clock: Clock, decided_s: float) -> None:
    """Raise `CloudUnavailable` if the call, decided at that moment of the monotonic clock, is overdue."""
    late_s = clock.monotonic() - decided_s
    if late_s > SEND_WITHIN_S:
        raise CloudUnavailable(
            f"gpuherd was held up for {late_s:.0f} s before the call, so it was not made", code="HELD_UP"
        )
