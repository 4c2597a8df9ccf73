"""Adopt: make an orphan an instance of ours at once, because somebody says so. The cloud keeps its name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from gpuherd.clock import Clock, Ids
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.offer import known_mode
from gpuherd.domain.cloud.tag import owner_tag
from gpuherd.domain.errors import CloudError, Conflict, MachineGone, NotFound, StaleWrite
from gpuherd.domain.instance import events
from gpuherd.domain.instance.instance import ID_PREFIX, Instance, Rental, Status
from gpuherd.domain.instance.lifecycle.conditions import has_given_up_machine
from gpuherd.domain.orphans.adoption import (
    AdoptionTerms,
    can_rebind,
    check_adoptable,
    new_instance,
    with_machine,
)
from gpuherd.domain.orphans.orphan import MachineRecords, Orphan, OrphanEnding
from gpuherd.ports.cloud import Cloud
from gpuherd.ports.instances import Instances
from gpuherd.ports.jobs import Jobs
from gpuherd.ports.orphans import Orphans
from gpuherd.usecases.cloud.catalogue import CatalogueCache, price_list
from gpuherd.usecases.events.record import EventRecorder, NewEvent
from gpuherd.usecases.jobs.kinds import JobFactory
from gpuherd.usecases.orphans.find import FindOrphan, FoundOrphan
from gpuherd.usecases.orphans.order import OPERATOR, WRITE_TRIES_MAX


@dataclass(frozen=True, kw_only=True)
class AdoptOrphan:
    """The use case, for any orphan, foreign ones too."""

    orphans: Orphans
    instances: Instances
    jobs: Jobs
    find: FindOrphan
    cloud: Cloud
    catalogue: CatalogueCache
    event_recorder: EventRecorder
    job_factory: JobFactory
    clock: Clock
    ids: Ids
    max_wait: timedelta
    installation: str

    async def __call__(self, cloud_id: str, *, caller: Caller = OPERATOR) -> tuple[Instance, bool]:
        """Return the instance, and whether it was adopted just now; to adopt twice is to adopt once."""
        for _ in range(WRITE_TRIES_MAX):
            if (known := await self._adopted(cloud_id)) is not None:
                return known, False
            found = await self.find(cloud_id)
            try:
                adopted = await self._adopt(found, caller)
            except StaleWrite:
                # A pass or another caller was faster; what it did decides.
                continue
            await self.jobs.wake_or_enqueue([self.job_factory.reconcile_job(adopted)])
            return adopted, True
        raise StaleWrite(f"machine {cloud_id} is changing too fast; try again")

    async def _adopted(self, cloud_id: str) -> Instance | None:
        """Return the instance that this machine has become by an earlier adoption."""
        entry = (await self.orphans.entry(cloud_id)).orphan
        if entry is None or entry.ending is not OrphanEnding.ADOPTED or entry.adopted_as is None:
            return None
        try:
            instance = await self.instances.get(entry.adopted_as)
        except NotFound:
            return None
        return instance if instance.cloud_id == cloud_id and not has_given_up_machine(instance) else None

    async def _adopt(self, found: FoundOrphan, caller: Caller) -> Instance:
        machine = await self._details(found.orphan.machine)
        orphan = replace(found.orphan, machine=machine)
        check_adoptable(orphan)
        rental = await self._rental(orphan, found.records)
        terms = AdoptionTerms(rental, self.clock.now(), self.max_wait, self.catalogue.disk)
        before = await self._tagged_instance(machine, found.records)
        if before is None:
            instance = new_instance(self._instance_id(machine, found.records), machine, terms)
        else:
            instance = with_machine(before, machine, terms)
        instance = replace(instance, correlation_id=caller.correlation_id)
        if before is None:
            instance = replace(instance, owner=caller.key_id)
        change = self.event_recorder.change(instance, *_news(orphan, before, instance), actor=caller.key_id)
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
        return await self.orphans.adopt(ended, change, is_new=before is None)

    async def _details(self, machine: Machine) -> Machine:
        """Return the machine with its connection details, which lists do not show, if they can be had."""
        try:
            return await self.cloud.get_machine(machine.cloud_id)
        except MachineGone:
            words = f"there is no machine {machine.cloud_id!r} on the account"
            raise NotFound(words, code="ORPHAN_NOT_FOUND") from None
        except CloudError:
            return machine

    async def _tagged_instance(self, machine: Machine, records: MachineRecords) -> Instance | None:
        """Return the instance that the tag names, if it is ours and may have this machine."""
        named = records.named
        if named is None or not self._is_ours(machine) or not can_rebind(named, machine.cloud_id):
            return None
        if any(it.is_open for it in await self.instances.attempts(named.id)):
            raise Conflict(
                f"a create call of instance {named.id} has no outcome yet; wait for it",
                code="CREATE_UNRESOLVED",
            )
        return named

    def _instance_id(self, machine: Machine, records: MachineRecords) -> str:
        owner = owner_tag(machine)
        if owner is not None and self._is_ours(machine) and records.named is None:
            return ID_PREFIX + owner.instance_key
        return self.ids.new(ID_PREFIX)

    def _is_ours(self, machine: Machine) -> bool:
        owner = owner_tag(machine)
        return owner is not None and owner.installation == self.installation

    async def _rental(self, orphan: Orphan, records: MachineRecords) -> Rental | None:
        """Return what is rented; None where nobody knows the price: a wrong one is worse than none."""
        machine, attempt = orphan.machine, records.attempt
        price = (await price_list(self.catalogue)).gpu_hourly_usd(machine)
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
    new_events = [NewEvent(events.ADOPTED, after.reason, details, was, after.status.value)]
    if after.status is Status.RUNNING:
        new_events.append(NewEvent(events.STATUS_EVENTS[Status.RUNNING], after.reason))
    if after.usable:
        new_events.append(NewEvent(events.READY, "usable"))
    return new_events
