"""How long a failed job waits before its next try."""

from __future__ import annotations

from gpuherd.ports.clock_port import Random

# Beyond this the delay is over any cap, and 2.0**n soon no longer fits into a float.
_DOUBLINGS_MAX = 1000


def exponential_delay(
    failures: int, first_s: float = 0.1, cap_s: float = 300.0, rng: Random | None = None
) -> float:
    """Return the wait after this many failures in a row (from 1): `first_s`, doubled each time, at most
    `cap_s`.

    With `rng` the wait is random, between half of it and all of it. Jobs that failed together then do not
    retry together.
    """
    if failures < 1:
        raise ValueError("a delay follows a failure: failures are counted from 1")
    delay_s = min(cap_s, first_s * 2.0 ** min(failures - 1, _DOUBLINGS_MAX))
    return delay_s if rng is None else rng.uniform(delay_s / 2, delay_s)


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


# Three days and some hours. No jitter makes the last try earlier than this.
SPAN_S = sum(DELAYS_S)


def next_delay_s(
    tries_done: int, jitter: float, retry_after_s: float | None = None, age_s: float = SPAN_S
) -> float | None:
    """Return the wait before the next try; None to give up.

    `jitter` in [0, 1) spreads the wait by 20 % either way. A receiver that asks for a longer wait gets it.
    `age_s` is the time since the first try was due.
    """
    if tries_done < 0 or not 0 <= jitter < 1:
        raise ValueError("tries are counted from 0 and jitter lies in [0, 1)")
    if tries_done >= TRIES_MAX:
        return None
    planned_s = DELAYS_S[tries_done - 1] if tries_done else 0.0
    spread_s = planned_s * (1 - JITTER_SHARE + 2 * JITTER_SHARE * jitter)
    last_s = SPAN_S - age_s if tries_done == TRIES_MAX - 1 else 0.0
    return max(spread_s, retry_after_s or 0.0, last_s)
