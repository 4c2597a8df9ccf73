"""Compare a day's bill with the meter, and warn about drift and a low balance."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import (
    UTC,
    date,
    datetime,
    timedelta,
)
from decimal import Decimal

import structlog

from gpuherd.contract.money_models import BalanceNotice, DriftNotice, PriceNotice
from gpuherd.contract.wire_models import ReplyModel
from gpuherd.domain.errors import CloudError
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance_event import ACCOUNT, Event
from gpuherd.domain.money.balance import is_news, level_of
from gpuherd.domain.money.bill import (
    BillCategory,
    ComparedDay,
    Comparison,
    Metered,
    ProviderCharge,
    begin_of,
    cards_of,
    compare,
    end_of,
    is_other_price,
    is_settled,
    worst,
)
from gpuherd.domain.money.period import Period
from gpuherd.domain.money.usage_span import CostKind, nano_usd, usd_of
from gpuherd.ports.costs_port import (
    BilledDay,
    MeteredMachine,
)
from gpuherd.ports.event_port import AccountEvent
from gpuherd.usecases.money.report_costs import read_balance
from gpuherd.usecases.services import Services
from gpuherd.usecases.views.money_view import cents, describe_line

log = structlog.get_logger()


# The line of the day itself: it records that the bill was read, also when the bill is empty.
READ = "read"


HOUR_S = 3600


async def reconcile_day(services: Services, day: date) -> ComparedDay:
    """Read the bill of a day, save and compare it, and notify about drift and changed prices."""
    # One day after the other: each writes all rows of its day.
    async with services.bill_lock:
        charges = await services.billing.charges(begin_of(day), end_of(day))
        fetched_at = services.clock.now()
        rows = _bill_of(day, charges, fetched_at)
        await services.stores.costs.save_bill(day, rows)
        found = await compare_day(services, day)
        # guard: a bill that is not whole yet is no drift
        if is_settled(day, fetched_at):
            await _notify(services, found, rows, await _metered(services, day))
        return found


async def compare_day(services: Services, day: date) -> ComparedDay:
    """Return a day as it was last compared."""
    rows = await services.stores.costs.bill(day, day)
    billed: dict[str, int] | None = None
    if rows:
        billed = {}
        for it in rows:
            if it.category != READ:
                billed[it.cloud_id] = billed.get(it.cloud_id, 0) + it.amount_nusd
    ours = [Metered(it.cloud_id, it.instance_id, it.amount, it.doubt) for it in await _metered(services, day)]
    return ComparedDay(day, compare(ours, billed), max((it.fetched_at for it in rows), default=None))


async def reconcile_yesterday(services: Services) -> None:
    """Reconcile the day before, every hour until its bill is complete."""
    now = services.clock.now()
    day = now.astimezone(UTC).date() - timedelta(days=1)
    rows = await services.stores.costs.bill(day, day)
    if any(is_settled(day, it.fetched_at) for it in rows):
        return
    try:
        await reconcile_day(services, day)
    except CloudError as error:
        log.info("costs.bill_unavailable", day=day.isoformat(), code=error.code)


async def _metered(services: Services, day: date) -> Sequence[MeteredMachine]:
    return await services.stores.costs.metered(Period(begin_of(day), end_of(day)), services.clock.now())


async def _notify(
    services: Services, found: ComparedDay, rows: Sequence[BilledDay], metered: Sequence[MeteredMachine]
) -> None:
    if drifting := worst(found.lines):
        await _notify_drift(services, found.day, drifting)
    await _notify_other_prices(services, found.day, _other_prices(rows, metered))


def _bill_of(day: date, charges: Sequence[ProviderCharge], fetched_at: datetime) -> list[BilledDay]:
    """Return the charges of a day by machine and category, and the line of the day itself."""
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
    """Return the machines that are billed at a price which none of their spans has."""
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


DRIFT_TOLD = "costs_drift_told"
PRICES_TOLD = "costs_prices_told"


# If more machines have another price, some are notified again on the next day.
PRICES_REMEMBERED = 500


@dataclass(frozen=True)
class OtherPrice:
    """A machine, what we take an hour of it to cost, and what it is billed at."""

    cloud_id: str
    instance_id: str | None
    metered: int
    billed: int


async def _notify_drift(services: Services, day: date, lines: Sequence[Comparison]) -> None:
    """Append an event, once, that the meter and the bill disagree about these machines."""
    metered = sum(it.metered for it in lines)
    billed = sum(it.billed or 0 for it in lines)
    mark = f"{day.isoformat()} {metered} {billed}"
    if await services.stores.flags.get(DRIFT_TOLD) == mark:
        return
    notice = DriftNotice(
        day=day.isoformat(),
        metered=usd_of(metered),
        billed=usd_of(billed),
        drift=usd_of(metered - billed),
        rows=tuple(describe_line(it) for it in lines),
    )
    machines = "1 machine" if len(lines) == 1 else f"{len(lines)} machines"
    reason = f"of {machines} the meter says {cents(metered)} for {day.isoformat()}, the bill {cents(billed)}"
    log.warning("costs.drift", day=day.isoformat(), metered=str(notice.metered), billed=str(notice.billed))
    await _append_event(services, instance_event.COSTS_DRIFT, reason, notice)
    await services.stores.flags.put(DRIFT_TOLD, mark)


async def _notify_other_prices(services: Services, day: date, found: Sequence[OtherPrice]) -> None:
    """Append an event for each machine that is billed at another price, once for each price."""
    if not found:
        return
    told: dict[str, int] = json.loads(await services.stores.flags.get(PRICES_TOLD) or "{}")
    fresh = [it for it in found if told.get(it.cloud_id) != it.billed]
    if not fresh:
        return
    for it in fresh:
        notice = PriceNotice(
            day=day.isoformat(),
            cloud_instance_id=it.cloud_id,
            instance_id=it.instance_id,
            metered_price=usd_of(it.metered),
            billed_price=usd_of(it.billed),
        )
        reason = f"machine {it.cloud_id} is billed at {cents(it.billed)} an hour, not at {cents(it.metered)}"
        await _append_event(services, instance_event.PRICE_CHANGED, reason, notice)
    # A machine that is billed at its own price again is forgotten.
    known = {it.cloud_id: it.billed for it in found}
    await services.stores.flags.put(PRICES_TOLD, json.dumps(dict(list(known.items())[:PRICES_REMEMBERED])))


async def _notify_low_balance(
    services: Services, available: Decimal, hourly: Decimal, runway_hours: Decimal | None
) -> None:
    """Append an event that the balance does not last much longer."""
    notice = BalanceNotice(
        available=available,
        hourly_now=hourly,
        runway_hours=None if runway_hours is None else round(float(runway_hours), 2),
    )
    reason = f"${available:.2f} are left, which last {notice.runway_hours} h at ${hourly:.2f} an hour"
    log.warning("account.low_balance", available=str(available), runway_hours=notice.runway_hours)
    await _append_event(services, instance_event.LOW_BALANCE, reason, notice)


async def _append_event(services: Services, type: str, reason: str, notice: ReplyModel) -> None:
    told = Event(
        ACCOUNT, 0, type, services.clock.now(), reason=reason, details=notice.model_dump(mode="json")
    )
    await services.stores.account_events.append_account(
        [AccountEvent(told, services.event_recorder.account_outbox_entries)]
    )


BALANCE_TOLD = "low_balance_told"


async def watch_balance(services: Services) -> None:
    """Warn once for each level that the balance falls to. The leader does this every few minutes."""
    try:
        balance = await read_balance(services)
    except CloudError as error:
        log.info("account.balance_unavailable", code=error.code)
        return
    said = await services.stores.flags.get(BALANCE_TOLD)
    told = int(said) if said else None
    level = level_of(balance.runway_hours)
    if is_news(told, level):
        await _notify_low_balance(services, balance.available, balance.hourly_now, balance.runway_hours)
    if level != told:
        # After the event: a second event is better than none.
        await services.stores.flags.put(BALANCE_TOLD, None if level is None else str(level))
