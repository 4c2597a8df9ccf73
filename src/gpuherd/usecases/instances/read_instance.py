"""Find, read, list and wait for instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic_core import to_json

from gpuherd.contract.instance_models import Instance as Details
from gpuherd.contract.instance_models import InstanceRow
from gpuherd.domain.api_key import SYSTEM_CALLER, Caller
from gpuherd.domain.errors import Conflict, NotFound
from gpuherd.domain.instance.instance import ID_PREFIX, Instance
from gpuherd.domain.instance.instance_state import WaitFor, wait_result
from gpuherd.domain.instance.operation import Operation
from gpuherd.domain.job import Job
from gpuherd.domain.webhooks.webhook_delivery import Delivery
from gpuherd.ports.clock_port import Clock, id_pattern
from gpuherd.ports.instance_port import InstanceQuery
from gpuherd.resilience.ttl_cache import Cache
from gpuherd.usecases.events.change_hub import ChangeHub
from gpuherd.usecases.instances.explain_waiting import wait_until
from gpuherd.usecases.services import Services
from gpuherd.usecases.views.instance_view import describe, describe_cost, describe_wait

_ID = id_pattern(ID_PREFIX)
DETAILS_TTL_S = 30.0
# The place in line changes with other instances, so no change of this instance announces it.
WAITING_TTL_S = 20.0
STATES_TTL_S = 60.0
ENTRIES_MAX = 10_000
WAIT_MAX_S = 300
# The hub announces every change of this process. This finds the changes of other processes.
RECHECK_S = 5.0


def is_id(id_or_name: str) -> bool:
    """Return True if this has the form of an id."""
    return _ID.fullmatch(id_or_name) is not None


async def find_instance(services: Services, id_or_name: str, caller: Caller = SYSTEM_CALLER) -> Instance:
    """Return the instance with this id or name, among those that the caller may see."""
    if is_id(id_or_name):
        return _visible(await services.stores.instances.get(id_or_name), caller)
    return await find_named(services, id_or_name, caller)


async def find_named(services: Services, name: str, caller: Caller = SYSTEM_CALLER) -> Instance:
    """Return the one instance with this name. `Conflict` with the candidates if there are several.

    A lineage counts as one instance: the newest usable member, else the newest.
    """
    found = await services.stores.instances.find_named(name, caller.owner)
    if not found:
        raise _unknown(name)
    if len({instance.lineage for instance in found}) > 1:
        raise Conflict(
            f"{len(found)} instances are called {name!r}; use the id",
            code="AMBIGUOUS_NAME",
            details={"candidates": [{"id": it.id, "status": it.status.value} for it in found]},
        )
    return next((instance for instance in found if instance.usable), found[0])


def _visible(instance: Instance, caller: Caller) -> Instance:
    """Return the instance if the caller may see it. `NotFound` otherwise."""
    if not caller.may_see(instance.owner):
        raise _unknown(instance.id)
    return instance


def _unknown(id_or_name: str) -> NotFound:
    return NotFound(f"there is no instance {id_or_name!r}", code="INSTANCE_NOT_FOUND")


async def find_operation(services: Services, operation_id: str, caller: Caller) -> tuple[Operation, str]:
    """Return an operation and the id of its instance. `NotFound` also if the caller may not see it."""
    operation, instance_id = await services.stores.instances.operation(operation_id)
    if not await _sees(services, caller, instance_id):
        raise NotFound(f"there is no operation {operation_id!r}", code="OPERATION_NOT_FOUND")
    return operation, instance_id


async def find_job(services: Services, job_id: str, caller: Caller) -> Job:
    """Return a job. `NotFound` also if the caller may not see it."""
    job = await services.stores.jobs.get(job_id)
    if not await _sees(services, caller, job.instance_id):
        raise NotFound(f"there is no job {job_id!r}", code="JOB_NOT_FOUND")
    return job


async def find_delivery(services: Services, delivery_id: str, caller: Caller) -> Delivery:
    """Return a delivery. `NotFound` also if the caller may not see it: only admins see those to endpoints."""
    delivery = await services.stores.outbox.get(delivery_id)
    if delivery.owner is not None:
        sees = caller.may_see(delivery.owner)
    else:
        instance_id = delivery.instance_id if delivery.endpoint_id is None else None
        sees = await _sees(services, caller, instance_id)
    if not sees:
        raise NotFound(f"there is no delivery {delivery_id!r}", code="DELIVERY_NOT_FOUND")
    return delivery


async def _sees(services: Services, caller: Caller, instance_id: str | None) -> bool:
    if caller.sees_all or instance_id is None:
        return caller.sees_all
    try:
        return caller.may_see((await services.stores.instances.get(instance_id)).owner)
    except NotFound:
        return False


class _Details(NamedTuple):
    """Details as they are sent, and their owner."""

    owner: str
    body: bytes
    waits: bool


class InstanceCache:
    """Keeps details and states of instances until they change."""

    def __init__(self, clock: Clock, hub: ChangeHub):
        self.details: Cache[str, _Details] = Cache(
            clock,
            DETAILS_TTL_S,
            ENTRIES_MAX,
            "details",
            shorter_ttl_s=lambda details: WAITING_TTL_S if details.waits else None,
        )
        self.states: Cache[str, Instance] = Cache(clock, STATES_TTL_S, ENTRIES_MAX, "states")
        hub.add_listener(self.forget, self._forget_all)

    @property
    def caches(self) -> tuple[Cache[Any, Any], ...]:
        return (self.details, self.states)

    def forget(self, instance_ids: Sequence[str]) -> None:
        for instance_id in instance_ids:
            self.details.invalidate(instance_id)
            self.states.invalidate(instance_id)

    def _forget_all(self) -> None:
        self.details.clear()
        self.states.clear()


async def read_instance(services: Services, id_or_name: str, caller: Caller = SYSTEM_CALLER) -> bytes:
    """Return the details as JSON. `stale` in them is true while the cloud cannot be asked."""
    if not is_id(id_or_name):
        return await _encode(services, await find_named(services, id_or_name, caller))
    if services.observer.is_stale():
        return await _encode(services, _visible(await _state(services, id_or_name), caller))

    async def fresh_details() -> _Details:
        instance = await _state(services, id_or_name)
        body = await _encode(services, instance, stale=False)
        return _Details(instance.owner, body, waits=instance.waiting_for is not None)

    found = await services.instance_cache.details.get_or_load(id_or_name, fresh_details)
    if not caller.may_see(found.owner):
        raise _unknown(id_or_name)
    return found.body


async def wait_for_instance(
    services: Services, id_or_name: str, what: WaitFor, timeout_s: float, caller: Caller = SYSTEM_CALLER
) -> tuple[bytes, bool]:
    """Return the details when `what` is reached or has become impossible, and True if time ran out."""
    clock = services.clock
    end_s = clock.monotonic() + min(timeout_s, WAIT_MAX_S)
    instance_id = id_or_name if is_id(id_or_name) else (await find_named(services, id_or_name, caller)).id
    async with services.stores.hub.subscribe(instance_id) as changes:
        while True:
            instance = _visible(await _recent_state(services, instance_id), caller)
            if wait_result(instance, what) is not None:
                return await _encode(services, instance), False
            left_s = end_s - clock.monotonic()
            if left_s <= 0:
                return await _encode(services, instance), True
            await changes.wait(min(left_s, RECHECK_S))


async def _state(services: Services, instance_id: str) -> Instance:
    return await services.instance_cache.states.get_or_load(
        instance_id, lambda: services.stores.instances.get(instance_id)
    )


async def _recent_state(services: Services, instance_id: str) -> Instance:
    """Return a state of at most `RECHECK_S`. All callers that wait for one instance share one read."""
    known = services.instance_cache.states.get_stale(instance_id)
    if known is not None and known[1] >= RECHECK_S:
        services.instance_cache.forget([instance_id])
    return await _state(services, instance_id)


async def _encode(services: Services, instance: Instance, *, stale: bool | None = None) -> bytes:
    waits = None
    if instance.waiting_for is not None:
        place = await services.capacity_line.place_of(instance)
        waits = describe_wait(instance, wait_until(instance), place)
    stale = services.observer.is_stale() if stale is None else stale
    cost = describe_cost(instance.cost)
    return to_json(Details.extending(describe(instance), stale=stale, cost=cost, waits=waits))


async def list_instances(services: Services, query: InstanceQuery) -> bytes:
    """Return a page of the list as JSON."""
    page = await services.stores.instances.page(query)
    rows = [
        to_json(InstanceRow.extending(describe(instance), cost=describe_cost(instance.cost)))
        for instance in page.instances
    ]
    rest = to_json({"total": page.total, "nextCursor": page.next_cursor})
    return b'{"instances":[' + b",".join(rows) + b"]," + rest[1:]
