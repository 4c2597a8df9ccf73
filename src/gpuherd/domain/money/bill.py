"""Compares the cloud's daily bill with the meter."""

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

# Per GB and day: the documented price, used if the volume does not show its own.
VOLUME_USD_PER_GB_DAY = Decimal("0.002")


HOURS_A_DAY = 24


class BillCategory(StrEnum):
    """What the cloud charges for; disks and network volumes are both storage."""

    GPU = "gpu"
    STORAGE = "storage"


@dataclass(frozen=True)
class ProviderCharge:
    """One charge of the provider: one owner, one thing, one price, an hour or a day.

    Only these fields of the provider's row are kept. The rest describes the account and its owner.
    """

    # A machine or a volume; empty if the provider does not name it.
    owner_id: str
    category: BillCategory
    begin: datetime
    # Card-seconds, or gigabyte-seconds.
    quantity: int
    # Per card and hour, or per gigabyte and day; None if the row does not show it.
    unit_usd: Decimal | None
    amount_usd: Decimal
    # The part of the amount that vouchers pay.
    voucher_usd: Decimal


@dataclass(frozen=True)
class StorageVolume:
    """A volume that exists independently of machines. It costs money also when no machine uses it."""

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


# GPU rows of the last hours arrive late; storage rows arrive once a day.
SETTLED_AFTER = timedelta(hours=3)


# Unit prices have five digits. Prices that differ by less are equal.
PRICE_SHARE = 1_000


@dataclass(frozen=True)
class Metered:
    """What our meter counted for one machine on one day, in nano-dollars."""

    cloud_id: str
    instance_id: str | None
    amount: int
    doubt: int


@dataclass(frozen=True)
class Comparison:
    """One machine on one day: metered, and billed (None if the bill was not read)."""

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
        """Return True if the difference exceeds rounding, delay and the uncertainty of the meter."""
        if self.billed is None:
            return False
        drift = abs(self.metered - self.billed)
        return drift > max(DRIFT_MIN, abs(self.billed) // DRIFT_SHARE) and drift > self.doubt


@dataclass(frozen=True)
class ComparedDay:
    """One day by meter and bill; `fetched_at` is None until the bill is read."""

    day: date
    lines: tuple[Comparison, ...]
    fetched_at: datetime | None

    @property
    def is_settled(self) -> bool:
        """True if the bill had all its rows when it was read. Before that, a difference means nothing."""
        return self.fetched_at is not None and is_settled(self.day, self.fetched_at)

    @property
    def metered(self) -> int:
        return sum(it.metered for it in self.lines)

    @property
    def billed(self) -> int | None:
        return None if self.fetched_at is None else sum(it.billed or 0 for it in self.lines)


@dataclass(frozen=True)
class BilledPeriod:
    """The billed days of a period: their billed and metered amounts."""

    through: date
    billed: int
    metered: int


def compare(metered: Iterable[Metered], billed: Mapping[str, int] | None) -> tuple[Comparison, ...]:
    """Compare both for every machine that either contains, greatest difference first."""
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
    """Return True if a bill read at that moment had all rows of the day."""
    return fetched_at >= end_of(day) + SETTLED_AFTER


def begin_of(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def end_of(day: date) -> datetime:
    return begin_of(day) + timedelta(days=1)


def cards_of(quantity_s: int, metered_s: int) -> int:
    """Return the number of cards, from the card-seconds of the bill and the seconds of the meter."""
    return max(1, round(quantity_s / metered_s))


def is_other_price(rate: int, unit: int, quantity_s: int, metered_s: int) -> bool:
    """Return True if the billed price differs from our rate; `unit` is the price per card and hour."""
    if not rate or not unit or not metered_s:
        return False
    return abs(unit * cards_of(quantity_s, metered_s) - rate) * PRICE_SHARE > rate


def worst(lines: Sequence[Comparison], most: int = 20) -> tuple[Comparison, ...]:
    """Return the drifting machines, the worst first."""
    return tuple(it for it in lines if it.is_drifting)[:most]
