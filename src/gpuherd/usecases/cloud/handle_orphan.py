"""What a person does with an orphan: find, stop, delete, adopt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuherd.domain.api_key import Caller, Scope
from gpuherd.domain.cloud.adoption import (
    AdoptionTerms,
    can_rebind,
    check_adoptable,
    new_instance,
    with_machine,
)
from gpuherd.domain.cloud.machine import Machine, Phase
from gpuherd.domain.cloud.offer import known_mode
from gpuherd.domain.cloud.orphan import (
    MachineRecords,
    Orphan,
    OrphanEnding,
    OrphanOrder,
    OrphanVerdict,
    judge_machine,
    machine_claimed_error,
    with_order,
)
from gpuherd.domain.errors import (
    CloudError,
    CloudUnavailable,
    Conflict,
    MachineGone,
    NotFound,
    StaleWrite,
)
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance import (
    ID_PREFIX,
    Instance,
    Rental,
    Status,
)
from gpuherd.domain.instance.instance_state import has_given_up_machine
from gpuherd.domain.instance.rent_attempt import owner_tag
from gpuherd.ports.observation_port import LedgerEntry, LedgerWrite
from gpuherd.usecases.cloud.collect_orphans import COLLECTOR_BRAKED, execute_order
from gpuherd.usecases.cloud.guard_creates import INSTALLATION_SHARED
from gpuherd.usecases.cloud.read_catalogue import price_list
from gpuherd.usecases.events.record_event import NewEvent
from gpuherd.usecases.services import Services

# Each try loses only against another writer's success, so a handful is plenty.
WRITE_TRIES_MAX = 20


# The caller of a program that gives orders without a key.
OPERATOR = Caller("operator", Scope.ADMIN)


@dataclass(frozen=True)
class FoundOrphan:
    """An orphan, in the ledger or not yet, and what we hold about its machine."""

    orphan: Orphan
    records: MachineRecords


async def list_orphans(services: Services, verdict: OrphanVerdict | None = None) -> Sequence[Orphan]:
    """Return all open orphans, or those of one verdict."""
    found = await services.stores.orphans.open()
    return [orphan for orphan in found if verdict in (None, orphan.verdict)]


async def collector_brake(services: Services) -> str | None:
    """Return why gpuherd removes nothing by itself, None while the collector runs."""
    return await services.stores.flags.first(INSTALLATION_SHARED, COLLECTOR_BRAKED)


async def find_orphan(services: Services, cloud_id: str) -> FoundOrphan:
    """Return the orphan, judged anew by records that are read after the machine was seen.

    `NotFound` (ORPHAN_NOT_FOUND) if there is no such machine, `Conflict` if it is no orphan.
    """
    entry = await services.stores.orphans.entry(cloud_id)
    machine = await _machine(services, cloud_id, entry)
    records = await services.stores.orphans.records(machine)
    now = services.clock.now()
    seen_at = now if entry.sighting is None else entry.sighting.first_seen_at
    finding = judge_machine(machine, records, services.stores.installation, seen_at, services.rules.settling)
    if finding is None and records.bound is not None:
        raise machine_claimed_error(cloud_id, records.bound.id)
    if finding is None:
        raise Conflict(
            f"a create call whose outcome is not known yet may have made machine {cloud_id}; wait for it",
            code="CREATE_UNRESOLVED",
        )
    known = entry.orphan
    if known is not None and known.is_open:
        return FoundOrphan(replace(known, machine=machine, finding=finding), records)
    new = Orphan(machine, finding, now, now, version=known.version if known else 0)
    return FoundOrphan(new, records)


async def _machine(services: Services, cloud_id: str, entry: LedgerEntry) -> Machine:
    seen = entry.sighting
    if seen is not None and seen.missing_since is None and seen.machine.phase is not Phase.ABSENT:
        return seen.machine
    try:
        machine = await (services.browse_cloud or services.cloud).get_machine(cloud_id)
    except MachineGone:
        raise _not_found(cloud_id) from None
    if machine.phase is Phase.ABSENT:
        raise _not_found(cloud_id)
    return machine


def _not_found(cloud_id: str) -> NotFound:
    return NotFound(f"there is no machine {cloud_id!r} on the account", code="ORPHAN_NOT_FOUND")


async def stop_orphan(services: Services, cloud_id: str, caller: Caller = OPERATOR) -> Orphan:
    """Stop any orphan, a foreign one too; its disk stays."""
    return await _order(services, cloud_id, OrphanOrder.STOP, caller)


async def delete_orphan(services: Services, cloud_id: str, caller: Caller = OPERATOR) -> Orphan:
    """Remove any orphan, a foreign one too, with all its data."""
    return await _order(services, cloud_id, OrphanOrder.DELETE, caller)


async def _order(services: Services, cloud_id: str, order: OrphanOrder, caller: Caller) -> Orphan:
    ordered = await _save_order(services, cloud_id, order, caller)
    try:
        return await execute_order(services, services.stores.orphans, ordered)
    except CloudUnavailable:
        # The order stands; the collector sends it as soon as the cloud can be reached.
        return ordered


async def _save_order(services: Services, cloud_id: str, order: OrphanOrder, caller: Caller) -> Orphan:
    for _ in range(WRITE_TRIES_MAX):
        known = (await find_orphan(services, cloud_id)).orphan
        now = services.clock.now()
        ordered = with_order(known, order, caller.key_id, now)
        if ordered is known:
            return known
        audit_record = caller.audit_record(f"orphan.{order}", cloud_id, now, known.machine.phase.value)
        try:
            await services.stores.orphans.save([LedgerWrite(ordered, audit_record=audit_record)])
        except StaleWrite:
            continue
        return replace(ordered, version=ordered.version + 1)
    raise StaleWrite(f"machine {cloud_id} is changing too fast; try again")


async def adopt_orphan(services: Services, cloud_id: str, caller: Caller = OPERATOR) -> tuple[Instance, bool]:
    """Make any orphan an instance, a foreign one too. Return the instance, and whether it is new.

    A second adoption returns the instance of the first.
    """
    for _ in range(WRITE_TRIES_MAX):
        if (known := await _adopted(services, cloud_id)) is not None:
            return known, False
        found = await find_orphan(services, cloud_id)
        try:
            adopted = await _adopt(services, found, caller)
        except StaleWrite:
            # A pass or another caller was faster; what it did decides.
            continue
        await services.stores.jobs.wake_or_enqueue([services.job_factory.reconcile_job(adopted)])
        return adopted, True
    raise StaleWrite(f"machine {cloud_id} is changing too fast; try again")


async def _adopted(services: Services, cloud_id: str) -> Instance | None:
    """Return the instance that this machine has become by an earlier adoption."""
    entry = (await services.stores.orphans.entry(cloud_id)).orphan
    if entry is None or entry.ending is not OrphanEnding.ADOPTED or entry.adopted_as is None:
        return None
    try:
        instance = await services.stores.instances.get(entry.adopted_as)
    except NotFound:
        return None
    return instance if instance.cloud_id == cloud_id and not has_given_up_machine(instance) else None


async def _adopt(services: Services, found: FoundOrphan, caller: Caller) -> Instance:
    machine = await _details(services, found.orphan.machine)
    orphan = replace(found.orphan, machine=machine)
    check_adoptable(orphan)
    rental = await _rental(services, orphan, found.records)
    terms = AdoptionTerms(
        rental, services.clock.now(), services.rules.instance_max_wait, services.catalogue.disk
    )
    before = await _tagged_instance(services, machine, found.records)
    if before is None:
        instance = new_instance(_instance_id(services, machine, found.records), machine, terms)
    else:
        instance = with_machine(before, machine, terms)
    instance = replace(instance, correlation_id=caller.correlation_id)
    if before is None:
        instance = replace(instance, owner=caller.key_id)
    change = services.event_recorder.change(instance, *_news(orphan, before, instance), actor=caller.key_id)
    audit_record = caller.audit_record(
        "orphan.adopt", orphan.cloud_id, terms.now, orphan.verdict.value, instance.id
    )
    change = replace(change, audit_record=audit_record)
    ended = replace(
        orphan,
        gone_at=terms.now,
        ending=OrphanEnding.ADOPTED,
        adopted_as=instance.id,
        order=None,
        ordered_at=terms.now,
        ordered_by=caller.key_id,
    )
    return await services.stores.orphans.adopt(ended, change, is_new=before is None)


async def _details(services: Services, machine: Machine) -> Machine:
    """Return the machine with its connection details, which lists do not show, if they can be had."""
    try:
        return await services.cloud.get_machine(machine.cloud_id)
    except MachineGone:
        raise _not_found(machine.cloud_id) from None
    except CloudError:
        return machine


async def _tagged_instance(services: Services, machine: Machine, records: MachineRecords) -> Instance | None:
    """Return the instance that the tag names, if it is ours and may have this machine."""
    named = records.named
    if named is None or not _is_ours(services, machine) or not can_rebind(named, machine.cloud_id):
        return None
    if any(it.is_open for it in await services.stores.instances.attempts(named.id)):
        raise Conflict(
            f"a create call of instance {named.id} has no outcome yet; wait for it",
            code="CREATE_UNRESOLVED",
        )
    return named


def _instance_id(services: Services, machine: Machine, records: MachineRecords) -> str:
    owner = owner_tag(machine)
    if owner is not None and _is_ours(services, machine) and records.named is None:
        return ID_PREFIX + owner.instance_key
    return services.ids.new(ID_PREFIX)


def _is_ours(services: Services, machine: Machine) -> bool:
    owner = owner_tag(machine)
    return owner is not None and owner.installation == services.stores.installation


async def _rental(services: Services, orphan: Orphan, records: MachineRecords) -> Rental | None:
    """Return what is rented; None if the price is not known: a wrong price is worse than none."""
    machine, attempt = orphan.machine, records.attempt
    price = (await price_list(services.catalogue)).gpu_hourly_usd(machine)
    if attempt is not None:
        price = attempt.gpu_hourly_usd
    if price is None:
        return None
    return Rental(
        product_id=machine.product_id,
        product_name=machine.product_name,
        region=machine.region,
        cluster_id=machine.cluster_id,
        gpu_hourly_usd=price,
        image_url=machine.image_url,
        billing_mode=known_mode(machine.billing_mode),
    )


def _news(orphan: Orphan, before: Instance | None, after: Instance) -> list[NewEvent]:
    details = {"cloudInstanceId": orphan.cloud_id, "verdict": orphan.verdict.value}
    was = before.status.value if before else ""
    new_events = [NewEvent(instance_event.ADOPTED, after.reason, details, was, after.status.value)]
    if after.status is Status.RUNNING:
        new_events.append(NewEvent(instance_event.STATUS_EVENTS[Status.RUNNING], after.reason))
    if after.usable:
        new_events.append(NewEvent(instance_event.READY, "usable"))
    return new_events
