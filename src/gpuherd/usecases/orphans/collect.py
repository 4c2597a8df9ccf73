"""Collect: after each believable list bring the ledger up to date, and remove what we know to be surplus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.access.audit import AuditRecord
from gpuherd.domain.cloud.observation import ListRecord, SettlingPolicy
from gpuherd.domain.errors import CloudUnavailable
from gpuherd.domain.orphans.orphan import (
    COLLECTOR,
    LEAVING_PHASES,
    Orphan,
    OrphanOrder,
    OrphanVerdict,
    brake,
    with_order,
)
from gpuherd.ports.flags import Flags
from gpuherd.ports.orphans import Orphans
from gpuherd.usecases.cloud.installation_alarm import INSTALLATION_SHARED
from gpuherd.usecases.orphans.execute_order import ExecuteOrphanOrder
from gpuherd.usecases.orphans.ledger import UpdateOrphanLedger
from gpuherd.usecases.replicas.leadership import AlwaysLeader, Leadership

log = structlog.get_logger()

COLLECTOR_BRAKED = "collector_braked"
CLOSED_LINES_RETENTION = timedelta(days=30)


@dataclass(kw_only=True)
class CollectOrphans:
    """Runs every few seconds; acts once on each list, and only while the cloud answers well."""

    orphans: Orphans
    update_ledger: UpdateOrphanLedger
    execute_order: ExecuteOrphanOrder
    flags: Flags
    clock: Clock
    settling: SettlingPolicy
    latest_list: Callable[[], ListRecord | None]
    breaker_state: Callable[[], str]
    # False: surplus machines are reported like all others, and wait for an order.
    auto_delete: bool = True
    leadership: Leadership = field(default_factory=AlwaysLeader)
    _handled: ListRecord | None = field(default=None, init=False)

    async def tick(self) -> bool:
        """Collect if there is a new list to go by; tell whether that was so."""
        record = self.latest_list()
        if record is None or record is self._handled or not self.leadership.is_leader():
            return False
        self._handled = record
        # guard: nothing is collected by a list that is not believed
        # guard: nothing is collected while the cloud is in trouble
        if not record.believable or self.breaker_state() != "CLOSED":
            return False
        lines = await self.update_ledger(record)
        await self._execute_orders(await self._order_surplus(lines))
        return True

    async def resume(self, actor: str, audit_record: AuditRecord | None = None) -> tuple[Orphan, ...]:
        """Release the brake; what it held back is now ordered by whoever looked at it, and returned."""
        if await self.flags.get(COLLECTOR_BRAKED) is None:
            return ()
        # Whichever replica was asked: the ledger takes no word from one that is not on duty.
        async with self.leadership.acquired():
            deletable = (
                [it for it in await self.orphans.open() if _is_ready_to_delete(it)]
                if self.auto_delete
                else []
            )
            now = self.clock.now()
            orders = [with_order(it, OrphanOrder.DELETE, actor, now) for it in deletable]
            released = [await self.update_ledger.write(it) for it in orders]
            await self.flags.put(COLLECTOR_BRAKED, None, audit_record)
        return tuple(it for it in released if it is not None)

    async def forget(self) -> int:
        """Drop lines that ended long ago; return how many."""
        return await self.orphans.forget(self.clock.now() - CLOSED_LINES_RETENTION)

    async def _order_surplus(self, lines: Sequence[Orphan]) -> Sequence[Orphan]:
        """Order the removal of what is surplus for sure; return the lines whose orders may be carried out."""
        by_people = [it for it in lines if it.order is not None and it.ordered_by != COLLECTOR]
        deletable = [it for it in lines if _is_ready_to_delete(it)]
        if not self.auto_delete or await self._is_braked(len(deletable)):
            return by_people
        now = self.clock.now()
        fresh = [
            await self.update_ledger.write(with_order(it, OrphanOrder.DELETE, COLLECTOR, now))
            for it in deletable
        ]
        going_on = [it for it in lines if it.order is not None and it.ordered_by == COLLECTOR]
        return [*by_people, *going_on, *(it for it in fresh if it is not None)]

    async def _is_braked(self, due: int) -> bool:
        """Tell whether nothing may be removed by itself, pulling the brake if `due` would be too many."""
        # guard: the alarm stops the collector
        if await self.flags.first(INSTALLATION_SHARED, COLLECTOR_BRAKED) is not None:
            return True
        if due == 0:
            return False
        since = self.clock.now() - self.settling.collection_cycle
        lately = await self.orphans.ordered_since(since, COLLECTOR)
        reason = brake(due, lately, await self.orphans.live_instances())
        if reason is None:
            return False
        await self.flags.put(COLLECTOR_BRAKED, reason)
        log.error("collector.braked", reason=reason)
        return True

    async def _execute_orders(self, lines: Sequence[Orphan]) -> None:
        for it in lines:
            try:
                await self.execute_order(it)
            except CloudUnavailable as error:
                log.info("collector.cloud_unavailable", code=error.code, reason=error.message)
                return


def _is_ready_to_delete(it: Orphan) -> bool:
    """Tell whether a line is of a surplus machine that was seen twice, and that nobody has decided about."""
    surplus = it.verdict is OrphanVerdict.SURPLUS and it.confirmed_at is not None
    return surplus and it.order is None and it.machine.phase not in LEAVING_PHASES
