"""How long the balance lasts, and when to say that it does not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

# The highest that is not reached any more is told, each once.
WARN_BELOW_HOURS = (6, 1)


@dataclass(frozen=True)
class AccountBalance:
    """What is left, what goes on, and how long that lasts; USD, and USD an hour."""

    available: Decimal
    hourly_now: Decimal
    read_at: datetime

    @property
    def runway_hours(self) -> Decimal | None:
        return runway_hours(self.available, self.hourly_now)


def runway_hours(available_usd: Decimal, hourly_usd: Decimal) -> Decimal | None:
    """Return how long it lasts if nothing changes; None while nothing costs anything."""
    if hourly_usd <= 0:
        return None
    return max(Decimal(0), available_usd) / hourly_usd


def level_of(runway: Decimal | None) -> int | None:
    """Return the lowest of the levels that it is below; None where all is well."""
    if runway is None:
        return None
    return min((hours for hours in WARN_BELOW_HOURS if runway < hours), default=None)


def is_news(told: int | None, level: int | None) -> bool:
    """Tell whether a level is worse than the one that was told last."""
    return level is not None and (told is None or level < told)
