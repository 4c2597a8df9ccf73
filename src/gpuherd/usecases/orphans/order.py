"""Order: a person wants an orphan stopped or removed. Written down first, then done at once if it can be."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuherd.clock import Clock
from gpuherd.domain.access.api_key import Scope
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.errors import CloudUnavailable, StaleWrite
from gpuherd.domain.orphans.orphan import Orphan, OrphanOrder, with_order
from gpuherd.ports.orphans import LedgerWrite, Orphans
from gpuherd.usecases.orphans.execute_order import ExecuteOrphanOrder
from gpuherd.usecases.orphans.find import FindOrphan

# Each try loses only against somebody else's success, so a handful is plenty.
WRITE_TRIES_MAX = 20
# Somebody who gives orders without a key: a program that holds the use case itself.
OPERATOR = Caller("operator", Scope.ADMIN)


@dataclass(frozen=True)
class OrderOrphan:
    """The use case, for any orphan, foreign ones too: nobody orders this by accident."""

    orphans: Orphans
    find: FindOrphan
    execute_order: ExecuteOrphanOrder
    clock: Clock

    async def stop(self, cloud_id: str, *, caller: Caller = OPERATOR) -> Orphan:
        """Stop it; its disk stays."""
        return await self._order(cloud_id, OrphanOrder.STOP, caller)

    async def delete(self, cloud_id: str, *, caller: Caller = OPERATOR) -> Orphan:
        """Remove it with all its data."""
        return await self._order(cloud_id, OrphanOrder.DELETE, caller)

    async def _order(self, cloud_id: str, order: OrphanOrder, caller: Caller) -> Orphan:
        wanted = await self._written(cloud_id, order, caller)
        try:
            return await self.execute_order(wanted)
        except CloudUnavailable:
            # The order stands; the collector asks as soon as the cloud can be reached.
            return wanted

    async def _written(self, cloud_id: str, order: OrphanOrder, caller: Caller) -> Orphan:
        for _ in range(WRITE_TRIES_MAX):
            known = (await self.find(cloud_id)).orphan
            now = self.clock.now()
            wanted = with_order(known, order, caller.key_id, now)
            if wanted is known:
                return known
            audit_record = caller.audit_record(f"orphan.{order}", cloud_id, now, known.machine.phase.value)
            try:
                await self.orphans.save([LedgerWrite(wanted, audit_record=audit_record)])
            except StaleWrite:
                continue
            return replace(wanted, version=wanted.version + 1)
        raise StaleWrite(f"machine {cloud_id} is changing too fast; try again")
