"""Costs and budgets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import (
    UTC,
    date,
    datetime,
    timedelta,
)
from decimal import Decimal

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.money_models import Budget, BudgetScope
from gpuherd.domain.api_key import Caller
from gpuherd.domain.money.balance import AccountBalance, forecast, month_of
from gpuherd.domain.money.bill import ComparedDay
from gpuherd.domain.money.period import Period, day_start
from gpuherd.domain.money.usage_span import usd_of
from gpuherd.entrypoints.http_auth import caller_of
from gpuherd.entrypoints.use_case_access import Plane, plane_of
from gpuherd.entrypoints.web.page_rendering import Routes, page
from gpuherd.ports.costs_port import CostGroup, CostReport, GroupBy
from gpuherd.usecases.cloud.read_catalogue import within_budget
from gpuherd.usecases.money.compare_bill import compare_day
from gpuherd.usecases.money.manage_budgets import read_budgets
from gpuherd.usecases.money.report_costs import list_leftovers, read_balance, report_costs
from gpuherd.usecases.views.money_view import describe_leftovers

BAR_WIDTH = 260
GROUPS_SHOWN = 12


# As wide as there is room, so across it is measured in per cent: what scales a picture scales its words, too.
CHART_HEIGHT = 180


# Above the bars, for the dearest day, and below them, for the days.
TOP_HEIGHT, AXIS_HEIGHT = 16, 18


GAP_PERCENT = 0.3


@dataclass(frozen=True)
class DayBar:
    """One day of the chart."""

    day: date
    usd: Decimal
    x_percent: float
    width_percent: float
    y: int
    height: int
    # Shown below the bar; empty where there is no room.
    tick: str

    @property
    def middle_percent(self) -> float:
        return round(self.x_percent + self.width_percent / 2, 3)


@dataclass(frozen=True)
class DayChart:
    """What each day has cost."""

    bars: tuple[DayBar, ...]
    most_usd: Decimal
    height: int = CHART_HEIGHT
    top_y: int = TOP_HEIGHT
    axis_y: int = CHART_HEIGHT - AXIS_HEIGHT


@dataclass(frozen=True)
class GroupBar:
    """What belongs to one value, as a line of a table."""

    name: str
    usd: Decimal
    uncertainty: Decimal
    hourly_usd: Decimal
    instances: int
    width: int


@dataclass(frozen=True)
class WasteLine:
    """What was paid for nothing, for one reason."""

    cause: str
    usd: Decimal
    percent: Decimal


@dataclass(frozen=True)
class DriftLine:
    """One day beside the bill."""

    day: date
    metered: Decimal
    billed: Decimal
    drift: Decimal
    # Whether it can be judged: the rows of the last hours come late.
    is_settled: bool
    is_drifting: bool


def day_chart(report: CostReport, first: date, last: date) -> DayChart:
    """Return the chart of a report by day, with the days on which nothing was spent."""
    spent = {it.value: usd_of(it.amount) for it in report.groups}
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    amounts = [spent.get(it.isoformat(), Decimal(0)) for it in days]
    most = max(amounts, default=Decimal(0))
    step, room = 100 / max(1, len(days)), CHART_HEIGHT - AXIS_HEIGHT
    width = round(step - GAP_PERCENT, 3)
    bars = []
    for n, (day, amount) in enumerate(zip(days, amounts, strict=True)):
        height = _part(amount, most, room - TOP_HEIGHT)
        # The last one always, and every fifth before it.
        tick = f"{day.day}." if (len(days) - 1 - n) % 5 == 0 else ""
        bars.append(DayBar(day, amount, round(n * step, 3), width, room - height, height, tick))
    return DayChart(tuple(bars), most)


def group_bars(
    groups: Sequence[CostGroup], names: Mapping[str, str], nobody: str
) -> tuple[tuple[GroupBar, ...], int]:
    """Return the dearest groups, and how many are left out."""
    most = max((usd_of(it.amount) for it in groups), default=Decimal(0))
    bars = [
        GroupBar(
            name=nobody if it.value is None else names.get(it.value, it.value),
            usd=usd_of(it.amount),
            uncertainty=usd_of(it.doubt),
            hourly_usd=usd_of(it.hourly_now),
            instances=it.instances,
            width=_part(usd_of(it.amount), most, BAR_WIDTH),
        )
        for it in groups[:GROUPS_SHOWN]
    ]
    return tuple(bars), max(0, len(groups) - GROUPS_SHOWN)


def waste_lines(report: CostReport, *, sees_all: bool) -> tuple[WasteLine, ...]:
    """Return what was paid for nothing, also what was not; machines of nobody are an admin's business."""
    waste = report.waste
    causes = (
        *((("Machines that no instance has", waste.unbound),) if sees_all else ()),
        ("Instances that ended before they were usable", waste.failed_boots),
        ("After a stop or delete was asked for", waste.after_end),
        ("Beside the instance that has taken over", waste.overlap),
    )
    total = Decimal(report.amount) or Decimal(1)
    return tuple(
        WasteLine(cause, usd_of(amount), (Decimal(amount) / total * 100).quantize(Decimal("0.1")))
        for cause, amount in causes
    )


