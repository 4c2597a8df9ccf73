"""What was used, from when to when, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from enum import StrEnum
from typing import NamedTuple

from gpuherd.domain.instance.instance import SettledCost

NANO = 1_000_000_000
MICROSECOND = timedelta(microseconds=1)
HOUR_MICROS = timedelta(hours=1) // MICROSECOND


def nano_usd(usd: Decimal) -> int:
    """Return an amount, or a rate, in nano-dollars."""
    return int((usd * NANO).to_integral_value(ROUND_HALF_EVEN))


def usd_of(nano: int) -> Decimal:
    return Decimal(nano) / NANO


def cost_nano(rate: int, time: timedelta) -> int:
    """Return the cost of `time` at an hourly rate, rounded down."""
    return rate * (time // MICROSECOND) // HOUR_MICROS


def doubt_nano(rate: int, time: timedelta) -> int:
    """Return the same rounded up: the maximum error of an amount."""
    return -(-rate * (time // MICROSECOND) // HOUR_MICROS)


class CostKind(StrEnum):
    """What costs money."""

    GPU = "gpu"
    DISK = "disk"
    VOLUME = "volume"


class PriceSource(StrEnum):
    """Where a rate comes from, best first."""

    BILL = "bill"
    RENTAL = "rental"
    CATALOGUE = "catalogue"
    UNKNOWN = "unknown"


class Edge(NamedTuple):
    """An interval that certainly contains a moment."""

    lo: datetime
    hi: datetime

    @property
    def mid(self) -> datetime:
        return self.lo + (self.hi - self.lo) // MICROSECOND // 2 * MICROSECOND

    @property
    def doubt(self) -> timedelta:
        """Return the maximum error of the middle."""
        return self.hi - self.mid


@dataclass(frozen=True)
class Rate:
    """An hourly rate in nano-dollars, and its source."""

    nano_usd: int
    source: PriceSource


@dataclass(frozen=True)
class CostSpan:
    """A time that costs money; `ended` is None while it continues."""

    cloud_id: str
    kind: CostKind
    rate: Rate
    began: Edge
    began_by: str
    ended: Edge | None = None
    ended_by: str = ""
    # While the state of the machine is unclear: until when it was certainly billed.
    sure_until: datetime | None = None
    # The first list without it, while it is missed and not yet proven gone.
    missed_at: datetime | None = None
    # The number in the store; 0 before it is stored.
    id: int = 0

    def time(self, now: datetime) -> timedelta:
        """Return how long it lasted, or has lasted so far; never negative."""
        end = now if self.ended is None else self.ended.mid
        return max(timedelta(0), end - self.began.mid)

    def cost(self, now: datetime) -> int:
        return cost_nano(self.rate.nano_usd, self.time(now))

    def uncertainty(self) -> int:
        """Return by how many nano-dollars the cost may be wrong, in either direction, unobserved time
        excluded.
        """
        doubt = self.began.doubt + (timedelta(0) if self.ended is None else self.ended.doubt)
        return doubt_nano(self.rate.nano_usd, doubt) + 1


@dataclass(frozen=True)
class CostSubject:
    """An instance with its machine, or a machine without an instance."""

    cloud_id: str
    # Both are None for a machine without an instance. The owner is the id of the paying key.
    instance_id: str | None
    owner: str | None
    created_at: datetime
    lineage: str | None = None
    name: str = ""
    product_name: str = ""
    region: str = ""
    billing_mode: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    # When it was first usable, and when the user wanted it stopped or deleted, if so.
    usable_at: datetime | None = None
    stop_wanted_at: datetime | None = None
    delete_wanted_at: datetime | None = None

    def end_wanted_at(self, kind: CostKind) -> datetime | None:
        """When this kind of cost is no longer wanted. A stopped machine keeps its disk."""
        if kind is CostKind.DISK:
            return self.delete_wanted_at
        wanted = [it for it in (self.stop_wanted_at, self.delete_wanted_at) if it is not None]
        return min(wanted, default=None)


def settle(spans: Iterable[CostSpan], now: datetime) -> SettledCost:
    """Return the sum of the spans of one instance."""
    amount = doubt = rate = 0
    for it in spans:
        amount += it.cost(now)
        doubt += it.uncertainty()
        if it.ended is None:
            rate += it.rate.nano_usd
            if it.sure_until is not None:
                doubt += cost_nano(it.rate.nano_usd, now - min(it.sure_until, now))
    return SettledCost(amount, doubt, rate, now)
