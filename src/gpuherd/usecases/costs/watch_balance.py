"""Watch the balance, and say when it does not last much longer."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from gpuherd.domain.costs.runway import is_news, level_of
from gpuherd.domain.errors import CloudError
from gpuherd.ports.flags import Flags
from gpuherd.usecases.costs.events import CostEvents
from gpuherd.usecases.costs.read_balance import ReadBalance

log = structlog.get_logger()

BALANCE_TOLD = "low_balance_told"


@dataclass(frozen=True)
class WatchBalance:
    """Runs every few minutes, at the leader."""

    read_balance: ReadBalance
    cost_events: CostEvents
    flags: Flags

    async def __call__(self) -> None:
        try:
            balance = await self.read_balance()
        except CloudError as error:
            log.info("account.balance_unavailable", code=error.code)
            return
        said = await self.flags.get(BALANCE_TOLD)
        told = int(said) if said else None
        level = level_of(balance.runway_hours)
        if is_news(told, level):
            await self.cost_events.low_balance(balance.available, balance.hourly_now, balance.runway_hours)
        if level != told:
            # After the event: better told twice than not at all.
            await self.flags.put(BALANCE_TOLD, None if level is None else str(level))
