"""Delete an image prewarm task, and with it what it has pulled."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from gpuherd.clock import Clock
from gpuherd.contract.catalogue import PrewarmRemoved
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.errors import NotFound, OutcomeUnknown
from gpuherd.ports.access import AuditLog
from gpuherd.ports.cloud import ImagePrewarms
from gpuherd.usecases.prewarms.list_all import ListPrewarms

log = structlog.get_logger()

AUDIT_ACTION = "prewarm.delete"


@dataclass(frozen=True)
class DeletePrewarm:
    """The use case. Once is as good as twice, so a lost answer is only looked after."""

    prewarms: ImagePrewarms
    list_prewarms: ListPrewarms
    audit: AuditLog
    clock: Clock

    async def __call__(self, prewarm_id: str, caller: Caller) -> PrewarmRemoved:
        """Remove it; `NotFound` if there is none."""
        known = next((it for it in await self.list_prewarms.fresh() if it.prewarm_id == prewarm_id), None)
        if known is None:
            raise NotFound(f"there is no prewarm task {prewarm_id!r}", code="PREWARM_NOT_FOUND")
        # Before the call: what is removed without a trace cannot be explained.
        before = f"{known.image} in {known.region}"
        await self.audit.append(caller.audit_record(AUDIT_ACTION, prewarm_id, self.clock.now(), before))
        try:
            await self.prewarms.delete_prewarm(prewarm_id)
        except NotFound:
            pass
        except OutcomeUnknown:
            if any(it.prewarm_id == prewarm_id for it in await self.list_prewarms.fresh()):
                raise
        self.list_prewarms.cache.clear()
        log.info("prewarm.removed", prewarm_id=prewarm_id, by=caller.key_id)
        return PrewarmRemoved(id=prewarm_id, removed=True)
