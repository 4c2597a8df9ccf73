"""Compare a day of the ledger with the provider's bill. The ledger stays: both stand side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.costs.amount import nano_usd
from gpuherd.domain.costs.bill import BillCategory, ProviderCharge
from gpuherd.domain.costs.period import Period
from gpuherd.domain.costs.reconcile import (
    ComparedDay,
    Metered,
    begin_of,
    cards_of,
    compare,
    end_of,
    is_other_price,
    is_settled,
    worst,
)
from gpuherd.domain.costs.span import CostKind
from gpuherd.domain.errors import CloudError
from gpuherd.ports.costs import BilledDay, Costs, MeteredMachine, ProviderBilling
from gpuherd.usecases.costs.events import CostEvents, OtherPrice

log = structlog.get_logger()

# The line of the day itself: it says that the bill was read, also when nothing is on it.
READ = "read"
HOUR_S = 3600


@dataclass(frozen=True)
class ReconcileDay:
    """Fetches the bill of a day, keeps it, compares, and tells what somebody should look at."""

    costs: Costs
    billing: ProviderBilling
    cost_events: CostEvents
    clock: Clock
    # One after the other: each writes all rows of its day.
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False, compare=False)

    async def __call__(self, day: date) -> ComparedDay:
        async with self._lock:
            charges = await self.billing.charges(begin_of(day), end_of(day))
            fetched_at = self.clock.now()
            rows = _bill_of(day, charges, fetched_at)
            await self.costs.save_bill(day, rows)
            found = await self.compared(day)
            # guard: a bill that is not whole yet is no drift
            if is_settled(day, fetched_at):
                await self._tell(found, rows, await self._metered(day))
            return found

    async def compared(self, day: date) -> ComparedDay:
        """Return a day as it was last compared."""
        rows = await self.costs.bill(day, day)
        billed: dict[str, int] | None = None
        if rows:
            billed = {}
            for it in rows:
                if it.category != READ:
                    billed[it.cloud_id] = billed.get(it.cloud_id, 0) + it.amount_nusd
        ours = [Metered(it.cloud_id, it.instance_id, it.amount, it.doubt) for it in await self._metered(day)]
        return ComparedDay(day, compare(ours, billed), max((it.fetched_at for it in rows), default=None))

    async def yesterday(self) -> None:
        """Reconcile the day before, until its bill is surely whole; run every hour."""
        now = self.clock.now()
        day = now.astimezone(UTC).date() - timedelta(days=1)
        rows = await self.costs.bill(day, day)
        if any(is_settled(day, it.fetched_at) for it in rows):
            return
        try:
            await self(day)
        except CloudError as error:
            log.info("costs.bill_unavailable", day=day.isoformat(), code=error.code)

    async def _metered(self, day: date) -> Sequence[MeteredMachine]:
        return await self.costs.metered(Period(begin_of(day), end_of(day)), self.clock.now())

    async def _tell(
        self, found: ComparedDay, rows: Sequence[BilledDay], metered: Sequence[MeteredMachine]
    ) -> None:
        if drifting := worst(found.lines):
            await self.cost_events.drift(found.day, drifting)
        await self.cost_events.other_prices(found.day, _other_prices(rows, metered))


def _bill_of(day: date, charges: Sequence[ProviderCharge], fetched_at: datetime) -> list[BilledDay]:
    """Return a day's charges summed up for each machine and category, and the line of the day itself."""
    by_owner: dict[tuple[str, str], list[ProviderCharge]] = {}
    for it in charges:
        by_owner.setdefault((it.owner_id, it.category.value), []).append(it)
    rows = [
        BilledDay(
            day=day,
            cloud_id=owner_id,
            category=category,
            quantity=sum(it.quantity for it in its),
            unit_nusd=nano_usd(its[-1].unit_usd or Decimal(0)),
            amount_nusd=nano_usd(sum((it.amount_usd for it in its), Decimal(0))),
            voucher_nusd=nano_usd(sum((it.voucher_usd for it in its), Decimal(0))),
            fetched_at=fetched_at,
        )
        for (owner_id, category), its in sorted(by_owner.items())
    ]
    return [*rows, BilledDay(day, "", READ, len(charges), 0, 0, 0, fetched_at)]


def _other_prices(rows: Sequence[BilledDay], metered: Sequence[MeteredMachine]) -> list[OtherPrice]:
    """Return the machines whose cards are billed at a price that none of their spans has."""
    ours = {it.cloud_id: it for it in metered if it.kind is CostKind.GPU}
    found = []
    for row in rows:
        mine = ours.get(row.cloud_id)
        if mine is None or row.category != BillCategory.GPU or not mine.rate_max:
            continue
        metered_s = mine.amount * HOUR_S // mine.rate_max
        rates = {mine.rate_min, mine.rate_max}
        if all(is_other_price(rate, row.unit_nusd, row.quantity, metered_s) for rate in rates):
            cards = cards_of(row.quantity, metered_s)
            found.append(OtherPrice(row.cloud_id, mine.instance_id, mine.rate_max, row.unit_nusd * cards))
    return found
