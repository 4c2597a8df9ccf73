"""A span: one machine, one kind of cost, one rate, from an edge to an edge.

We learn of a stop from lists that lie seconds apart, so an edge is an interval that surely holds the moment.
The middle is what we count, half the width is what we may be wrong by."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from gpuherd.domain.costs.amount import MICROSECOND, cost_nano, doubt_nano


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
