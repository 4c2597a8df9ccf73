"""How long the balance lasts, what a period will cost, and what still costs money."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from gpuherd.domain.money.usage_span import cost_nano

# gpuherd warns once at each level, in hours.
WARN_BELOW_HOURS = (6, 1)


@dataclass(frozen=True)
class AccountBalance:
    """What is left (USD), what is spent per hour, and how long it lasts."""

    available: Decimal
    hourly_now: Decimal
    read_at: datetime

    @property
    def runway_hours(self) -> Decimal | None:
        return runway_hours(self.available, self.hourly_now)


def runway_hours(available_usd: Decimal, hourly_usd: Decimal) -> Decimal | None:
    """Return how many hours the balance lasts if nothing changes; None if nothing costs anything."""
    if hourly_usd <= 0:
        return None
    return max(Decimal(0), available_usd) / hourly_usd


def level_of(runway: Decimal | None) -> int | None:
    """Return the lowest level that the runway has passed; None if it is long enough."""
    if runway is None:
        return None
    return min((hours for hours in WARN_BELOW_HOURS if runway < hours), default=None)


def is_news(told: int | None, level: int | None) -> bool:
    """Return True if a level is worse than the last one that was announced."""
    return level is not None and (told is None or level < told)


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
    """Return what is spent so far, plus the present hourly cost until the end."""
    return spent + cost_nano(hourly_now, end - now)


class LeftoverKind(StrEnum):
    """Why something costs money, now or soon."""

    RUNNING = "running"
    STOPPED = "stopped"
    VOLUME = "volume"
    ORPHAN = "orphan"
    WAITING = "waiting"


SUGGESTIONS = {
    LeftoverKind.RUNNING: "stop it while nobody uses it, or delete it: its GPUs are paid for by the second",
    LeftoverKind.STOPPED: "delete it if its data is not needed: its disk costs as long as it is there",
    LeftoverKind.VOLUME: "delete it if its data is not needed (gpuherd volumes rm): it costs, mounted or not",
    LeftoverKind.ORPHAN: "no instance has it: adopt it, stop it or delete it (gpuherd orphans)",
    LeftoverKind.WAITING: "it is rented as soon as there is room; delete it if it is not wanted any more",
}


@dataclass(frozen=True)
class Leftover:
    """One thing that costs money; amounts in nano-dollars."""

    kind: LeftoverKind
    id: str
    name: str
    instance_id: str | None = None
    cloud_id: str | None = None
    product_name: str = ""
    region: str = ""
    hourly: int = 0
    # None if it was never metered.
    so_far: int | None = None
    since: datetime | None = None

    @property
    def suggestion(self) -> str:
        return SUGGESTIONS[self.kind]
