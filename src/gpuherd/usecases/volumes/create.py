"""Create a network volume: it costs money from its first minute, so it is made once or not at all.

Its name is the witness, since no other volume has it.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from gpuherd.clock import Clock, Ids
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.cloud.volume import VolumeIntent, VolumeOrder
from gpuherd.domain.costs.bill import StorageVolume
from gpuherd.domain.errors import Conflict
from gpuherd.ports.cloud import NetworkVolumes
from gpuherd.ports.flags import Flags
from gpuherd.usecases.cloud.catalogue import CatalogueCache, find_region
from gpuherd.usecases.cloud.create_once import CreateOnce, Intent, OnceWords
from gpuherd.usecases.costs.meter_volumes import MeterVolumes
from gpuherd.usecases.volumes.list_all import ListVolumes

log = structlog.get_logger()

AUDIT_ACTION = "volume.create"
INTENT = "volume_intent:"
WORDS = OnceWords(
    "volume", "name", in_progress_code="VOLUME_CREATE_IN_PROGRESS", unknown_code="VOLUME_OUTCOME_UNKNOWN"
)


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
    create_once: CreateOnce
    meter: MeterVolumes

    async def __call__(self, wanted: VolumeRequest, caller: Caller) -> StorageVolume:
        """Return the volume; `Conflict` if its name is taken, `CloudUnavailable` while it is not known."""
        region = find_region(wanted.region, await self.catalogue.regions())
        order = VolumeOrder(wanted.name, region.cluster_id, wanted.size_gb)
        flag = INTENT + wanted.name
        stored = await self.flags.get(flag)
        before = None if stored is None else VolumeIntent.of_text(stored)
        # guard: a lost volume is looked for by its name
        if (there := await self._named(wanted.name)) is not None:
            if before is None or not before.is_for(order):
                raise _name_taken(there)
            # An earlier try has made it after all.
            await self.create_once.forget(flag, stored)
            return there
        if before is not None:
            # guard: a volume without an answer is not sent again before it could have appeared
            self.create_once.check_settled(before.sent_at)
        await self.meter.look_now()
        now, said = self.clock.now(), f"{wanted.size_gb} GB in {region.code}"
        volume_id = await self.create_once(
            Intent(
                flag,
                stored,
                VolumeIntent(self.ids.new("vol_"), order.cluster_id, order.size_gb, now).to_text(),
                caller.audit_record(AUDIT_ACTION, wanted.name, now, after=said),
            ),
            lambda: self._check_absent(wanted.name),
            lambda send_by_s: self.volumes.create_volume(order, send_by_s),
            lambda: self._id_of(wanted.name),
        )
        self.list_volumes.cache.clear()
        await self.meter.look_now(there=volume_id)
        log.info("volume.created", volume_id=volume_id, by=caller.key_id)
        return StorageVolume(volume_id, wanted.name, region.code, wanted.size_gb)

    async def _named(self, name: str) -> StorageVolume | None:
        return next((it for it in await self.list_volumes.fresh() if it.name == name), None)

    async def _check_absent(self, name: str) -> None:
        if (there := await self._named(name)) is not None:
            raise _name_taken(there)

    async def _id_of(self, name: str) -> str | None:
        there = await self._named(name)
        return None if there is None else there.volume_id


def _name_taken(there: StorageVolume) -> Conflict:
    return Conflict(
        f"there is a volume {there.name!r} already; volumes are told apart by name, so choose another one",
        code="VOLUME_EXISTS",
        details={"id": there.volume_id},
    )
