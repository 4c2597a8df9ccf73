"""Executes an order about an orphan.

Asks the cloud to stop or remove it, with backoff, until the lists show that it did.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.errors import CloudError, CloudUnavailable, StaleWrite
from gpuherd.domain.orphans.orphan import Orphan, OrphanOrder, is_due
from gpuherd.ports.cloud import Cloud
from gpuherd.ports.orphans import LedgerWrite, Orphans
from gpuherd.usecases.reconcile.send_deadline import SEND_WITHIN_S, check_send_deadline

log = structlog.get_logger()


@dataclass(frozen=True)
class ExecuteOrphanOrder:
    """One request at a time for each machine, whoever else has the same in mind."""

    orphans: Orphans
    cloud: Cloud
    clock: Clock

    async def __call__(self, it: Orphan) -> Orphan:
        """Ask if it is time to, and return the orphan as it is then; `CloudUnavailable`: ask again later."""
        now, decided_s = self.clock.now(), self.clock.boottime()
        if not is_due(it, now):
            return it
        # Written first: the ledger refuses when an instance has got the machine meanwhile.
        asked = await self.orphans.begin_order(replace(it, asked_at=now, tries=it.tries + 1, error=""))
        if asked is None:
            return it
        call = self.cloud.delete_machine if it.order is OrphanOrder.DELETE else self.cloud.stop_machine
        try:
            check_send_deadline(self.clock, decided_s)
            await call(it.cloud_id, decided_s + SEND_WITHIN_S)
        except CloudUnavailable as error:
            # Surely nothing happened, so the wait need not begin anew.
            await self._remember(replace(asked, asked_at=it.asked_at, tries=it.tries, error=error.message))
            raise
        except CloudError as error:
            log.warning("orphan.order_not_confirmed", cloud_id=it.cloud_id, order=it.order, code=error.code)
            return await self._remember(replace(asked, error=error.message))
        log.info("orphan.asked", cloud_id=it.cloud_id, order=it.order, by=it.ordered_by, tries=asked.tries)
        return asked

    async def _remember(self, it: Orphan) -> Orphan:
        try:
            await self.orphans.save([LedgerWrite(it)])
        except StaleWrite:
            return it
        return replace(it, version=it.version + 1)
