"""The cloud's bill of a day, compared with the meter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import (
    UTC,
    date,
    datetime,
    time,
    timedelta,
)
from decimal import Decimal
from enum import StrEnum

from gpuherd.domain.money.usage_span import NANO

# For a GB and a day: what is documented, where the volume itself does not say it.
VOLUME_USD_PER_GB_DAY = Decimal("0.002")


HOURS_A_DAY = 24


class BillCategory(StrEnum):
    """What is charged for; disks and network volumes are both storage."""

    GPU = "gpu"
    STORAGE = "storage"


@dataclass(frozen=True)
class ProviderCharge:
    """What one owner is charged for one thing at one price, in an hour or in a day.

    Nothing else of the provider's row is kept: the rest is about the account and its owner.
    """

    # A machine or a volume; empty where the provider does not say it.
    owner_id: str
    category: BillCategory
    begin: datetime
    # Card-seconds, or gigabyte-seconds.
    quantity: int
    # For a card and an hour, or a gigabyte and a day; None where the row does not say it.
    unit_usd: Decimal | None
    amount_usd: Decimal
    # The part of the amount that vouchers pay.
    voucher_usd: Decimal


@dataclass(frozen=True)
class StorageVolume:
    """A volume with a life of its own: it costs money whether a machine has it or not."""

    volume_id: str
    name: str
    region: str
    size_gb: int
    usd_per_gb_day: Decimal = VOLUME_USD_PER_GB_DAY

    @property
    def hourly_usd(self) -> Decimal:
        return self.size_gb * self.usd_per_gb_day / HOURS_A_DAY


DRIFT_MIN = NANO // 10
DRIFT_SHARE = 50


"""One part in so many of what is billed: two per cent."""


# The rows of the last hours come late, those of storage once a day.
SETTLED_AFTER = timedelta(hours=3)


# Unit prices are sent with five digits; a price that differs by less is the same one.
PRICE_SHARE = 1_000


@dataclass(frozen=True)
class Metered:
    """What our meter says of one machine on one day, in nano-dollars."""

    cloud_id: str
    instance_id: str | None
    amount: int
    doubt: int


@dataclass(frozen=True)
class Comparison:
    """One machine on one day: metered, and billed (None where the bill was not asked for)."""

    cloud_id: str
    instance_id: str | None
    metered: int
    doubt: int
    billed: int | None

    @property
    def drift(self) -> int | None:
        return None if self.billed is None else self.metered - self.billed

    @property
    def is_drifting(self) -> bool:
        """Return True if the two differ by more than rounding, lateness and our own doubt can explain."""
        if self.billed is None:
            return False
        drift = abs(self.metered - self.billed)
        return drift > max(DRIFT_MIN, abs(self.billed) // DRIFT_SHARE) and drift > self.doubt


@dataclass(frozen=True)
class ComparedDay:
    """A day by the meter and by the bill; `fetched_at` is None as long as the bill was not asked for."""

    day: date
    lines: tuple[Comparison, ...]
    fetched_at: datetime | None

    @property
    def is_settled(self) -> bool:
        """Whether the bill surely had all its rows when it was read; before, a difference means nothing."""
        return self.fetched_at is not None and is_settled(self.day, self.fetched_at)

    @property
    def metered(self) -> int:
        return sum(it.metered for it in self.lines)

    @property
    def billed(self) -> int | None:
        return None if self.fetched_at is None else sum(it.billed or 0 for it in self.lines)


@dataclass(frozen=True)
class BilledPeriod:
    """The days of a period of which the bill is known: what they were billed at, and metered at."""

    through: date
    billed: int
    metered: int


def compare(metered: Iterable[Metered], billed: Mapping[str, int] | None) -> tuple[Comparison, ...]:
    """Put both side by side, for every machine that either knows; the greatest difference first."""
    ours: dict[str, Metered] = {}
    for it in metered:
        known = ours.get(it.cloud_id)
        if known is not None:
            it = Metered(
                it.cloud_id,
                known.instance_id or it.instance_id,
                known.amount + it.amount,
                known.doubt + it.doubt,
            )
        ours[it.cloud_id] = it
    theirs = billed or {}
    lines = [
        Comparison(
            cloud_id,
            None if (mine := ours.get(cloud_id)) is None else mine.instance_id,
            0 if mine is None else mine.amount,
            0 if mine is None else mine.doubt,
            None if billed is None else theirs.get(cloud_id, 0),
        )
        for cloud_id in {*ours, *theirs}
    ]
    return tuple(sorted(lines, key=lambda it: (-abs(it.drift or 0), -it.metered, it.cloud_id)))


def is_settled(day: date, fetched_at: datetime) -> bool:
    """Return True if a bill that was read at that moment surely had all rows of the day."""
    return fetched_at >= end_of(day) + SETTLED_AFTER


def begin_of(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def end_of(day: date) -> datetime:
    return begin_of(day) + timedelta(days=1)


def cards_of(quantity_s: int, metered_s: int) -> int:
    """Return how many cards a machine has, by the card-seconds of the bill and the seconds of the meter."""
    return max(1, round(quantity_s / metered_s))


def is_other_price(rate: int, unit: int, quantity_s: int, metered_s: int) -> bool:
    """Return True if a machine is billed at another price than our rate: `unit` is for one card and hour."""
    if not rate or not unit or not metered_s:
        return False
    return abs(unit * cards_of(quantity_s, metered_s) - rate) * PRICE_SHARE > rate


def worst(lines: Sequence[Comparison], most: int = 20) -> tuple[Comparison, ...]:
    """Return those that drift, the worst first."""
    return tuple(it for it in lines if it.is_drifting)[:most]