def drift_lines(days: Iterable[ComparedDay]) -> tuple[DriftLine, ...]:
    """Return the days that were compared."""
    return tuple(
        DriftLine(
            day=it.day,
            metered=usd_of(it.metered),
            billed=usd_of(billed),
            drift=usd_of(it.metered - billed),
            is_settled=it.is_settled,
            is_drifting=any(line.is_drifting for line in it.lines),
        )
        for it in days
        if (billed := it.billed) is not None
    )


def _part(amount: Decimal, most: Decimal, length: int) -> int:
    """Return how long a bar is; what is more than nothing is seen."""
    return 0 if amount <= 0 or most <= 0 else max(1, int(amount / most * length))


_TONES = {"ok": "good", "warned": "moving", "exhausted": "bad"}
_WORDS = {"ok": "within", "warned": "warned", "exhausted": "used up"}


@dataclass(frozen=True)
class BudgetBar:
    """One budget, as a line of a table."""

    name: str
    scope: str
    spent: Decimal
    amount: Decimal
    percent: int
    period: str
    at_limit: str
    strict: bool
    tone: str
    state: str
    resets_at: datetime | None
    width: int


def budget_bars(budgets: Iterable[Budget]) -> tuple[BudgetBar, ...]:
    """Return the budgets, those of which most is spent first."""
    bars = [_bar(it) for it in budgets]
    return tuple(sorted(bars, key=lambda it: (-it.percent, it.name)))


def _bar(it: Budget) -> BudgetBar:
    part = it.spent / it.amount if it.amount else Decimal(1)
    return BudgetBar(
        name=it.name,
        scope=_scope(it.scope),
        spent=it.spent,
        amount=it.amount,
        percent=int(part * 100),
        period=it.period,
        at_limit=it.at_limit,
        strict=it.strict,
        tone=_TONES.get(it.state, "bad"),
        state=_WORDS.get(it.state, it.state),
        resets_at=it.resets_at,
        width=int(min(part, Decimal(1)) * BAR_WIDTH),
    )


def _scope(it: BudgetScope) -> str:
    if it.key:
        return f"key {it.key}"
    return ", ".join(f"{name}={value}" for name, value in (it.label or {}).items()) or "everything"


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
    keys = await plane.services.stores.costs.label_keys(month, now, caller.owner)
    label = request.query_params.get("label", keys[0] if keys else "")[:LABEL_MAX]
    leftovers = describe_leftovers(await list_leftovers(plane.services, caller))
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
        budgets=budget_bars((await read_budgets(plane.services)).budgets) if caller.sees_all else None,
        leftovers=leftovers.items[:LEFTOVERS_SHOWN],
        leftovers_total=len(leftovers.items),
    )


async def _report(plane: Plane, caller: Caller, period: Period, by: GroupBy, label: str = "") -> CostReport:
    return (await report_costs(plane.services, period, by, label, caller)).report


def _spent_on(report: CostReport, now: datetime) -> Decimal:
    today = now.astimezone(UTC).date().isoformat()
    return usd_of(next((it.amount for it in report.groups if it.value == today), 0))


async def _balance(plane: Plane) -> AccountBalance | None:
    """Return what is left; None while the provider does not say it."""
    return await within_budget(BALANCE_BUDGET_S, read_balance(plane.services))


async def _label_bars(
    plane: Plane, caller: Caller, month: Period, label: str
) -> tuple[tuple[GroupBar, ...], int] | None:
    if not label:
        return None
    report = await _report(plane, caller, month, GroupBy.LABEL, label)
    return group_bars(report.groups, {}, "(without this label)")


async def _key_bars(plane: Plane, report: CostReport) -> tuple[tuple[GroupBar, ...], int]:
    names = {it.id: f"{it.label} ({it.id})" for it in await plane.services.stores.keys.list_all() if it.label}
    return group_bars(report.groups, names, "(machines and volumes of no key)")


async def _drift(plane: Plane, now: datetime) -> tuple[DriftLine, ...]:
    today: date = now.astimezone(UTC).date()
    return drift_lines(
        [await compare_day(plane.services, today - timedelta(days=n)) for n in range(1, COMPARED_DAYS + 1)]
    )


ROUTES: Routes = {("GET", "/money"): show}
