"""Find, read, list and wait for instances."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpuherd.contract.instance_models import Instance as Details
from gpuherd.contract.instance_models import InstanceRow
from gpuherd.domain.api_key import SYSTEM_CALLER, Caller
from gpuherd.domain.cloud.capacity_line import PlaceInLine
from gpuherd.domain.errors import Conflict, NotFound
from gpuherd.domain.instance.instance import ID_PREFIX, Instance, SettledCost
from gpuherd.domain.instance.instance_event import Event
from gpuherd.domain.instance.instance_state import WaitFor, wait_result
from gpuherd.domain.instance.operation import Operation
from gpuherd.domain.instance.rent_attempt import Attempt
from gpuherd.domain.job import Job
from gpuherd.domain.webhooks.webhook_delivery import Delivery
from gpuherd.ports.clock_port import Clock, id_pattern
from gpuherd.ports.instance_port import InstancePage, InstanceQuery, Instances
from gpuherd.ports.job_port import Jobs
from gpuherd.ports.webhook_port import Outbox
from gpuherd.resilience.ttl_cache import Cache
from gpuherd.usecases.events.stream_events import ChangeHub
from gpuherd.usecases.instances.tell_timeline import wait_until
from gpuherd.usecases.views.instance_view import describe, describe_cost, describe_wait
from gpuherd.usecases.views.service_view import compact

_ID = id_pattern(ID_PREFIX)


def is_id(word: str) -> bool:
    """Return True if a word is meant as an id and not as a name."""
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


DETAILS_TTL_S = 30.0


# So old may be what is said of a place in line, which changes with others and not with the instance.
WAITING_TTL_S = 20.0


STATES_TTL_S = 60.0
ENTRIES_MAX = 10_000
WAIT_MAX_S = 300


# The hub tells of every change in this process; this finds those that another one made.
RECHECK_S = 5.0


class _Body(NamedTuple):
    """Details as they are sent, and whose they are."""

    owner: str
    body: bytes
    waits: bool


class ReadInstance:
    """The use case, with the caches that make it cheap."""

    def __init__(
        self,
        find: FindInstance,
        instances: Instances,
        hub: ChangeHub,
        clock: Clock,
        is_stale: Callable[[], bool],
        place_of: Callable[[Instance], Awaitable[PlaceInLine | None]],
    ):
        self._find = find
        self._instances = instances
        self._hub = hub
        self._clock = clock
        self._is_stale = is_stale
        self._place_of = place_of
        self._details: Cache[str, _Body] = Cache(
            clock,
            DETAILS_TTL_S,
            ENTRIES_MAX,
            "details",
            shorter_ttl_s=lambda it: WAITING_TTL_S if it.waits else None,
        )
        self._states: Cache[str, Instance] = Cache(clock, STATES_TTL_S, ENTRIES_MAX, "states")
        hub.add_listener(self._forget, self._forget_all)

    @property
    def caches(self) -> tuple[Cache[Any, Any], ...]:
        return (self._details, self._states)

    def cached_details(self, instance_id: str, caller: Caller = SYSTEM_CALLER) -> bytes | None:
        """Return the details if they can be had without waiting for anything, and by this caller."""
        if self._is_stale() or (found := self._details.peek(instance_id)) is None:
            return None
        return found.body if caller.may_see(found.owner) else None

    async def details(self, id_or_name: str, caller: Caller = SYSTEM_CALLER) -> bytes:
        """Return the details as JSON; they say of themselves whether they may be out of date."""
        if not is_id(id_or_name):
            return await self._encode(await self._find.named(id_or_name, caller), stale=self._is_stale())
        if self._is_stale():
            return await self._encode(visible(await self._state(id_or_name), caller), stale=True)
        found = await self._details.get_or_load(id_or_name, lambda: self._fresh_details(id_or_name))
        if not caller.may_see(found.owner):
            raise unknown(id_or_name)
        return found.body

    async def wait_for(
        self, id_or_name: str, what: WaitFor, timeout_s: float, caller: Caller = SYSTEM_CALLER
    ) -> tuple[bytes, bool]:
        """Return the details as soon as `what` is reached or can no longer be, and whether time ran out."""
        end_s = self._clock.monotonic() + min(timeout_s, WAIT_MAX_S)
        named = None if is_id(id_or_name) else await self._find.named(id_or_name, caller)
        instance_id = id_or_name if named is None else named.id
        async with self._hub.subscribe(instance_id) as changes:
            while True:
                instance = visible(await self._recent_state(instance_id), caller)
                if wait_result(instance, what) is not None:
                    return await self._encode(instance, stale=self._is_stale()), False
                left_s = end_s - self._clock.monotonic()
                if left_s <= 0:
                    return await self._encode(instance, stale=self._is_stale()), True
                await changes.wait(min(left_s, RECHECK_S))

    async def _fresh_details(self, instance_id: str) -> _Body:
        it = await self._state(instance_id)
        return _Body(it.owner, await self._encode(it, stale=False), waits=it.waiting_for is not None)

    async def _state(self, instance_id: str) -> Instance:
        return await self._states.get_or_load(instance_id, lambda: self._instances.get(instance_id))

    async def _recent_state(self, instance_id: str) -> Instance:
        """Return the state as it was a moment ago; of all who wait for one instance, only one reads it."""
        known = self._states.get_stale(instance_id)
        if known is not None and known[1] >= RECHECK_S:
            self._forget([instance_id])
        return await self._state(instance_id)

    def _forget(self, instance_ids: Sequence[str]) -> None:
        for instance_id in instance_ids:
            self._details.invalidate(instance_id)
            self._states.invalidate(instance_id)

    def _forget_all(self) -> None:
        self._details.clear()
        self._states.clear()

    async def _encode(self, instance: Instance, *, stale: bool) -> bytes:
        waits = None
        if instance.waiting_for is not None:
            place = await self._place_of(instance)
            waits = describe_wait(instance, wait_until(instance), place)
        cost = describe_cost(instance.cost)
        return compact(Details.extending(describe(instance), stale=stale, cost=cost, waits=waits))


CACHED_ENTRIES_MAX = 1000
Encoded = Cache[str, tuple[int, SettledCost, bytes]]


class ListInstances:
    """The use case, with the entries that it showed last."""

    def __init__(self, instances: Instances, clock: Clock):
        self._instances = instances
        self._clock = clock
        # By id: which version, what it had cost, and its bytes. A version never changes, unless the
        # store loses it; so nothing here is ever out of date.
        self._encoded = self._new_cache()

    def _new_cache(self) -> Encoded:
        return Cache(self._clock, math.inf, CACHED_ENTRIES_MAX, "entries")

    def forget(self) -> None:
        """Drop what is kept: versions may be given out a second time."""
        self._encoded = self._new_cache()

    async def page(self, query: InstanceQuery) -> InstancePage:
        """Return the page, for those who show it in another form."""
        return await self._instances.page(query)

    async def __call__(self, query: InstanceQuery) -> bytes:
        """Return the page as JSON."""
        # What is read now does not belong into what comes after a `forget`.
        encoded = self._encoded
        page = await self._instances.page(query)
        entries = b",".join([_entry(it, encoded) for it in page.instances])
        rest = compact({"total": page.total, "nextCursor": page.next_cursor})
        return b'{"instances":[' + entries + b"]," + rest[1:]


def _entry(it: Instance, encoded: Encoded) -> bytes:
    kept = encoded.peek(it.id)
    # The meter settles a cost without a new version.
    # guard: what was settled without a version is shown in lists
    if kept is None or kept[0] != it.version or kept[1] != it.cost:
        kept = (
            it.version,
            it.cost,
            compact(InstanceRow.extending(describe(it), cost=describe_cost(it.cost))),
        )
        encoded.put(it.id, kept)
    return kept[2]


@dataclass(frozen=True)
class InstanceHistory:
    """An instance with all that is on record about it, oldest first."""

    instance: Instance
    events: tuple[Event, ...]
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True)
class ReadHistory:
    """By id or name, among what the caller may see."""

    find: FindInstance
    instances: Instances

    async def __call__(self, word: str, caller: Caller) -> InstanceHistory:
        it = await self.find(word, caller)
        events = await self.instances.events(it.id)
        return InstanceHistory(it, events, await self.instances.attempts(it.id))

    async def events(self, word: str, caller: Caller) -> tuple[Event, ...]:
        """Return what happened, oldest first."""
        return await self.instances.events((await self.find(word, caller)).id)
