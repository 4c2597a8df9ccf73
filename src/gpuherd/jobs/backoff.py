"""How long a failed job waits for its next try."""

from __future__ import annotations

from gpuherd.clock import Random

# Past this a doubled delay is over any cap, and further on 2.0**n no longer fits a float.
_DOUBLINGS_MAX = 1000


def exponential_delay(
    failures: int, first_s: float = 0.1, cap_s: float = 300.0, rng: Random | None = None
) -> float:
    """Return the wait after so many failures in a row (from 1): `first_s`, doubling up to `cap_s`.

    With `rng` the wait is drawn from its upper half, so that jobs which failed together do not come back
    together and yet none comes back early.
    """
    if failures < 1:
        raise ValueError("a delay follows a failure: failures are counted from 1")
    delay_s = min(cap_s, first_s * 2.0 ** min(failures - 1, _DOUBLINGS_MAX))
    return delay_s if rng is None else rng.uniform(delay_s / 2, delay_s)
