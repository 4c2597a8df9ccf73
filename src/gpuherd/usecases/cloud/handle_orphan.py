"""What a person does with an orphan: find, stop, delete, adopt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from gpuherd.domain.api_key import Caller, Scope
from gpuherd.domain.cloud.adoption import (
    AdoptionTerms,
    can_rebind,
    check_adoptable,
    new_instance,
    with_machine,
)
from gpuherd.domain.cloud.machine import Machine, Phase
from gpuherd.domain.cloud.observation import SettlingPolicy
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
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.ports.cloud_port import Cloud
from gpuherd.ports.instance_port import Instances
from gpuherd.ports.job_port import Jobs
from gpuherd.ports.observation_port import LedgerEntry, LedgerWrite, Orphans
from gpuherd.ports.replica_port import Flags
from gpuherd.usecases.cloud.collect_orphans import COLLECTOR_BRAKED, ExecuteOrphanOrder
from gpuherd.usecases.cloud.guard_creates import INSTALLATION_SHARED
from gpuherd.usecases.cloud.read_catalogue import CatalogueCache, price_list
from gpuherd.usecases.events.record_event import EventRecorder, NewEvent
from gpuherd.usecases.service.make_jobs import JobFactory


@dataclass(frozen=True)
class FoundOrphan:
    """An orphan, in the ledger or not yet, and what we hold about its machine."""

    orphan: Orphan
    records: MachineRecords


@dataclass(frozen=True)
class FindOrphan:
    """Judges anew at each question, from records that are read after the machine was seen."""

    orphans: Orphans
    cloud: Cloud
    clock: Clock
    installation: str
    settling: SettlingPolicy

    async def __call__(self, cloud_id: str) -> FoundOrphan:
        """Return the orphan; `NotFound` (ORPHAN_NOT_FOUND), or `Conflict` if it is none."""
        entry = await self.orphans.entry(cloud_id)
        machine = await self._machine(cloud_id, entry)
        records = await self.orphans.records(machine)
        now = self.clock.now()
        seen_at = now if entry.sighting is None else entry.sighting.first_seen_at
        finding = judge_machine(machine, records, self.installation, seen_at, self.settling)
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

    async def _machine(self, cloud_id: str, entry: LedgerEntry) -> Machine:
        seen = entry.sighting
        if seen is not None and seen.missing_since is None and seen.machine.phase is not Phase.ABSENT:
            return seen.machine
        try:
            machine = await self.cloud.get_machine(cloud_id)
        except MachineGone:
            raise _not_found(cloud_id) from None
        if machine.phase is Phase.ABSENT:
            raise _not_found(cloud_id)
        return machine


def _not_found(cloud_id: str) -> NotFound:
    return NotFound(f"there is no machine {cloud_id!r} on the account", code="ORPHAN_NOT_FOUND")


@dataclass(frozen=True)
class ListOrphans:
    """All of them, or those of one verdict."""

    orphans: Orphans
    flags: Flags

    async def __call__(self, verdict: OrphanVerdict | None = None) -> Sequence[Orphan]:
        return [it for it in await self.orphans.open() if verdict in (None, it.verdict)]

    async def braked(self) -> str | None:
        """Return why nothing is removed by itself just now, None if the collector runs."""
        return await self.flags.first(INSTALLATION_SHARED, COLLECTOR_BRAKED)


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
    new_events = [NewEvent(instance_event.ADOPTED, after.reason, details, was, after.status.value)]
    if after.status is Status.RUNNING:
        new_events.append(NewEvent(instance_event.STATUS_EVENTS[Status.RUNNING], after.reason))
    if after.usable:
        new_events.append(NewEvent(instance_event.READY, "usable"))
    return new_events
