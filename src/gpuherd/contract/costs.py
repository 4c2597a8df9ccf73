"""Money, in USD: what was spent, what still costs, what is left, and what the provider says of it."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from gpuherd.contract.codec.model import Model, on_wire_as
from gpuherd.contract.codec.values import OneOf, TextFormat

Day = Annotated[str, TextFormat("date")]
LeftoverKind = Annotated[str, OneOf(("running", "stopped", "volume", "orphan", "waiting"))]


class CostsByKind(Model):
    """What was paid for."""

    gpu: Decimal
    disk: Decimal  # root disks above the free part, running or stopped
    volume: Decimal  # network volumes, mounted or not


class Waste(Model):
    """What was paid for nothing, by its cause; it is part of the total. Causes may overlap."""

    unbound: Decimal  # machines that no instance has; of an admin's report only
    failed_boots: Decimal  # instances that ended before they were usable
    overlap: Decimal  # an old machine beside the one that has taken its place
    after_end: Decimal  # from the moment the end was wanted to the moment it came


class CostGroup(Model, needs=("total",)):
    """What belongs to one value of what the report is divided by."""

    value: str | None  # None for what has none, and for machines that no instance has
    total: Decimal
    uncertainty: Decimal  # the total may be wrong by this, either way
    hourly_now: Decimal
    instances: int
    name: str | None  # of the instance, where the groups are instances


class Billed(Model):
    """What the provider has charged for the days of the period that were compared with its bill."""

    through: Day  # the last of them
    total: Decimal
    drift: Decimal  # what was metered on these days less what was billed


class Costs(Model, needs=("total",)):
    """What a period has cost so far."""

    since: datetime = on_wire_as("from")
    until: datetime = on_wire_as("to")  # excluded; it may lie ahead
    group_by: str
    total: Decimal
    uncertainty: Decimal  # the total may be wrong by this, either way
    hourly_now: Decimal  # what goes on costs this an hour
    by_kind: CostsByKind
    waste: Waste
    groups: tuple[CostGroup, ...]  # the dearest first, days in their order
    groups_left_out: int  # how many more there are, of the cheapest
    billed: Billed | None  # None where nothing was compared, and for keys that are not admin


class Leftover(Model, needs=("kind", "id")):
    """One thing that still costs money, or will."""

    kind: LeftoverKind
    id: str  # of the instance, else of the machine or volume in the cloud
    name: str
    instance_id: str | None
    cloud_instance_id: str | None
    product_name: str | None
    region: str | None
    hourly_price: Decimal
    cost_so_far: Decimal | None  # of all of it, as far as it was metered
    since: datetime | None  # since when it costs what it costs now
    suggestion: str  # what could be done about it


class Leftovers(Model, needs=("items",)):
    """Everything that still costs money, the dearest first."""

    items: tuple[Leftover, ...]
    hourly_total: Decimal


class Balance(Model, needs=("available",)):
    """What is left on the account, and how long it lasts."""

    available: Decimal
    hourly_now: Decimal
    runway_hours: float | None  # None while nothing costs anything
    read_at: datetime


class BillLine(Model, needs=("cloud_instance_id",)):
    """One machine or volume on one day, by our meter and by the provider's bill."""

    cloud_instance_id: str
    instance_id: str | None
    metered: Decimal
    billed: Decimal | None  # None as long as the day was not compared
    drift: Decimal | None  # metered less billed
    uncertainty: Decimal  # of what was metered


class BillTotal(Model):
    """A whole day."""

    metered: Decimal
    billed: Decimal | None
    drift: Decimal | None


class Bill(Model, needs=("day", "rows")):
    """A day by our meter and by the provider's bill."""

    day: Day
    rows: tuple[BillLine, ...]
    total: BillTotal
    fetched_at: datetime | None  # when the provider was last asked about this day


class DriftNotice(Model):
    """Of these the meter and the bill say so different things that somebody should look."""

    day: Day
    metered: Decimal
    billed: Decimal
    drift: Decimal
    rows: tuple[BillLine, ...]  # the worst, at most twenty


class PriceNotice(Model):
    """A machine is billed at another price than the one it was rented at."""

    day: Day
    cloud_instance_id: str
    instance_id: str | None
    metered_price: Decimal  # an hour, for the whole machine
    billed_price: Decimal


class BalanceNotice(Model):
    """What is left does not last much longer."""

    available: Decimal
    hourly_now: Decimal
    runway_hours: float | None
