"""Network volumes: create each once, delete, list, and pin a rental to their region.

The cloud knows no tag for a volume, so gpuherd saves an intent before the call. While the intent is there,
it bars every other create of this name. After saving the intent, gpuherd lists once more: another process
may have made the volume and removed its own intent in the meantime. If the call gets no answer, a listed
volume of this name proves that it was made. Until one is listed the outcome stays unknown, and gpuherd does
not send the create again before the volume could no longer appear.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from gpuherd.contract.catalogue_models import VolumeRemoved
from gpuherd.domain.api_key import Caller
from gpuherd.domain.cloud.network_volume import VolumeIntent, VolumeOrder
from gpuherd.domain.cloud.offer import Region
from gpuherd.domain.errors import (
    CloudError,
    CloudUnavailable,
    Conflict,
    FieldProblem,
    GpuherdError,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
)
from gpuherd.domain.instance.launch_spec import VolumeMount
from gpuherd.domain.money.bill import StorageVolume
from gpuherd.usecases.cloud.read_catalogue import find_region, within_budget
from gpuherd.usecases.money.meter_costs import meter_volumes_now
from gpuherd.usecases.money.report_costs import ALL
from gpuherd.usecases.services import Services

log = structlog.get_logger()
CREATED, DELETED = "volume.create", "volume.delete"
INTENT = "volume_intent:"
# A create goes out within this time after its intent was saved: later, another process may have decided.
SEND_WITHIN_S = 10.0
# Nothing is rented while the region of its volumes is unknown: elsewhere the volumes would be missing.
LOOKUP_BUDGET_S = 5.0


@dataclass(frozen=True)
class VolumeRequest:
    """What the user asks for; the region still in the user's words."""

    name: str
    region: str
    size_gb: int


async def list_volumes(services: Services) -> tuple[StorageVolume, ...]:
    """Return the volumes by name, at most some seconds old."""
    listed = await services.money_caches.volumes.get_or_load(ALL, services.billing.list_volumes)
    return tuple(sorted(listed, key=lambda volume: (volume.name, volume.volume_id)))


async def create_volume(services: Services, wanted: VolumeRequest, caller: Caller) -> StorageVolume:
    """Return the volume; `Conflict` if its name is taken, `CloudUnavailable` while its outcome is unknown."""
    flags = services.stores.flags
    region = find_region(wanted.region, await services.browsed_catalogue.regions())
    order = VolumeOrder(wanted.name, region.cluster_id, wanted.size_gb)
    flag = INTENT + wanted.name
    stored = await flags.get(flag)
    earlier = None if stored is None else VolumeIntent.of_text(stored)
    # guard: a lost volume is looked for by its name
    if (there := await _named(services, wanted.name)) is not None:
        if earlier is None or not earlier.is_for(order):
            raise _name_taken(there)
        # An earlier try has made it after all.
        await flags.swap(flag, stored, None)
        return there
    if earlier is not None:
        # guard: a volume without an answer is not sent again before it could have appeared
        _check_settled(services, earlier.sent_at)
    await meter_volumes_now(services)
    now = services.clock.now()
    intent = VolumeIntent(services.ids.new("vol_"), order.cluster_id, order.size_gb, now).to_text()
    record = caller.audit_record(CREATED, wanted.name, now, after=f"{wanted.size_gb} GB in {region.code}")
    # guard: the intent of a volume is durable before the call
    if not await flags.swap(flag, stored, intent, record):
        raise Conflict("another create of this volume is under way", code="VOLUME_CREATE_IN_PROGRESS")
    volume_id = await _send(services, order, flag, intent)
    await flags.swap(flag, intent, None)
    services.money_caches.volumes.clear()
    await meter_volumes_now(services, there=volume_id)
    log.info("volume.created", volume_id=volume_id, by=caller.key_id)
    return StorageVolume(volume_id, wanted.name, region.code, wanted.size_gb)


async def _send(services: Services, order: VolumeOrder, flag: str, intent: str) -> str:
    """Send the create and return the volume's id. Forget the intent if the volume was surely not made."""
    send_by_s = services.clock.boottime() + SEND_WITHIN_S
    try:
        # guard: a volume is looked for once more when no other may begin
        await _check_absent(services, order.name)
        return await services.volumes.create_volume(order, send_by_s)
    except OutcomeUnknown as unknown:
        try:
            made = await _named(services, order.name)
        except CloudError:
            made = None
        if made is None:
            # guard: an answer that was lost is no proof that a volume was not made
            raise _not_known(services.rules.settling.settle_without_witness.total_seconds()) from unknown
        return made.volume_id
    except GpuherdError:
        await services.stores.flags.swap(flag, intent, None)
        raise


