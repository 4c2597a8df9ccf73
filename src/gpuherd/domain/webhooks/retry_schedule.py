"""When to try a webhook again: the schedule that the Standard Webhooks specification proposes."""

from __future__ import annotations

_MINUTE_S = 60.0
_HOUR_S = 3600.0

DELAYS_S = (
    5.0,
    5 * _MINUTE_S,
    30 * _MINUTE_S,
    2 * _HOUR_S,
    5 * _HOUR_S,
    10 * _HOUR_S,
    14 * _HOUR_S,
    20 * _HOUR_S,
    24 * _HOUR_S,
)
TRIES_MAX = len(DELAYS_S) + 1
JITTER_SHARE = 0.2
# Three days and some hours. The last try never comes before, however the jitter falls.
SPAN_S = sum(DELAYS_S)


def next_delay_s(
    tries_done: int, jitter: float, retry_after_s: float | None = None, age_s: float = SPAN_S
) -> float | None:
    """Return the wait before the next try, or None when it is time to give up.

    `jitter` in [0, 1) spreads the wait by 20 % either way; a receiver that asks for more time gets it.
    `age_s` is how long ago the first try was due.
    """
    if tries_done < 0 or not 0 <= jitter < 1:
        raise ValueError("tries are counted from 0 and jitter lies in [0, 1)")
    if tries_done >= TRIES_MAX:
        return None
    planned_s = DELAYS_S[tries_done - 1] if tries_done else 0.0
    spread_s = planned_s * (1 - JITTER_SHARE + 2 * JITTER_SHARE * jitter)
    last_s = SPAN_S - age_s if tries_done == TRIES_MAX - 1 else 0.0
    return max(spread_s, retry_after_s or 0.0, last_s)
