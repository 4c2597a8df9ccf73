"""Delete a network volume with all its data."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from gpuherd.clock import Clock
from gpuherd.contract.catalogue import VolumeRemoved
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.errors import NotFound, OutcomeUnknown
from gpuherd.ports.access import AuditLog
from gpuherd.ports.cloud import NetworkVolumes
from gpuherd.usecases.costs.meter_volumes import MeterVolumes
from gpuherd.usecases.volumes.list_all import ListVolumes

log = structlog.get_logger()

AUDIT_ACTION = "volume.delete"


@dataclass(frozen=True)
class DeleteVolume:
    """The use case. Once is as good as twice, so a lost answer is only looked after."""

    volumes: NetworkVolumes
    list_volumes: ListVolumes
    audit: AuditLog
    clock: Clock
    meter: MeterVolumes

    async def __call__(self, volume_id: str, caller: Caller) -> VolumeRemoved:
        """Remove it; `NotFound` if there is none, `Conflict` while a machine has it."""
        known = next((it for it in await self.list_volumes.fresh() if it.volume_id == volume_id), None)
        if known is None:
            raise NotFound(f"there is no volume {volume_id!r}", code="VOLUME_NOT_FOUND")
        before = f"{known.name}, {known.size_gb} GB in {known.region}"
        # Before the call: what is removed without a trace cannot be explained.
        await self.audit.append(caller.audit_record(AUDIT_ACTION, volume_id, self.clock.now(), before))
        await self.meter.look_now()
        try:
            await self.volumes.delete_volume(volume_id)
        except NotFound:
            pass
        except OutcomeUnknown:
            if any(it.volume_id == volume_id for it in await self.list_volumes.fresh()):
                raise
        self.list_volumes.cache.clear()
        await self.meter.look_now(gone=volume_id)
        log.info("volume.removed", volume_id=volume_id, by=caller.key_id)
        return VolumeRemoved(id=volume_id, removed=True)
