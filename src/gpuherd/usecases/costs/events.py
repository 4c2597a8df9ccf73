"""The events of money: they are about the account, and go to endpoints alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import structlog

from gpuherd.clock import Clock
from gpuherd.contract.codec.model import Model, encode
from gpuherd.contract.costs import BalanceNotice, DriftNotice, PriceNotice
from gpuherd.domain.costs.amount import usd_of
from gpuherd.domain.costs.reconcile import Comparison
from gpuherd.domain.instance import events
from gpuherd.domain.instance.events import ACCOUNT, Event
from gpuherd.ports.events import AccountEvent, AccountEventLog
from gpuherd.ports.flags import Flags
from gpuherd.usecases.describe.costs import cents, describe_line
from gpuherd.usecases.events.record import EventRecorder

log = structlog.get_logger()

DRIFT_TOLD = "costs_drift_told"
PRICES_TOLD = "costs_prices_told"
# More machines than this at another price are told again the next day.
PRICES_REMEMBERED = 500


@dataclass(frozen=True)
class OtherPrice:
    """A machine, what we take an hour of it to cost, and what it is billed at."""

    cloud_id: str
    instance_id: str | None
    metered: int
    billed: int


@dataclass(frozen=True)
class CostEvents:
    """Tells each thing once."""

    event_log: AccountEventLog
    event_recorder: EventRecorder
    flags: Flags
    clock: Clock

    async def drift(self, day: date, lines: Sequence[Comparison]) -> None:
        """Tell that the meter and the bill disagree about these machines, unless that was told already."""
        metered = sum(it.metered for it in lines)
        billed = sum(it.billed or 0 for it in lines)
        mark = f"{day.isoformat()} {metered} {billed}"
        if await self.flags.get(DRIFT_TOLD) == mark:
            return
        notice = DriftNotice(
            day=day.isoformat(),
            metered=usd_of(metered),
            billed=usd_of(billed),
            drift=usd_of(metered - billed),
            rows=tuple(describe_line(it) for it in lines),
        )
        machines = "1 machine" if len(lines) == 1 else f"{len(lines)} machines"
        reason = (
            f"of {machines} the meter says {cents(metered)} for {day.isoformat()}, the bill {cents(billed)}"
        )
        log.warning(
            "costs.drift", day=day.isoformat(), metered=str(notice.metered), billed=str(notice.billed)
        )
        await self._append(events.COSTS_DRIFT, reason, notice)
        await self.flags.put(DRIFT_TOLD, mark)

    async def other_prices(self, day: date, found: Sequence[OtherPrice]) -> None:
        """Tell which machines are billed at another price, each price once."""
        if not found:
            return
        told: dict[str, int] = json.loads(await self.flags.get(PRICES_TOLD) or "{}")
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
            reason = (
                f"machine {it.cloud_id} is billed at {cents(it.billed)} an hour, not at {cents(it.metered)}"
            )
            await self._append(events.PRICE_CHANGED, reason, notice)
        # What is billed at its own price again is forgotten.
        known = {it.cloud_id: it.billed for it in found}
        await self.flags.put(PRICES_TOLD, json.dumps(dict(list(known.items())[:PRICES_REMEMBERED])))

    async def low_balance(self, available: Decimal, hourly: Decimal, runway_hours: Decimal | None) -> None:
        """Tell that what is left does not last much longer."""
        notice = BalanceNotice(
            available=available,
            hourly_now=hourly,
            runway_hours=None if runway_hours is None else round(float(runway_hours), 2),
        )
        reason = f"${available:.2f} are left, which last {notice.runway_hours} h at ${hourly:.2f} an hour"
        log.warning("account.low_balance", available=str(available), runway_hours=notice.runway_hours)
        await self._append(events.LOW_BALANCE, reason, notice)

    async def _append(self, type: str, reason: str, notice: Model) -> None:
        told = Event(ACCOUNT, 0, type, self.clock.now(), reason=reason, details=encode(notice))
        await self.event_log.append_account([AccountEvent(told, self.event_recorder.account_outbox_entries)])
