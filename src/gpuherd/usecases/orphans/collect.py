"""Collect: after each believable list bring the ledger up to date, and remove what we know to be surplus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.audit import Deed
from gpuherd.domain.errors import CloudUnavailable
from gpuherd.domain.orphan import (
    COLLECTOR,
    LEAVING,
    Orphan,
    OrphanOrder,
    OrphanVerdict,
    brake,
    ordered,
)
from gpuherd.domain.sighting import ListRecord, Patience
from gpuherd.ports.orphans import Orphans
from gpuherd.ports.store import Flags
from gpuherd.usecases.carry_out import CarryOut
from gpuherd.usecases.duty import Duty, SoleDuty
from gpuherd.usecases.keep_ledger import KeepLedger

log = structlog.get_logger()

COLLECTOR_BRAKED = "collector_braked"
LINES_KEPT = timedelta(days=30)


@dataclass
class CollectOrphans:
    """Runs every few seconds; acts once on each list, and only while the cloud answers well."""

    orphans: Orphans
    keep_ledger: KeepLedger
    carry_out: CarryOut
    flags: Flags
    clock: Clock
    patience: Patience
    latest_list: Callable[[], ListRecord | None]
    breaker_state: Callable[[], str]
    # False: surplus machines are reported like all others, and wait for an order.
    deletes: bool = True
    duty: Duty = field(default_factory=SoleDuty)
    _handled: ListRecord | None = field(default=None, init=False)

    async def tick(self) -> bool:
        """Collect if there is a new list to go by; tell whether that was so."""
        record = self.latest_list()
        if record is None or record is self._handled or not self.duty.is_held():
            return False
        self._handled = record
        if not record.believable or self.breaker_state() != "CLOSED":
            return False
        lines = await self.keep_ledger(record)
        await self._act(await self._order_surplus(lines))
        return True

    async def resume(self, actor: str, deed: Deed | None = None) -> tuple[Orphan, ...]:
        """Release the brake; what it held back is now ordered by whoever looked at it, and returned."""
        if await self.flags.get(COLLECTOR_BRAKED) is None:
            return ()
        # Whichever replica was asked: the ledger takes no word from one that is not on duty.
        async with self.duty.borrowed():
            ripe = [it for it in await self.orphans.open() if _is_ripe(it)] if self.deletes else []
            now = self.clock.now()
            orders = [ordered(it, OrphanOrder.DELETE, actor, now) for it in ripe]
            released = [await self.keep_ledger.write(it) for it in orders]
            await self.flags.put(COLLECTOR_BRAKED, None, deed)
        return tuple(it for it in released if it is not None)

    async def forget(self) -> int:
        """Drop lines that ended long ago; return how many."""
        return await self.orphans.forget(self.clock.now() - LINES_KEPT)

    async def _order_surplus(self, lines: Sequence[Orphan]) -> Sequence[Orphan]:
        """Order the removal of what is surplus for sure; return the lines whose orders may be carried out."""
        by_people = [it for it in lines if it.order is not None and it.ordered_by != COLLECTOR]
        ripe = [it for it in lines if _is_ripe(it)]
        if not self.deletes or await self._is_braked(len(ripe)):
            return by_people
        now = self.clock.now()
        fresh = [await self.keep_ledger.write(ordered(it, OrphanOrder.DELETE, COLLECTOR, now)) for it in ripe]
        going_on = [it for it in lines if it.order is not None and it.ordered_by == COLLECTOR]
        return [*by_people, *going_on, *(it for it in fresh if it is not None)]

    async def _is_braked(self, due: int) -> bool:
        """Tell whether nothing may be removed by itself, pulling the brake if `due` would be too many."""
        if await self.flags.get(COLLECTOR_BRAKED) is not None:
            return True
        if due == 0:
            return False
        since = self.clock.now() - self.patience.collecting_cycle
        lately = await self.orphans.ordered_since(since, COLLECTOR)
        reason = brake(due, lately, await self.orphans.live_instances())
        if reason is None:
            return False
        await self.flags.put(COLLECTOR_BRAKED, reason)
        log.error("collector.braked", reason=reason)
        return True

    async def _act(self, lines: Sequence[Orphan]) -> None:
        for it in lines:
            try:
                await self.carry_out(it)
            except CloudUnavailable as error:
                log.info("collector.cloud_unavailable", code=error.code, reason=error.message)
                return


def _is_ripe(it: Orphan) -> bool:
    """Tell whether a line is of a surplus machine that was seen twice, and that nobody has decided about."""
    surplus = it.verdict is OrphanVerdict.SURPLUS and it.confirmed_at is not None
    return surplus and it.order is None and it.machine.phase not in LEAVING
