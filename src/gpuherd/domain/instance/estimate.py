"""When will it be ready? Four minutes at first, then what our own history says."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

DEFAULT_TIME_TO_READY = timedelta(minutes=4)
SAMPLES_MIN = 3


def time_to_ready(history_s: Sequence[float]) -> timedelta:
    """Return the time that three of four earlier rentals of this kind did not exceed."""
    ordered = sorted(_informative(history_s))
    if not sample_count(history_s):
        return DEFAULT_TIME_TO_READY
    # Upper quartile, not median: a promise that is kept is worth more than a short one.
    return timedelta(seconds=ordered[(3 * len(ordered) - 1) // 4])


def sample_count(history_s: Sequence[float]) -> int:
    """Return how many earlier rentals an estimate is made from; 0 means that it is the first guess."""
    informative = len(_informative(history_s))
    return informative if informative >= SAMPLES_MIN else 0


def _informative(history_s: Sequence[float]) -> list[float]:
    # An adopted machine was ready in no time, and tells nothing about those that have to boot.
    return [seconds for seconds in history_s if seconds > 0]
