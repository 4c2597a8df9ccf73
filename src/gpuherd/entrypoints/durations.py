"""Moments and durations, as people say them: in a terminal and on a page alike."""

from __future__ import annotations

import re
from datetime import datetime

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR


# Two clocks never agree: what is this close is now.
JUST_NOW_MAX_S = 5


_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(s|m|min|h|d)?")
_UNIT_S = {None: 1, "s": 1, "m": MINUTE, "min": MINUTE, "h": HOUR, "d": DAY}


def parse_duration(words: str) -> float:
    """Return the seconds that "90", "90s", "20m", "1.5h" or "2d" mean."""
    match = _DURATION.fullmatch(words.strip())
    if match is None or (seconds := float(match[1]) * _UNIT_S[match[2]]) <= 0:
        raise ValueError("say it like 90, 90s, 20m, 1.5h or 2d")
    return seconds


def relative_time(moment: datetime, now: datetime) -> str:
    """Say when it was, or will be: "3 min ago", "in 1 h 59 min"."""
    seconds = (now - moment).total_seconds()
    if abs(seconds) < JUST_NOW_MAX_S:
        return "just now"
    return f"{rough_duration(seconds)} ago" if seconds > 0 else f"in {time_ahead(-seconds)}"


def rough_duration(seconds: float) -> str:
    """Say about how long, in the one unit that fits."""
    if seconds < MINUTE:
        return f"{seconds:.0f} s"
    if seconds < HOUR:
        return f"{seconds // MINUTE:.0f} min"
    if seconds < 2 * DAY:
        return f"{seconds // HOUR:.0f} h"
    return f"{seconds // DAY:.0f} d"


def time_ahead(seconds: float) -> str:
    """Say how long until then, in two units from an hour on: half of "1 h" may be all that is left to act."""
    if seconds < HOUR:
        return rough_duration(seconds)
    big, small, words = (HOUR, MINUTE, "h {} min") if seconds < 2 * DAY else (DAY, HOUR, "d {} h")
    whole, rest = int(seconds // big), int(seconds % big // small)
    return f"{whole} {words.format(rest)}" if rest else f"{whole} {words[0]}"


def format_duration(seconds: float) -> str:
    """Say how long, to the second where that matters."""
    whole = max(0, int(seconds))
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE:02} s"
    return f"{whole // HOUR} h {whole % HOUR // MINUTE:02} min"


def remaining_time(estimate: datetime, now: datetime) -> str:
    """Say how much longer it will take, without pretending to know it well."""
    seconds = (estimate - now).total_seconds()
    if seconds <= 0:
        return "longer than estimated"
    if seconds < MINUTE:
        return "less than a minute left"
    if seconds < HOUR:
        return f"about {(seconds + MINUTE / 2) // MINUTE:.0f} min left"
    return f"about {rough_duration(seconds)} left"
