"""Network volumes: create each once, delete, list, and rent where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from gpuherd.contract.catalogue_models import VolumeRemoved
from gpuherd.domain.api_key import Caller
from gpuherd.domain.cloud.network_volume import VolumeIntent, VolumeOrder
from gpuherd.domain.cloud.offer import Region
from gpuherd.domain.errors import (
    CloudUnavailable,
    Conflict,
    FieldProblem,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
)
from gpuherd.domain.instance.launch_spec import VolumeMount
from gpuherd.domain.money.bill import StorageVolume
from gpuherd.ports.access_port import AuditLog
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.ports.cloud_port import NetworkVolumes
from gpuherd.ports.costs_port import ProviderBilling
from gpuherd.ports.replica_port import Flags
from gpuherd.resilience.ttl_cache import Cache
from gpuherd.usecases.cloud.create_once import CreateOnce, Intent, OnceWords
from gpuherd.usecases.cloud.read_catalogue import CatalogueCache, find_region, within_budget
from gpuherd.usecases.money.meter_costs import MeterNow
from gpuherd.usecases.money.report_costs import ALL

log = structlog.get_logger()
AUDIT_ACTION = "volume.create"
INTENT = "volume_intent:"


VOLUME_WORDS = OnceWords(
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
    meter_volumes: MeterNow

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
        await self.meter_volumes()
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
        await self.meter_volumes(there=volume_id)
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


AUDIT_ACTION_delete = "volume.delete"


@dataclass(frozen=True)
class DeleteVolume:
    """The use case. Once is as good as twice, so a lost answer is only looked after."""

    volumes: NetworkVolumes
    list_volumes: ListVolumes
    audit: AuditLog
    clock: Clock
    meter_volumes: MeterNow

    async def __call__(self, volume_id: str, caller: Caller) -> VolumeRemoved:
        """Remove it; `NotFound` if there is none, `Conflict` while a machine has it."""
        known = next((it for it in await self.list_volumes.fresh() if it.volume_id == volume_id), None)
        if known is None:
            raise NotFound(f"there is no volume {volume_id!r}", code="VOLUME_NOT_FOUND")
        before = f"{known.name}, {known.size_gb} GB in {known.region}"
        # Before the call: what is removed without a trace cannot be explained.
        await self.audit.append(caller.audit_record(AUDIT_ACTION_delete, volume_id, self.clock.now(), before))
        await self.meter_volumes()
        try:
            await self.volumes.delete_volume(volume_id)
        except NotFound:
            pass
        except OutcomeUnknown:
            if any(it.volume_id == volume_id for it in await self.list_volumes.fresh()):
                raise
        self.list_volumes.cache.clear()
        await self.meter_volumes(gone=volume_id)
        log.info("volume.removed", volume_id=volume_id, by=caller.key_id)
        return VolumeRemoved(id=volume_id, removed=True)


@dataclass(frozen=True)
class ListVolumes:
    """The use case; the list is the one that leftovers are read from."""

    billing: ProviderBilling
    cache: Cache[str, tuple[StorageVolume, ...]]

    async def __call__(self) -> tuple[StorageVolume, ...]:
        """Return them by name; at most some seconds old."""
        listed = await self.cache.get_or_load(ALL, self.billing.list_volumes)
        return tuple(sorted(listed, key=lambda it: (it.name, it.volume_id)))

    async def fresh(self) -> tuple[StorageVolume, ...]:
        """Return them as they are now."""
        self.cache.clear()
        return await self.billing.list_volumes()


# Where it is not known, nothing can be rented: somewhere else they would not be there.
LOOKUP_BUDGET_S = 5.0


@dataclass(frozen=True)
class PinRegion:
    """Asks which volumes there are, and refuses what cannot be mounted together."""

    list_volumes: ListVolumes

    async def __call__(
        self, mounts: Sequence[VolumeMount], asked: Sequence[str], known: Sequence[Region] | None
    ) -> str:
        """Return the code of the region of these volumes; `asked` are the user's own words for regions."""
        volumes = await self._volumes([it.volume_id for it in mounts])
        codes = sorted({it.region for it in volumes})
        if len(codes) > 1:
            raise _invalid(f"they are in different regions ({', '.join(codes)}), so no machine can have them")
        (code,) = codes
        if asked and code not in asked:
            if known is None:
                raise CloudUnavailable(
                    "whether the volumes are where it was asked for is not known; try again"
                )
            if not any(it.code == code and any(map(it.is_called, asked)) for it in known):
                raise _invalid(f"they are in {code}, which is not among the regions that were asked for")
        return code

    async def _volumes(self, wanted: Sequence[str]) -> list[StorageVolume]:
        listed = await within_budget(LOOKUP_BUDGET_S, self.list_volumes())
        found = {it.volume_id: it for it in listed or ()}
        if listed is not None and not found.keys() >= set(wanted):
            # It may be younger than the list that was kept.
            listed = await within_budget(LOOKUP_BUDGET_S, self.list_volumes.fresh())
            found = {it.volume_id: it for it in listed or ()}
        if listed is None:
            raise CloudUnavailable("where the volumes are cannot be asked now; try again")
        if missing := [it for it in wanted if it not in found]:
            raise _invalid(f"there is no volume {', '.join(missing)}")
        return [found[it] for it in wanted]


def _invalid(words: str) -> InvalidRequest:
    return InvalidRequest([FieldProblem("volumes", "INVALID_VOLUMES", f"volumes: {words}")])
