"""Look up what belongs to an instance: whoever does not see the instance does not see that either."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.domain.caller import Caller
from gpuherd.domain.delivery import Delivery
from gpuherd.domain.errors import NotFound
from gpuherd.domain.operation import Operation
from gpuherd.jobs.job import Job
from gpuherd.ports.job_book import JobBook
from gpuherd.ports.store import Instances, Outbox


@dataclass(frozen=True)
class LookUp:
    """To a caller who may not know of a thing, it is as if it were not there, word for word."""

    instances: Instances
    jobs: JobBook
    outbox: Outbox

    async def operation(self, operation_id: str, caller: Caller) -> tuple[Operation, str]:
        """Return an operation and the id of its instance; `NotFound` if none."""
        operation, instance_id = await self.instances.operation(operation_id)
        if not await self._sees(caller, instance_id):
            raise NotFound(f"there is no operation {operation_id!r}", code="OPERATION_NOT_FOUND")
        return operation, instance_id

    async def job(self, job_id: str, caller: Caller) -> Job:
        """Return a job; `NotFound` if there is none."""
        job = await self.jobs.get(job_id)
        if not await self._sees(caller, job.instance_id):
            raise NotFound(f"there is no job {job_id!r}", code="JOB_NOT_FOUND")
        return job

    async def delivery(self, delivery_id: str, caller: Caller) -> Delivery:
        """Return a delivery; `NotFound` if there is none. Those to endpoints are for admins only."""
        delivery = await self.outbox.get(delivery_id)
        instance_id = delivery.instance_id if delivery.endpoint_id is None else None
        if not await self._sees(caller, instance_id):
            raise NotFound(f"there is no delivery {delivery_id!r}", code="DELIVERY_NOT_FOUND")
        return delivery

    async def _sees(self, caller: Caller, instance_id: str | None) -> bool:
        if caller.sees_all or instance_id is None:
            return caller.sees_all
        try:
            return caller.may_see((await self.instances.get(instance_id)).owner)
        except NotFound:
            return False
