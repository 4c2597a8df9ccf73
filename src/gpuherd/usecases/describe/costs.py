"""Money as the API shows it: to the nano-dollar, so that parts add up to their total."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from gpuherd.contract import costs as contract
from gpuherd.domain.costs.amount import usd_of
from gpuherd.domain.costs.leftover import Leftover
from gpuherd.domain.costs.reconcile import BilledPeriod, ComparedDay, Comparison
from gpuherd.domain.costs.runway import AccountBalance
from gpuherd.domain.costs.span import CostKind
from gpuherd.ports.costs import GROUPS_MAX, CostGroup, CostQuery, CostReport, GroupBy, Waste


def cents(nano: int) -> str:
    """Return an amount for people."""
    return f"${usd_of(nano):.4f}"


def describe_costs(query: CostQuery, report: CostReport, billed: BilledPeriod | None) -> contract.Costs:
    """Return a report."""
    return contract.Costs(
        since=query.period.begin,
        until=query.period.end,
        group_by=f"label:{query.label}" if query.by is GroupBy.LABEL else query.by.value,
        total=usd_of(report.amount),
        uncertainty=usd_of(report.doubt),
        hourly_now=usd_of(report.hourly_now),
        by_kind=contract.CostsByKind(
            gpu=_of_kind(report, CostKind.GPU),
            disk=_of_kind(report, CostKind.DISK),
            volume=_of_kind(report, CostKind.VOLUME),
        ),
        waste=describe_waste(report.waste),
        groups=tuple(_group(it) for it in report.groups[:GROUPS_MAX]),
        groups_left_out=report.groups_left_out + max(0, len(report.groups) - GROUPS_MAX),
        billed=None if billed is None else _billed(billed),
    )


def describe_waste(it: Waste) -> contract.Waste:
    return contract.Waste(
        unbound=usd_of(it.unbound),
        failed_boots=usd_of(it.failed_boots),
        overlap=usd_of(it.overlap),
        after_end=usd_of(it.after_end),
    )


def describe_leftovers(items: Sequence[Leftover]) -> contract.Leftovers:
    """Return what still costs money."""
    return contract.Leftovers(
        items=tuple(_leftover(it) for it in items), hourly_total=usd_of(sum(it.hourly for it in items))
    )


def describe_balance(it: AccountBalance) -> contract.Balance:
    runway = it.runway_hours
    return contract.Balance(
        available=it.available,
        hourly_now=it.hourly_now,
        runway_hours=None if runway is None else round(float(runway), 2),
        read_at=it.read_at,
    )


def describe_bill(it: ComparedDay) -> contract.Bill:
    """Return a day by the meter and by the bill."""
    billed = it.billed
    return contract.Bill(
        day=it.day.isoformat(),
        rows=tuple(describe_line(line) for line in it.lines),
        total=contract.BillTotal(
            metered=usd_of(it.metered),
            billed=None if billed is None else usd_of(billed),
            drift=None if billed is None else usd_of(it.metered - billed),
        ),
        fetched_at=it.fetched_at,
    )


def describe_line(it: Comparison) -> contract.BillLine:
    drift = it.drift
    return contract.BillLine(
        cloud_instance_id=it.cloud_id,
        instance_id=it.instance_id,
        metered=usd_of(it.metered),
        billed=None if it.billed is None else usd_of(it.billed),
        drift=None if drift is None else usd_of(drift),
        uncertainty=usd_of(it.doubt),
    )


def _of_kind(report: CostReport, kind: CostKind) -> Decimal:
    return usd_of(report.by_kind.get(kind, 0))


def _group(it: CostGroup) -> contract.CostGroup:
    return contract.CostGroup(
        value=it.value,
        total=usd_of(it.amount),
        uncertainty=usd_of(it.doubt),
        hourly_now=usd_of(it.hourly_now),
        instances=it.instances,
        name=it.name or None,
    )


def _billed(it: BilledPeriod) -> contract.Billed:
    return contract.Billed(
        through=it.through.isoformat(), total=usd_of(it.billed), drift=usd_of(it.metered - it.billed)
    )


def _leftover(it: Leftover) -> contract.Leftover:
    return contract.Leftover(
        kind=it.kind.value,
        id=it.id,
        name=it.name,
        instance_id=it.instance_id,
        cloud_instance_id=it.cloud_id,
        product_name=it.product_name or None,
        region=it.region or None,
        hourly_price=usd_of(it.hourly),
        cost_so_far=None if it.so_far is None else usd_of(it.so_far),
        since=it.since,
        suggestion=it.suggestion,
    )
