"""Create a network volume: it costs money from its first minute, so it is made once or not at all.

The intent is durable before the call. When no answer comes, the name is looked for; where it is not found the
outcome stays unknown, and the same name is not sent again before the volume could no longer appear.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import structlog

from gpuherd.clock import Clock, Ids
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.cloud.observation import SettlingPolicy
from gpuherd.domain.cloud.volume import VolumeIntent, VolumeOrder
from gpuherd.domain.costs.bill import StorageVolume
from gpuherd.domain.errors import CloudError, CloudUnavailable, Conflict, GpuherdError, OutcomeUnknown
from gpuherd.ports.cloud import NetworkVolumes
from gpuherd.ports.flags import Flags
from gpuherd.usecases.cloud.catalogue import CatalogueCache, find_region
from gpuherd.usecases.volumes.list_all import ListVolumes

log = structlog.get_logger()

AUDIT_ACTION = "volume.create"
INTENT = "volume_intent:"
# Not later after the intent was written: by then another may have decided otherwise.
SEND_WITHIN_S = 10.0


@dataclass(frozen=True)
class VolumeRequest:
    """What is asked for; the region still in the user's words."""

    name: str
    region: str
    size_gb: int


@dataclass(frozen=True)
class CreateVolume:
    """The use case."""

    volumes: NetworkVolumes
    list_volumes: ListVolumes
    catalogue: CatalogueCache
    flags: Flags
    clock: Clock
    ids: Ids
    settling: SettlingPolicy

    async def __call__(self, wanted: VolumeRequest, caller: Caller) -> StorageVolume:
        """Return the volume; `Conflict` if its name is taken, `CloudUnavailable` while it is not known."""
        region = find_region(wanted.region, await self.catalogue.regions())
        order = VolumeOrder(wanted.name, region.cluster_id, wanted.size_gb)
        flag = INTENT + wanted.name
        stored = await self.flags.get(flag)
        before = None if stored is None else VolumeIntent.of_text(stored)
        if (there := await self._named(wanted.name)) is not None:
            if before is None or not before.is_for(order):
                raise _name_taken(there)
            # An earlier try has made it after all.
            await self.flags.swap(flag, stored, None)
            return there
        if before is not None:
            self._check_settled(before)
        intent = VolumeIntent(
            self.ids.new("vol_"), order.cluster_id, order.size_gb, self.clock.now()
        ).to_text()
        record = caller.audit_record(
            AUDIT_ACTION, wanted.name, self.clock.now(), after=f"{wanted.size_gb} GB in {region.code}"
        )
        if not await self.flags.swap(flag, stored, intent, record):
            raise Conflict("another create of this volume is under way", code="VOLUME_CREATE_IN_PROGRESS")
        volume_id = await self._send(order, flag, intent)
        await self.flags.swap(flag, intent, None)
        self.list_volumes.cache.clear()
        log.info("volume.created", volume_id=volume_id, by=caller.key_id)
        return StorageVolume(volume_id, wanted.name, region.code, wanted.size_gb)

    async def _send(self, order: VolumeOrder, flag: str, intent: str) -> str:
        try:
            return await self.volumes.create_volume(order, self.clock.boottime() + SEND_WITHIN_S)
        except OutcomeUnknown as unknown:
            try:
                there = await self._named(order.name)
            except CloudError:
                there = None
            if there is None:
                raise self._not_known(self.settling.settle_without_witness.total_seconds()) from unknown
            return there.volume_id
        except GpuherdError:
            # Surely not made.
            await self.flags.swap(flag, intent, None)
            raise

    async def _named(self, name: str) -> StorageVolume | None:
        return next((it for it in await self.list_volumes.fresh() if it.name == name), None)

    def _check_settled(self, before: VolumeIntent) -> None:
        left = before.settles_in(self.clock.now(), self.settling.settle_without_witness)
        if left.total_seconds() > 0:
            raise self._not_known(left.total_seconds())

    def _not_known(self, left_s: float) -> CloudUnavailable:
        return CloudUnavailable(
            "no answer came to the create of this volume, and it is not listed yet; ask again with the same "
            "name: it is looked for first, and never made twice",
            code="VOLUME_OUTCOME_UNKNOWN",
            retry_after_s=min(30.0, math.ceil(left_s)),
        )


def _name_taken(there: StorageVolume) -> Conflict:
    return Conflict(
        f"there is a volume {there.name!r} already; volumes are told apart by name, so choose another one",
        code="VOLUME_EXISTS",
        details={"id": there.volume_id},
    )
