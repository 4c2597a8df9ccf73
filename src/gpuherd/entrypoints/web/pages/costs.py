"""`/money`: what was spent, what goes on, how long that lasts, what was for nothing, what the bill says."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.access.caller import Caller
from gpuherd.domain.costs.amount import usd_of
from gpuherd.domain.costs.forecast import forecast, month_of
from gpuherd.domain.costs.period import Period, day_start
from gpuherd.domain.costs.runway import AccountBalance
from gpuherd.entrypoints.auth.authorization import caller_of
from gpuherd.entrypoints.plane import Plane
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.web.rendering import page
from gpuherd.entrypoints.web.routes import Routes
from gpuherd.entrypoints.web.views.budgets import budget_bars
from gpuherd.entrypoints.web.views.costs import (
    BAR_WIDTH,
    DriftLine,
    GroupBar,
    day_chart,
    drift_lines,
    group_bars,
    waste_lines,
)
from gpuherd.ports.costs import CostReport, GroupBy
from gpuherd.usecases.cloud.catalogue import within_budget
from gpuherd.usecases.describe.costs import describe_leftovers

CHART_DAYS = 30
COMPARED_DAYS = 7
LEFTOVERS_SHOWN = 20
LABEL_MAX = 200
# A page does not wait for a cloud that is away.
BALANCE_BUDGET_S = 3.0


async def show(request: Request) -> Response:
    """Show it all for this month."""
    plane, caller = plane_of(request), caller_of(request)
    now = plane.clock.now()
    month = Period(*month_of(now.astimezone(UTC)))
    days = Period(day_start(now) - timedelta(days=CHART_DAYS - 1), day_start(now) + timedelta(days=1))
    by_day = await _report(plane, caller, days, GroupBy.DAY)
    this_month = await _report(plane, caller, month, GroupBy.KEY)
    keys = await plane.costs.label_keys(month, caller)
    label = request.query_params.get("label", keys[0] if keys else "")[:LABEL_MAX]
    leftovers = describe_leftovers(await plane.costs.leftovers(caller))
    return page(
        request,
        "money.html",
        today_usd=_spent_on(by_day, now),
        month_usd=usd_of(this_month.amount),
        uncertainty=usd_of(this_month.doubt),
        forecast_usd=usd_of(forecast(this_month.amount, this_month.hourly_now, now, month.end)),
        hourly_usd=usd_of(this_month.hourly_now),
        balance=await _balance(plane) if caller.sees_all else None,
        kinds=[(kind.value, usd_of(amount)) for kind, amount in this_month.by_kind.items()],
        chart=day_chart(by_day, days.begin.date(), now.astimezone(UTC).date()),
        labels=keys,
        label=label,
        by_label=await _label_bars(plane, caller, month, label),
        by_key=await _key_bars(plane, this_month) if caller.sees_all else None,
        bar_width=BAR_WIDTH,
        waste=waste_lines(this_month, sees_all=caller.sees_all),
        drift=await _drift(plane, now) if caller.sees_all else None,
        budgets=budget_bars((await plane.budgets.read.all()).budgets) if caller.sees_all else None,
        leftovers=leftovers.items[:LEFTOVERS_SHOWN],
        leftovers_total=len(leftovers.items),
    )


async def _report(plane: Plane, caller: Caller, period: Period, by: GroupBy, label: str = "") -> CostReport:
    return (await plane.costs.report(period, by, label, caller)).report


def _spent_on(report: CostReport, now: datetime) -> Decimal:
    today = now.astimezone(UTC).date().isoformat()
    return usd_of(next((it.amount for it in report.groups if it.value == today), 0))


async def _balance(plane: Plane) -> AccountBalance | None:
    """Return what is left; None while the provider does not say it."""
    return await within_budget(BALANCE_BUDGET_S, plane.costs.balance())


async def _label_bars(
    plane: Plane, caller: Caller, month: Period, label: str
) -> tuple[tuple[GroupBar, ...], int] | None:
    if not label:
        return None
    report = await _report(plane, caller, month, GroupBy.LABEL, label)
    return group_bars(report.groups, {}, "(without this label)")


async def _key_bars(plane: Plane, report: CostReport) -> tuple[tuple[GroupBar, ...], int]:
    names = {it.id: f"{it.label} ({it.id})" for it in await plane.keys.manage.list_all() if it.label}
    return group_bars(report.groups, names, "(machines and volumes of no key)")


async def _drift(plane: Plane, now: datetime) -> tuple[DriftLine, ...]:
    today: date = now.astimezone(UTC).date()
    return drift_lines(
        [await plane.costs.reconcile.compared(today - timedelta(days=n)) for n in range(1, COMPARED_DAYS + 1)]
    )


ROUTES: Routes = {("GET", "/money"): show}
