"""Adopt: make an orphan an instance of ours at once, because somebody says so. The cloud keeps its name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from gpuherd.clock import Clock, Ids
from gpuherd.domain import events
from gpuherd.domain.adoption import Terms, can_take_back, check_adoptable, new_instance, with_machine
from gpuherd.domain.caller import Caller
from gpuherd.domain.copying import replace
from gpuherd.domain.errors import CloudError, Conflict, MachineGone, NotFound, StaleWrite
from gpuherd.domain.instance import ID_PREFIX, Instance, Rental, Status
from gpuherd.domain.machine import Machine
from gpuherd.domain.orphan import Ending, Orphan, Records, is_given_up
from gpuherd.domain.tag import owner_tag
from gpuherd.ports.cloud import Cloud
from gpuherd.ports.job_book import JobBook
from gpuherd.ports.orphans import Orphans
from gpuherd.ports.store import Instances
from gpuherd.usecases.activity import Activities
from gpuherd.usecases.catalogue import Catalogue
from gpuherd.usecases.chronicle import Chronicle, News
from gpuherd.usecases.find_orphan import FindOrphan, Found
from gpuherd.usecases.order_orphan import OPERATOR, TRIES
from gpuherd.usecases.price_list import price_list


@dataclass(frozen=True)
class AdoptOrphan:
    """The use case, for any orphan, foreign ones too."""

    orphans: Orphans
    instances: Instances
    jobs: JobBook
    find: FindOrphan
    cloud: Cloud
    catalogue: Catalogue
    chronicle: Chronicle
    activities: Activities
    clock: Clock
    ids: Ids
    max_wait: timedelta
    installation: str

    async def __call__(self, cloud_id: str, *, caller: Caller = OPERATOR) -> tuple[Instance, bool]:
        """Return the instance, and whether it was adopted just now; to adopt twice is to adopt once."""
        for _ in range(TRIES):
            if (known := await self._adopted(cloud_id)) is not None:
                return known, False
            found = await self.find(cloud_id)
            try:
                adopted = await self._adopt(found, caller)
            except StaleWrite:
                # A turn or another caller was faster; what it did decides.
                continue
            await self.jobs.ring([self.activities.turn(adopted)])
            return adopted, True
        raise StaleWrite(f"machine {cloud_id} is changing too fast; try again")

    async def _adopted(self, cloud_id: str) -> Instance | None:
        """Return the instance that this machine has become by an earlier adoption."""
        line = (await self.orphans.line(cloud_id)).orphan
        if line is None or line.ending is not Ending.ADOPTED or line.adopted_as is None:
            return None
        try:
            instance = await self.instances.get(line.adopted_as)
        except NotFound:
            return None
        return instance if instance.cloud_id == cloud_id and not is_given_up(instance) else None

    async def _adopt(self, found: Found, caller: Caller) -> Instance:
        machine = await self._details(found.orphan.machine)
        orphan = replace(found.orphan, machine=machine)
        check_adoptable(orphan)
        terms = Terms(await self._rental(orphan, found.records), self.clock.now(), self.max_wait)
        before = await self._own(machine, found.records)
        if before is None:
            instance = new_instance(self._free_id(machine, found.records), machine, terms)
        else:
            instance = with_machine(before, machine, terms)
        if before is None:
            instance = replace(instance, owner=caller.key_id)
        change = self.chronicle.change(instance, *_news(orphan, before, instance), actor=caller.key_id)
        deed = caller.does("orphan.adopt", orphan.cloud_id, terms.now, orphan.verdict.value, instance.id)
        change = replace(change, deed=deed)
        ended = replace(
            orphan,
            gone_at=terms.now,
            ending=Ending.ADOPTED,
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

    async def _own(self, machine: Machine, records: Records) -> Instance | None:
        """Return the instance that the tag names, if it is ours and may have this machine."""
        named = records.named
        if named is None or not self._is_ours(machine) or not can_take_back(named, machine.cloud_id):
            return None
        if any(it.is_open for it in await self.instances.attempts(named.id)):
            raise Conflict(
                f"a create call of instance {named.id} has no outcome yet; wait for it",
                code="CREATE_UNRESOLVED",
            )
        return named

    def _free_id(self, machine: Machine, records: Records) -> str:
        owner = owner_tag(machine)
        if owner is not None and self._is_ours(machine) and records.named is None:
            return ID_PREFIX + owner.instance_key
        return self.ids.new(ID_PREFIX)

    def _is_ours(self, machine: Machine) -> bool:
        owner = owner_tag(machine)
        return owner is not None and owner.installation == self.installation

    async def _rental(self, orphan: Orphan, records: Records) -> Rental | None:
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
        )


def _news(orphan: Orphan, before: Instance | None, after: Instance) -> list[News]:
    details = {"cloudInstanceId": orphan.cloud_id, "verdict": orphan.verdict.value}
    was = before.status.value if before else ""
    news = [News(events.ADOPTED, after.reason, details, was, after.status.value)]
    if after.status is Status.RUNNING:
        news.append(News(events.STATUS_EVENTS[Status.RUNNING], after.reason))
    if after.usable:
        news.append(News(events.READY, "usable"))
    return news
