"""The send deadline.

A call decided too long ago is not sent, because another replica may hold the lease by now and have decided
otherwise.
"""

from __future__ import annotations

from gpuherd.domain.errors import CloudUnavailable
from gpuherd.ports.clock_port import Clock

# Half of a short lease. Saving an intent takes milliseconds, so a slower process was suspended.
SEND_WITHIN_S = 5.0


def check_send_deadline(clock: Clock, decided_s: float) -> None:
    """Raise `CloudUnavailable` if the call, decided at that moment of the boot-time clock, is overdue."""
    late_s = clock.boottime() - decided_s
    if late_s > SEND_WITHIN_S:
        raise CloudUnavailable(
            f"gpuherd was held up for {late_s:.0f} s before the call, so it was not made", code="HELD_UP"
        )
