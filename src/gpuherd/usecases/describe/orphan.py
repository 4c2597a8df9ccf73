"""Orphans as the world sees them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from gpuherd.domain.cloud.tag import plain_name
from gpuherd.domain.instance.consistency import cloud_status
from gpuherd.domain.instance.orphan import Orphan, OrphanVerdict
from gpuherd.usecases.describe.instance import iso, usd

# What we can do something about comes first.
_ORDER = list(OrphanVerdict)


def describe_orphan(it: Orphan, now: datetime) -> dict[str, Any]:
    """Return one line of the ledger."""
    machine = it.machine
    status = cloud_status(machine)
    return {
        "cloudId": it.cloud_id,
        "name": plain_name(machine.name),
        "verdict": it.verdict.value,
        "reason": it.finding.reason,
        "instanceId": it.finding.instance_id,
        "status": status.value if status else None,
        "cloudStatus": machine.raw_status,
        "productId": machine.product_id or None,
        "productName": machine.product_name or None,
        "region": machine.region or None,
        "gpuNum": machine.gpu_num,
        "billingMode": machine.billing_mode or None,
        "hourlyPrice": usd(it.hourly_usd),
        "costSoFar": usd(it.cost_so_far(now)),
        "ageSeconds": int(it.age(now).total_seconds()),
        "createdAt": iso(machine.created_at),
        "firstSeenAt": iso(it.first_seen_at),
        "confirmedAt": iso(it.confirmed_at),
        "order": it.order.value if it.order else None,
        "orderedAt": iso(it.ordered_at),
        "orderedBy": it.ordered_by or None,
        "askedAt": iso(it.asked_at),
        "tries": it.tries,
        "error": it.error or None,
    }


def describe_ledger(orphans: Sequence[Orphan], braked: str | None, now: datetime) -> dict[str, Any]:
    """Return the open ledger, what we can do something about first, and what all of it costs."""
    ordered = sorted(orphans, key=lambda it: (_ORDER.index(it.verdict), it.since, it.cloud_id))
    return {
        "orphans": [describe_orphan(it, now) for it in ordered],
        "total": len(ordered),
        "hourlyPrice": usd(hourly_usd(ordered)),
        "braked": braked,
    }


def hourly_usd(orphans: Sequence[Orphan]) -> Decimal:
    """Return what these cost an hour now, as far as their prices are known."""
    return sum((it.hourly_usd for it in orphans if it.hourly_usd is not None), Decimal(0))
