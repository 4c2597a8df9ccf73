"""Read: the details of one instance, at once or when what somebody waits for has come.

A reply by id is the very bytes that were encoded once and kept; a change of the instance throws them away.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from gpuherd.clock import Clock
from gpuherd.contract.instance import Instance as Details
from gpuherd.domain.access.caller import SYSTEM_CALLER, Caller
from gpuherd.domain.instance.capacity_line import PlaceInLine
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.wait_condition import WaitFor, wait_result
from gpuherd.ports.instances import Instances
from gpuherd.resilience.cache import Cache
from gpuherd.usecases.compact_json import compact
from gpuherd.usecases.describe.instance import describe, describe_cost
from gpuherd.usecases.describe.place import describe_wait
from gpuherd.usecases.events.change_hub import ChangeHub
from gpuherd.usecases.explain.waiting import wait_until
from gpuherd.usecases.instances.find import FindInstance, is_id, unknown, visible

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
