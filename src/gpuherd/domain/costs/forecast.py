"""What a month will have cost if nothing changes."""

from __future__ import annotations

from datetime import datetime

from gpuherd.domain.costs.amount import cost_nano


def month_of(now: datetime) -> tuple[datetime, datetime]:
    """Return the first moment of the month and of the next one."""
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = (
        first.replace(year=first.year + 1, month=1)
        if first.month == 12
        else first.replace(month=first.month + 1)
    )
    return first, following


def forecast(spent: int, hourly_now: int, now: datetime, end: datetime) -> int:
    """Return what is spent, and what goes on until the end at what it costs now."""
    return spent + cost_nano(hourly_now, end - now)
