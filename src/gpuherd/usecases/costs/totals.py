"""Read what everything has cost since the ledger began: for graphs, which ask every few seconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gpuherd.clock import Clock
from gpuherd.domain.costs.period import Period
from gpuherd.ports.costs import CostQuery, CostReport, Costs, GroupBy
from gpuherd.resilience.cache import Cache

TOTALS_TTL_S = 30.0
BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
ALL = "all"


class ReadCostTotals:
    """Asks the store at most twice a minute, however many scrape."""

    def __init__(self, costs: Costs, clock: Clock):
        self._costs = costs
        self._clock = clock
        self._totals: Cache[str, CostReport] = Cache(clock, TOTALS_TTL_S, 1, "cost_totals")

    async def __call__(self) -> CostReport:
        return await self._totals.get_or_load(ALL, self._load)

    async def _load(self) -> CostReport:
        now = self._clock.now()
        # By something that sums by day know, or every span would have to be read.
        query = CostQuery(Period(BEGINNING, now + timedelta(days=1)), GroupBy.KEY)
        return await self._costs.report(query, now)
