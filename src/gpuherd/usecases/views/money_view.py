"""Costs, budgets and volumes as the API shows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal

from gpuherd.contract import money_models
from gpuherd.contract.catalogue_models import Volume, VolumeList
from gpuherd.domain.money.balance import AccountBalance, Leftover
from gpuherd.domain.money.bill import (
    BilledPeriod,
    ComparedDay,
    Comparison,
    StorageVolume,
)
from gpuherd.domain.money.budget import (
    Budget,
    BudgetRules,
    BudgetScope,
    ScopeKind,
    Spending,
    state_of,
)
from gpuherd.domain.money.period import resets_at
from gpuherd.domain.money.usage_span import CostKind, nano_usd, usd_of
from gpuherd.ports.costs_port import (
    GROUPS_MAX,
    CostGroup,
    CostQuery,
    CostReport,
    GroupBy,
    Waste,
)


def cents(nano: int) -> str:
    """Return an amount for people."""
    return f"${usd_of(nano):.4f}"


def describe_costs(query: CostQuery, report: CostReport, billed: BilledPeriod | None) -> money_models.Costs:
    """Return a report."""
    return money_models.Costs(
        since=query.period.begin,
        until=query.period.end,
        group_by=f"label:{query.label}" if query.by is GroupBy.LABEL else query.by.value,
        total=usd_of(report.amount),
        uncertainty=usd_of(report.doubt),
        hourly_now=usd_of(report.hourly_now),
        by_kind=money_models.CostsByKind(
            gpu=_of_kind(report, CostKind.GPU),
            disk=_of_kind(report, CostKind.DISK),
            volume=_of_kind(report, CostKind.VOLUME),
        ),
        waste=describe_waste(report.waste),
        groups=tuple(_group(it) for it in report.groups[:GROUPS_MAX]),
        groups_left_out=report.groups_left_out + max(0, len(report.groups) - GROUPS_MAX),
        billed=None if billed is None else _billed(billed),
    )


def describe_waste(it: Waste) -> money_models.Waste:
    return money_models.Waste(
        unbound=usd_of(it.unbound),
        failed_boots=usd_of(it.failed_boots),
        overlap=usd_of(it.overlap),
        after_end=usd_of(it.after_end),
    )


def describe_leftovers(items: Sequence[Leftover]) -> money_models.Leftovers:
    """Return what still costs money."""
    return money_models.Leftovers(
        items=tuple(_leftover(it) for it in items), hourly_total=usd_of(sum(it.hourly for it in items))
    )


def describe_balance(it: AccountBalance) -> money_models.Balance:
    runway = it.runway_hours
    return money_models.Balance(
        available=it.available,
        hourly_now=it.hourly_now,
        runway_hours=None if runway is None else round(float(runway), 2),
        read_at=it.read_at,
    )


def describe_bill(it: ComparedDay) -> money_models.Bill:
    """Return a day by the meter and by the bill."""
    billed = it.billed
    return money_models.Bill(
        day=it.day.isoformat(),
        rows=tuple(describe_line(line) for line in it.lines),
        total=money_models.BillTotal(
            metered=usd_of(it.metered),
            billed=None if billed is None else usd_of(billed),
            drift=None if billed is None else usd_of(it.metered - billed),
        ),
        fetched_at=it.fetched_at,
    )


def describe_line(it: Comparison) -> money_models.BillLine:
    drift = it.drift
    return money_models.BillLine(
        cloud_instance_id=it.cloud_id,
        instance_id=it.instance_id,
        metered=usd_of(it.metered),
        billed=None if it.billed is None else usd_of(it.billed),
        drift=None if drift is None else usd_of(drift),
        uncertainty=usd_of(it.doubt),
    )


def _of_kind(report: CostReport, kind: CostKind) -> Decimal:
    return usd_of(report.by_kind.get(kind, 0))


def _group(it: CostGroup) -> money_models.CostGroup:
    return money_models.CostGroup(
        value=it.value,
        total=usd_of(it.amount),
        uncertainty=usd_of(it.doubt),
        hourly_now=usd_of(it.hourly_now),
        instances=it.instances,
        name=it.name or None,
    )


def _billed(it: BilledPeriod) -> money_models.Billed:
    return money_models.Billed(
        through=it.through.isoformat(), total=usd_of(it.billed), drift=usd_of(it.metered - it.billed)
    )


def _leftover(it: Leftover) -> money_models.Leftover:
    return money_models.Leftover(
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


def describe_budget(it: Budget, spending: Spending, rules: BudgetRules, now: datetime) -> money_models.Budget:
    """Return a budget with what is spent of it."""
    return money_models.Budget(
        id=it.id,
        name=it.name,
        scope=describe_scope(it.scope),
        amount=usd_of(it.amount),
        period=it.period.value,
        warn_percent=it.warn_percent,
        at_limit=it.at_limit.value,
        strict=it.strict,
        spent=usd_of(spending.spent),
        hourly_now=usd_of(spending.hourly),
        resets_at=resets_at(it.period, now),
        state=state_of(it, spending, rules, now).value,
        created_at=it.created_at,
    )


def describe_scope(it: BudgetScope) -> money_models.BudgetScope:
    match it.kind:
        case ScopeKind.ALL:
            return money_models.BudgetScope(all=True, key=None, label=None)
        case ScopeKind.KEY:
            return money_models.BudgetScope(all=None, key=it.key, label=None)
        case ScopeKind.LABEL:
            return money_models.BudgetScope(all=None, key=None, label={it.key: it.value})


def budget_audit_text(it: Budget) -> str:
    """Return what an auditor wants to know of a budget."""
    strict = ", strict" if it.strict else ""
    return f"{it.name}: ${usd_of(it.amount):f} a {it.period} for {it.scope}, then {it.at_limit}{strict}"


def describe_volume(it: StorageVolume) -> Volume:
    """Return one volume."""
    return Volume(
        id=it.volume_id,
        name=it.name,
        region=it.region,
        size_gb=it.size_gb,
        hourly_price=usd_of(nano_usd(it.hourly_usd)),
    )


def describe_volumes(found: Iterable[StorageVolume]) -> VolumeList:
    """Return all of them, and what they cost together."""
    shown = tuple(map(describe_volume, found))
    return VolumeList(
        volumes=shown, total=len(shown), hourly_total=sum((it.hourly_price for it in shown), Decimal(0))
    )
