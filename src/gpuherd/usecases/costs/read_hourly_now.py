"""Read what all that goes on costs an hour."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from gpuherd.domain.access.caller import Caller
from gpuherd.domain.costs.amount import usd_of
from gpuherd.ports.costs import Costs


@dataclass(frozen=True)
class ReadHourlyNow:
    """For an admin all of the account, for others what their key pays for."""

    costs: Costs

    async def __call__(self, caller: Caller) -> Decimal:
        return usd_of(await self.costs.hourly_now(caller.owner))
