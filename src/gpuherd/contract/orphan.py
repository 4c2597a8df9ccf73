"""Machines on the account that no instance has."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from gpuherd.contract.codec.model import Model, on_wire_as
from gpuherd.contract.codec.values import OneOf
from gpuherd.contract.instance import Status

# surplus: ours and superfluous; unrecorded: ours, but this database does not know it; foreign: not ours.
Verdict = Annotated[str, OneOf(("surplus", "unrecorded", "foreign"))]
OrphanOrder = Annotated[str, OneOf(("stop", "delete"))]


class Orphan(Model, needs=("cloud_id", "verdict")):
    """A machine that no instance has. Prices are USD."""

    cloud_id: str
    name: str
    verdict: Verdict  # ours and superfluous, ours but unrecorded in this database, or not ours
    reason: str
    instance_id: str | None  # the instance that its tag names
    status: Status | None
    cloud_status: str  # in the cloud's own word
    product_id: str | None
    product_name: str | None
    region: str | None
    gpu_num: int
    billing_mode: str | None
    hourly_price: Decimal | None  # what it costs now, its disk included; a stopped one has only that
    cost_so_far: Decimal | None
    age_s: int = on_wire_as("ageSeconds")
    created_at: datetime | None
    first_seen_at: datetime
    confirmed_at: datetime | None
    order: OrphanOrder | None  # what shall become of it
    ordered_at: datetime | None
    ordered_by: str | None  # the id of a key, or `collector`
    asked_at: datetime | None  # when the cloud was last asked to do it
    tries: int
    error: str | None


class Orphans(Model, needs=("orphans",)):
    """All orphans, and what they cost an hour."""

    orphans: tuple[Orphan, ...]
    total: int
    hourly_price: Decimal  # of all whose price is known
    braked: str | None  # why none is removed by itself, if so


class Released(Model, needs=("released",)):
    """The orphans that the brake had held back and that are deleted now."""

    braked: None
    released: tuple[Orphan, ...]


class OrphanNotice(Model):
    """What an event says of a machine that was found."""

    cloud_instance_id: str
    verdict: Verdict
    hourly_price: Decimal | None
    product_name: str | None
    region: str | None
