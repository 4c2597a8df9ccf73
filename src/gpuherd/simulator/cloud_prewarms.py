"""The simulated cloud's image prewarm tasks behind our own port."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, Protocol, TypeVar

from gpuherd.domain.cloud.template import Prewarm, PrewarmOrder, PrewarmQuota
from gpuherd.domain.errors import GpuherdError, NotFound, OutcomeUnknown
from gpuherd.simulator import domain_mapping as mapping
from gpuherd.simulator.errors import GarbageReply, SimulatedError
from gpuherd.simulator.operations import CloudOperations
from gpuherd.simulator.world.prewarms import PrewarmRequest
from gpuherd.simulator.world.world import World

T = TypeVar("T")
Ask = Callable[[], Coroutine[Any, Any, T]]


class _PrewarmCalls(Protocol):
    """How calls are carried to the cloud and back."""

    _operations: CloudOperations
    _world: World

    async def _read(self, ask: Ask[T], missing: GpuherdError | None = None) -> T: ...

    async def _change(
        self,
        ask: Ask[str],
        missing: GpuherdError | None = None,
        failed: Callable[[SimulatedError, datetime], GpuherdError] = mapping.failed_change,
    ) -> str: ...


class PrewarmPorts:
    """The port `ImagePrewarms`."""

    async def list_prewarms(self: _PrewarmCalls) -> tuple[Prewarm, ...]:
        found, now = await self._read(self._operations.prewarms), self._world.now()
        return tuple(mapping.prewarm(it, now, self._world.catalogue) for it in found)

    async def prewarm_quota(self: _PrewarmCalls) -> PrewarmQuota:
        return PrewarmQuota(*await self._read(self._operations.prewarm_quota))

    async def create_prewarm(self: _PrewarmCalls, order: PrewarmOrder, send_by_s: float = math.inf) -> str:
        request = PrewarmRequest(
            order.image,
            order.cluster_id,
            order.registry_auth_id,
            tuple(it.product_id for it in order.products),
            order.note,
        )
        try:
            return await self._change(lambda: self._operations.create_prewarm(request))
        except GarbageReply as garbage:
            raise OutcomeUnknown(str(garbage)) from None

    async def delete_prewarm(self: _PrewarmCalls, prewarm_id: str) -> None:
        async def ask() -> str:
            await self._operations.delete_prewarms([prewarm_id])
            return ""

        missing = NotFound("there is no such prewarm task", code="PREWARM_NOT_FOUND")
        try:
            await self._change(ask, missing)
        except GarbageReply as garbage:
            raise OutcomeUnknown(str(garbage)) from None
