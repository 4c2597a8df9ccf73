"""Orphans as the world sees them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from gpuherd.contract import orphan as shown
from gpuherd.domain.cloud.tag import plain_name
from gpuherd.domain.orphans.consistency import cloud_status
from gpuherd.domain.orphans.orphan import Orphan, OrphanVerdict

# What we can do something about comes first.
_ORDER = list(OrphanVerdict)


def describe_orphan(it: Orphan, now: datetime) -> shown.Orphan:
    """Return one line of the ledger."""
    machine = it.machine
    status = cloud_status(machine)
    return shown.Orphan(
        cloud_id=it.cloud_id,
        name=plain_name(machine.name),
        verdict=it.verdict.value,
        reason=it.finding.reason,
        instance_id=it.finding.instance_id,
        status=status.value if status else None,
        cloud_status=machine.raw_status,
        product_id=machine.product_id or None,
        product_name=machine.product_name or None,
        region=machine.region or None,
        gpu_num=machine.gpu_num,
        billing_mode=machine.billing_mode or None,
        hourly_price=it.hourly_usd,
        cost_so_far=it.cost_so_far(now),
        age_s=int(it.age(now).total_seconds()),
        created_at=machine.created_at,
        first_seen_at=it.first_seen_at,
        confirmed_at=it.confirmed_at,
        order=it.order.value if it.order else None,
        ordered_at=it.ordered_at,
        ordered_by=it.ordered_by or None,
        asked_at=it.asked_at,
        tries=it.tries,
        error=it.error or None,
    )


def describe_ledger(orphans: Sequence[Orphan], braked: str | None, now: datetime) -> shown.Orphans:
    """Return the open ledger, what we can do something about first, and what all of it costs."""
    ordered = sorted(orphans, key=lambda it: (_ORDER.index(it.verdict), it.since, it.cloud_id))
    return shown.Orphans(
        orphans=tuple(describe_orphan(it, now) for it in ordered),
        total=len(ordered),
        hourly_price=hourly_usd(ordered),
        braked=braked,
    )


def describe_released(orphans: Sequence[Orphan], now: datetime) -> shown.Released:
    """Return what the brake had held back."""
    return shown.Released(braked=None, released=tuple(describe_orphan(it, now) for it in orphans))


def describe_notice(it: Orphan) -> shown.OrphanNotice:
    """Return what an event says of an orphan."""
    return shown.OrphanNotice(
        cloud_instance_id=it.cloud_id,
        verdict=it.verdict.value,
        hourly_price=it.hourly_usd,
        product_name=it.machine.product_name or None,
        region=it.machine.region or None,
    )


def hourly_usd(orphans: Sequence[Orphan]) -> Decimal:
    """Return what these cost an hour now, as far as their prices are known."""
    return sum((it.hourly_usd for it in orphans if it.hourly_usd is not None), Decimal(0))
