"""Money as pictures that are drawn here: bars with their amounts beside them, so that no colour has to be
told apart, and nothing is lost on those who cannot see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

from gpuherd.domain.costs.amount import usd_of
from gpuherd.domain.costs.reconcile import ComparedDay
from gpuherd.ports.costs import CostGroup, CostReport

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
