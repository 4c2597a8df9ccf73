"""When will it be ready? Four minutes at first, then what our own history says."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

FIRST_GUESS = timedelta(minutes=4)
SAMPLES_NEEDED = 3


def time_to_ready(history_s: Sequence[float]) -> timedelta:
    """Return the time that three of four earlier rentals of this kind did not exceed."""
    if len(history_s) < SAMPLES_NEEDED:
        return FIRST_GUESS
    ordered = sorted(history_s)
    # Upper quartile, not median: a promise that is kept is worth more than a short one.
    return timedelta(seconds=ordered[(3 * len(ordered) - 1) // 4])
