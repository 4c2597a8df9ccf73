"""Instances as rows, and what goes on costs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.lifecycle.goals import RESTARTABLE, STOPPABLE
from gpuherd.domain.instance.quota import hourly_usd_now
from gpuherd.entrypoints.web.views.formatting import MOVING, look_of

HOURS_A_DAY, HOURS_A_MONTH = 24, 730
SETTLED = frozenset({Status.EXITED, Status.DELETED, Status.FAILED})


@dataclass(frozen=True)
class Row:
    """One instance in a list."""

    id: str
    name: str
    status: str
    look: str
    reason: str
    gpu: str
    region: str
    billing: str
    hourly_usd: Decimal | None
    labels: tuple[tuple[str, str], ...]
    created_at: datetime
    # Since when it is on its way to where it shall be.
    moving_since: datetime
    ready_at: datetime | None
    expected_at: datetime | None
    loss_expected_at: datetime | None
    owner: str


@dataclass(frozen=True)
class Cost:
    """What goes on costs at this moment, and would cost if nothing changed."""

    hourly_usd: Decimal
    daily_usd: Decimal
    monthly_usd: Decimal


def row_of(it: Instance) -> Row:
    """Return an instance for a list."""
    look = look_of(it)
    return Row(
        id=it.id,
        name=it.name,
        status=it.status.value,
        look=look,
        reason=it.reason,
        gpu=gpu_of(it),
        region=it.rental.region if it.rental else "",
        billing="spot" if it.billing_mode == "spot" else "on demand",
        hourly_usd=price_of(it),
        labels=tuple(sorted(it.labels.items())),
        created_at=it.created_at,
        moving_since=moving_since(it),
        ready_at=it.ready_at,
        expected_at=it.estimated_ready_at if look == MOVING and it.goal == "running" else None,
        loss_expected_at=it.loss_expected_at,
        owner=it.owner,
    )


def gpu_of(it: Instance) -> str:
    """Return what was rented, or is wished for."""
    name = it.product_name
    return name if it.wish.gpu_num == 1 else f"{it.wish.gpu_num} × {name}"


def price_of(it: Instance) -> Decimal | None:
    """Return what the whole instance costs an hour while it runs, once that is known."""
    return it.hourly_usd


def daily_price_of(it: Instance) -> Decimal | None:
    """Return what a day costs if it stays as it is: of a stopped one the disk only."""
    price = hourly_usd_now(it) if it.status is Status.EXITED else it.hourly_usd
    return None if price is None else price * HOURS_A_DAY


def moving_since(it: Instance) -> datetime:
    """Return when what is going on was asked for."""
    return it.operation.requested_at if it.operation else it.created_at


def is_moving(it: Instance) -> bool:
    """Tell whether it is not yet where it shall be."""
    return not it.usable and it.status not in SETTLED


def cost_at(hourly_usd: Decimal) -> Cost:
    """Return what goes on at so much an hour."""
    return Cost(hourly_usd, hourly_usd * HOURS_A_DAY, hourly_usd * HOURS_A_MONTH)


def can_start(it: Instance) -> bool:
    """Tell whether a start would be accepted."""
    return it.status is Status.EXITED and it.cloud_id is not None


def can_restart(it: Instance) -> bool:
    """Tell whether a restart would be accepted."""
    return it.status in RESTARTABLE


def can_stop(it: Instance) -> bool:
    """Tell whether a stop would be accepted."""
    return it.status in STOPPABLE


def can_delete(it: Instance) -> bool:
    """Tell whether a delete would change anything."""
    return it.status not in (Status.DELETED, Status.DELETING)
