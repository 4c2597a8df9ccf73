"""Report what a period has cost, and how far the provider's bill agrees."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from gpuherd.clock import Clock
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.costs.period import Period, day_start
from gpuherd.domain.costs.reconcile import BilledPeriod, begin_of, end_of
from gpuherd.ports.costs import CostQuery, CostReport, Costs, GroupBy


@dataclass(frozen=True)
class PeriodCosts:
    """A report, and the bill beside it."""

    query: CostQuery
    report: CostReport
    # None where no day was compared, and for callers who may not see it.
    billed: BilledPeriod | None


@dataclass(frozen=True)
class ReportCosts:
    """Sums up a period for a caller: all of the account for an admin, else what the caller's key pays for."""

    costs: Costs
    clock: Clock

    async def __call__(
        self, period: Period, by: GroupBy, label: str, caller: Caller, now: datetime | None = None
    ) -> PeriodCosts:
        """Sum it up. A period that ends at `now` goes on, and today is a day of it."""
        # guard: a key sees its own money
        query = CostQuery(period, by, label, owner=caller.owner)
        now = now or self.clock.now()
        report = await self.costs.report(query, now)
        # guard: the bill is for admins
        billed = await self._billed(period, now) if caller.sees_all else None
        return PeriodCosts(query, report, billed)

    async def _billed(self, period: Period, now: datetime) -> BilledPeriod | None:
        days = _whole_days(period, now)
        if days is None:
            return None
        billed: dict[date, int] = {}
        for row in await self.costs.bill(*days):
            billed[row.day] = billed.get(row.day, 0) + row.amount_nusd
        if not billed:
            return None
        compared = Period(begin_of(min(billed)), end_of(max(billed)))
        report = await self.costs.report(CostQuery(compared, GroupBy.DAY), now)
        metered = sum(
            it.amount for it in report.groups if it.value and date.fromisoformat(it.value) in billed
        )
        return BilledPeriod(max(billed), sum(billed.values()), metered)


def _whole_days(period: Period, now: datetime) -> tuple[date, date] | None:
    """Return the first and the last day that lie in a period as a whole; today counts as far as it goes."""
    first = day_start(period.begin)
    if first < period.begin:
        first += timedelta(days=1)
    end = period.end if period.end < now else day_start(now) + timedelta(days=1)
    last = day_start(end) - timedelta(days=1)
    return None if last < first else (first.astimezone(UTC).date(), last.astimezone(UTC).date())