async def _check_absent(services: Services, name: str) -> None:
    if (there := await _named(services, name)) is not None:
        raise _name_taken(there)


async def _named(services: Services, name: str) -> StorageVolume | None:
    return next((volume for volume in await _list_now(services) if volume.name == name), None)


async def _list_now(services: Services) -> tuple[StorageVolume, ...]:
    services.money_caches.volumes.clear()
    return await services.billing.list_volumes()


def _name_taken(there: StorageVolume) -> Conflict:
    return Conflict(
        f"there is a volume {there.name!r} already; volumes are told apart by name, so choose another one",
        code="VOLUME_EXISTS",
        details={"id": there.volume_id},
    )


def _check_settled(services: Services, sent_at: datetime) -> None:
    """Raise while a create that was sent then may still make its volume.

    A wall clock that is set back makes the wait longer, never shorter.
    """
    left = sent_at + services.rules.settling.settle_without_witness - services.clock.now()
    if left.total_seconds() > 0:
        raise _not_known(left.total_seconds())


def _not_known(left_s: float) -> CloudUnavailable:
    return CloudUnavailable(
        "no answer came to the create of this volume, and it is not listed yet; ask again with the same "
        "name: it is looked for first, and never made twice",
        code="VOLUME_OUTCOME_UNKNOWN",
        retry_after_s=min(30.0, math.ceil(left_s)),
    )


async def delete_volume(services: Services, volume_id: str, caller: Caller) -> VolumeRemoved:
    """Remove a volume; `NotFound` if there is none, `Conflict` while a machine has it. Safe to repeat."""
    known = await _find(services, volume_id)
    if known is None:
        raise NotFound(f"there is no volume {volume_id!r}", code="VOLUME_NOT_FOUND")
    before = f"{known.name}, {known.size_gb} GB in {known.region}"
    record = caller.audit_record(DELETED, volume_id, services.clock.now(), before)
    # Before the call: what disappears without a record cannot be explained.
    await services.stores.audit.append(record)
    await meter_volumes_now(services)
    try:
        await services.volumes.delete_volume(volume_id)
    except NotFound:
        pass
    except OutcomeUnknown:
        if await _find(services, volume_id) is not None:
            raise
    services.money_caches.volumes.clear()
    await meter_volumes_now(services, gone=volume_id)
    log.info("volume.removed", volume_id=volume_id, by=caller.key_id)
    return VolumeRemoved(id=volume_id, removed=True)


async def _find(services: Services, volume_id: str) -> StorageVolume | None:
    return next((volume for volume in await _list_now(services) if volume.volume_id == volume_id), None)


async def pin_region(
    services: Services, mounts: Sequence[VolumeMount], asked: Sequence[str], known: Sequence[Region] | None
) -> str:
    """Return the code of the region of these volumes, or refuse volumes that no machine can have together.

    `asked` are the user's own words for regions, `known` the regions of the catalogue.
    """
    volumes = await _mounted(services, [mount.volume_id for mount in mounts])
    codes = sorted({volume.region for volume in volumes})
    if len(codes) > 1:
        raise _invalid(f"they are in different regions ({', '.join(codes)}), so no machine can have them")
    (code,) = codes
    if asked and code not in asked:
        if known is None:
            raise CloudUnavailable("whether the volumes are where it was asked for is not known; try again")
        if not any(region.code == code and any(map(region.is_called, asked)) for region in known):
            raise _invalid(f"they are in {code}, which is not among the regions that were asked for")
    return code


async def _mounted(services: Services, wanted: Sequence[str]) -> list[StorageVolume]:
    listed = await within_budget(LOOKUP_BUDGET_S, list_volumes(services))
    found = {volume.volume_id: volume for volume in listed or ()}
    if listed is not None and not found.keys() >= set(wanted):
        # A volume may be younger than the cached list.
        listed = await within_budget(LOOKUP_BUDGET_S, _list_now(services))
        found = {volume.volume_id: volume for volume in listed or ()}
    if listed is None:
        raise CloudUnavailable("where the volumes are cannot be asked now; try again")
    if missing := [volume_id for volume_id in wanted if volume_id not in found]:
        raise _invalid(f"there is no volume {', '.join(missing)}")
    return [found[volume_id] for volume_id in wanted]


def _invalid(words: str) -> InvalidRequest:
    return InvalidRequest([FieldProblem("volumes", "INVALID_VOLUMES", f"volumes: {words}")])
