"""The simulated cloud with its calls recorded, and the real circuit breaker on the way to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gpuherd.domain.cloud.machine import Listing, Machine
from gpuherd.domain.cloud.template import CreateCall
from gpuherd.domain.errors import CircuitOpen, CloudUnavailable, OutcomeUnknown, RateLimited
from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.circuit_breaker import BreakerOpen, CircuitBreaker
from gpuherd.simulator.world import World
from tests.support.simulated_cloud import SimulatedCloud

# One call of the port is up to three of the wire, so fewer than the service's ten stand for as much trouble.
BREAKER_THRESHOLD = 4
BREAKER_RECOVERY_S = 60.0


class RecordingCloud(SimulatedCloud):
    """Tells of each create and delete before it goes in, and of each list that comes out."""

    def __init__(
        self,
        world: World,
        *,
        latency_s: float,
        on_listed: Callable[[Listing], None],
        on_post: Callable[[CreateCall], None] = lambda _: None,
        on_delete: Callable[[str], None] = lambda _: None,
    ):
        super().__init__(world, latency_s=latency_s)
        self._on_post = on_post
        self._on_listed = on_listed
        self._on_delete = on_delete
        # The account whose machines are shown in the place of ours, while the cloud mixes accounts up.
        self.shown_instead: SimulatedCloud | None = None

    async def create_machine(self, order: CreateCall) -> str:
        self._on_post(order)
        return await super().create_machine(order)

    async def list_machines(self) -> Listing:
        if self.shown_instead is not None:
            return await self.shown_instead.list_machines()
        listing = await super().list_machines()
        self._on_listed(listing)
        return listing

    async def get_machine(self, cloud_id: str) -> Machine:
        if self.shown_instead is not None:
            return await self.shown_instead.get_machine(cloud_id)
        return await super().get_machine(cloud_id)

    async def delete_machine(self, cloud_id: str, send_by_s: float = math.inf) -> None:
        self._on_delete(cloud_id)
        await super().delete_machine(cloud_id, send_by_s)


class CircuitBreakerCloud:
    """Any cloud behind a circuit breaker, as the transport to Novita has one."""

    def __init__(
        self,
        cloud: Any,
        clock: Clock,
        on_call: Callable[[str, str, float, BaseException | None], None] | None,
    ):
        self._cloud = cloud
        self._clock = clock
        # Told of each call once it is over: its name, the machine, when it began, and what went wrong.
        self._on_call = on_call
        self.breaker = CircuitBreaker(clock, threshold=BREAKER_THRESHOLD, recovery_s=BREAKER_RECOVERY_S)
        self.refused = 0

    def __getattr__(self, attribute: str) -> Any:
        method = getattr(self._cloud, attribute)
        # What costs money must not be what tests a sick cloud.
        may_probe = attribute != "create_machine"

        async def call(*args: Any) -> Any:
            if self._on_call is None:
                return await guarded(*args)
            begin_s = self._clock.monotonic()
            machine = args[0] if args and isinstance(args[0], str) else ""
            try:
                answer = await guarded(*args)
            except BaseException as error:
                self._on_call(attribute, machine, begin_s, error)
                raise
            self._on_call(attribute, machine, begin_s, None)
            return answer

        async def guarded(*args: Any) -> Any:
            try:
                permit = self.breaker.acquire(probe_allowed=may_probe)
            except BreakerOpen as refused:
                self.refused += 1
                raise CircuitOpen("not asked", retry_after_s=refused.retry_after_s) from None
            with permit:
                try:
                    return await method(*args)
                except RateLimited:
                    permit.neutral()
                    raise
                except (CloudUnavailable, OutcomeUnknown):
                    raise
                except Exception:
                    # A clear no is a sign of health.
                    permit.success()
                    raise

        self.__dict__[attribute] = call
        return call
