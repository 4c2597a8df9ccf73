"""Repeats what is safe to repeat."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from gpuherd.ports.clock_port import Clock, Random

T = TypeVar("T")


# gpuherd does not wait longer than this, even if the server asks for it.
RETRY_AFTER_CAP_S = 300.0


# Beyond this the delay is over any cap, and 2.0**n soon no longer fits into a float.
_DOUBLINGS_MAX = 1000


_SECONDS = re.compile(r"-?\d+(\.\d+)?", re.ASCII)


def full_jitter(attempt: int, base_s: float, cap_s: float, rng: Random) -> float:
    """Return a random wait after failure `attempt` (from 1): 0 up to `base_s` doubled each time."""
    doublings = min(attempt - 1, _DOUBLINGS_MAX)
    return rng.uniform(0.0, min(cap_s, base_s * 2.0**doublings))


async def retry(
    call: Callable[[], Awaitable[T]],
    *,
    attempts: int,
    base_s: float,
    cap_s: float,
    clock: Clock,
    rng: Random,
    is_retryable: Callable[[Exception], float | bool | None],
    deadline_s: float,
) -> T:
    """Call until it succeeds, at most `attempts` times, and raise the last error when it does not.

    `is_retryable(error)` answers False or None (give up), True (wait with full jitter), or the seconds the
    other side asked for, which are used instead of our own backoff; 0.0 therefore means "again, at once".
    `deadline_s` counts from the first call: a wait that would leave no time for another call is not begun.
    It does not interrupt a call that is under way; that is the call's own timeout.
    """
    if attempts < 1:
        raise ValueError("attempts must be at least 1")
    started = clock.monotonic()
    attempt = 1
    while True:
        try:
            return await call()
        except Exception as error:
            verdict = is_retryable(error)
            if attempt >= attempts or verdict is None or verdict is False:
                raise
            wait_s = full_jitter(attempt, base_s, cap_s, rng) if verdict is True else max(0.0, verdict)
            if clock.monotonic() - started + wait_s >= deadline_s:
                raise
        await clock.sleep(wait_s)
        attempt += 1


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Return a Retry-After header as seconds from `now` in 0 … 300; None if it is not usable."""
    text = (value or "").strip()
    if _SECONDS.fullmatch(text):
        seconds = float(text)
    elif (moment := _parse_http_date(text)) is not None:
        seconds = (moment - now).total_seconds()
    else:
        return None
    return min(max(0.0, seconds), RETRY_AFTER_CAP_S)


def _parse_http_date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # OverflowError: years and zones with many digits
        return None
    # The old asctime form names no zone. HTTP dates are always GMT.
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
