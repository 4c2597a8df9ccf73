"""Find an instance by id or name, and what belongs to one, as far as the caller may see it."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.clock import id_pattern
from gpuherd.domain.access.caller import SYSTEM_CALLER, Caller
from gpuherd.domain.errors import Conflict, NotFound
from gpuherd.domain.instance.instance import ID_PREFIX, Instance
from gpuherd.domain.instance.operation import Operation
from gpuherd.domain.webhooks.delivery import Delivery
from gpuherd.jobs.job import Job
from gpuherd.ports.instances import Instances
from gpuherd.ports.jobs import Jobs
from gpuherd.ports.webhooks import Outbox

_ID = id_pattern(ID_PREFIX)


def is_id(word: str) -> bool:
    """Tell whether a word is meant as an id and not as a name."""
    return _ID.fullmatch(word) is not None


def unknown(word: str) -> NotFound:
    """Return what is said of an instance that is not there."""
    return NotFound(f"there is no instance {word!r}", code="INSTANCE_NOT_FOUND")


def visible(instance: Instance, caller: Caller) -> Instance:
    """Return the instance, if this caller may know of it: to all others it is not there."""
    if not caller.may_see(instance.owner):
        raise unknown(instance.id)
    return instance


@dataclass(frozen=True)
class FindInstance:
    """By id if it looks like one, else by name; a name that several share is for the user to settle.

    Only among what the caller may see.
    """

    instances: Instances

    async def __call__(self, word: str, caller: Caller = SYSTEM_CALLER) -> Instance:
        if is_id(word):
            return visible(await self.instances.get(word), caller)
        return await self.named(word, caller)

    async def named(self, name: str, caller: Caller = SYSTEM_CALLER) -> Instance:
        """Return the one instance with this name; `Conflict` with the candidates if there are several.

        Those that take over from one another are one: the newest that can be used, else the newest.
        """
        found = await self.instances.find_named(name, caller.owner)
        if not found:
            raise unknown(name)
        if len({it.lineage for it in found}) > 1:
            raise Conflict(
                f"{len(found)} instances are called {name!r}; use the id",
                code="AMBIGUOUS_NAME",
                details={"candidates": [{"id": it.id, "status": it.status.value} for it in found]},
            )
        return next((it for it in found if it.usable), found[0])


@dataclass(frozen=True)
class AuthorizedLookup:
    """To a caller who may not know of a thing, it is as if it were not there, word for word."""

    instances: Instances
    jobs: Jobs
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
        if not await self._sees_delivery(caller, delivery):
            raise NotFound(f"there is no delivery {delivery_id!r}", code="DELIVERY_NOT_FOUND")
        return delivery

    async def _sees_delivery(self, caller: Caller, delivery: Delivery) -> bool:
        if delivery.owner is not None:
            return caller.may_see(delivery.owner)
        return await self._sees(caller, delivery.instance_id if delivery.endpoint_id is None else None)

    async def _sees(self, caller: Caller, instance_id: str | None) -> bool:
        if caller.sees_all or instance_id is None:
            return caller.sees_all
        try:
            return caller.may_see((await self.instances.get(instance_id)).owner)
        except NotFound:
            return False
