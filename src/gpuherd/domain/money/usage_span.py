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
    """Return what `time` costs at a rate an hour, to the next lower nano-dollar."""
    return rate * (time // MICROSECOND) // HOUR_MICROS


def doubt_nano(rate: int, time: timedelta) -> int:
    """Return the same to the next higher one: by so much an amount may be wrong."""
    return -(-rate * (time // MICROSECOND) // HOUR_MICROS)


class CostKind(StrEnum):
    """What is paid for."""

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
    """An interval that surely holds a moment."""

    lo: datetime
    hi: datetime

    @property
    def mid(self) -> datetime:
        return self.lo + (self.hi - self.lo) // MICROSECOND // 2 * MICROSECOND

    @property
    def doubt(self) -> timedelta:
        """Return by how much the middle may be wrong."""
        return self.hi - self.mid


@dataclass(frozen=True)
class Rate:
    """What is paid an hour, in nano-dollars, and how we know."""

    nano_usd: int
    source: PriceSource


@dataclass(frozen=True)
class CostSpan:
    """One stretch of time that is paid for; `ended` is None while it goes on."""

    cloud_id: str
    kind: CostKind
    rate: Rate
    began: Edge
    began_by: str
    ended: Edge | None = None
    ended_by: str = ""
    # While the machine is shown in a way that says neither yes nor no: until when it surely was paid for.
    sure_until: datetime | None = None
    # The first list that did not show it, while it is missed and not yet taken for gone.
    missed_at: datetime | None = None
    # The store's number; 0 before it has one.
    id: int = 0

    def time(self, now: datetime) -> timedelta:
        """Return how long it lasted, or has lasted so far; never less than nothing."""
        end = now if self.ended is None else self.ended.mid
        return max(timedelta(0), end - self.began.mid)

    def cost(self, now: datetime) -> int:
        return cost_nano(self.rate.nano_usd, self.time(now))

    def uncertainty(self) -> int:
        """Return by how many nano-dollars the cost may be wrong, either way, but for what nobody has seen."""
        doubt = self.began.doubt + (timedelta(0) if self.ended is None else self.ended.doubt)
        return doubt_nano(self.rate.nano_usd, doubt) + 1


@dataclass(frozen=True)
class CostSubject:
    """An instance with a machine of its, or a machine that no instance has."""

    cloud_id: str
    # Both are None of a machine that is nobody's; the owner is the id of the key that pays.
    instance_id: str | None
    owner: str | None
    created_at: datetime
    lineage: str | None = None
    name: str = ""
    product_name: str = ""
    region: str = ""
    billing_mode: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    # When it was first usable, and since when it is wanted stopped or gone, where that is so.
    usable_at: datetime | None = None
    stop_wanted_at: datetime | None = None
    delete_wanted_at: datetime | None = None

    def end_wanted_at(self, kind: CostKind) -> datetime | None:
        """Return since when this kind of cost is not wanted any more: a stopped machine keeps its disk."""
        if kind is CostKind.DISK:
            return self.delete_wanted_at
        wanted = [it for it in (self.stop_wanted_at, self.delete_wanted_at) if it is not None]
        return min(wanted, default=None)


def settle(spans: Iterable[CostSpan], now: datetime) -> SettledCost:
    """Sum up the spans of one instance."""
    amount = doubt = rate = 0
    for it in spans:
        amount += it.cost(now)
        doubt += it.uncertainty()
        if it.ended is None:
            rate += it.rate.nano_usd
            if it.sure_until is not None:
                doubt += cost_nano(it.rate.nano_usd, now - min(it.sure_until, now))
    return SettledCost(amount, doubt, rate, now)
