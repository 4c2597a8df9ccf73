"""Read what is left on the account, and how long it lasts."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from gpuherd.clock import Clock
from gpuherd.domain.costs.amount import usd_of
from gpuherd.domain.costs.runway import AccountBalance
from gpuherd.ports.costs import Costs, ProviderBilling
from gpuherd.resilience.cache import Cache

BALANCE_TTL_S = 30.0
ALL = "all"


class ReadBalance:
    """Asks the provider, at most twice a minute."""

    def __init__(self, billing: ProviderBilling, costs: Costs, clock: Clock):
        self._billing = billing
        self._costs = costs
        self._clock = clock
        self._available: Cache[str, tuple[Decimal, datetime]] = Cache(clock, BALANCE_TTL_S, 1, "balance")

    @property
    def cache(self) -> Cache[str, tuple[Decimal, datetime]]:
        return self._available

    async def __call__(self) -> AccountBalance:
        available, read_at = await self._available.get_or_load(ALL, self._load)
        return AccountBalance(available, usd_of(await self._costs.hourly_now()), read_at)

    async def _load(self) -> tuple[Decimal, datetime]:
        return await self._billing.available_usd(), self._clock.now()
