"""Read how much of each budget is spent: for graphs, which ask every few seconds."""

from __future__ import annotations

from collections.abc import Mapping

from gpuherd.clock import Clock
from gpuherd.ports.costs import Budgets
from gpuherd.resilience.cache import Cache

RATIOS_TTL_S = 15.0
# Each name is a series of its own.
BUDGETS_SHOWN = 50
ALL = "all"


class ReadBudgetRatios:
    """Asks the store a few times a minute, however many scrape."""

    def __init__(self, budgets: Budgets, clock: Clock):
        self._budgets = budgets
        self._clock = clock
        self._ratios: Cache[str, Mapping[str, float]] = Cache(clock, RATIOS_TTL_S, 1, "budget_ratios")

    async def __call__(self) -> Mapping[str, float]:
        return await self._ratios.get_or_load(ALL, self._load)

    async def _load(self) -> Mapping[str, float]:
        now = self._clock.now()
        shown = (await self._budgets.list_all())[:BUDGETS_SHOWN]
        spent = {it.name: (await self._budgets.spending(it, now)).spent for it in shown}
        return {it.name: spent[it.name] / it.amount if it.amount else 1.0 for it in shown}
