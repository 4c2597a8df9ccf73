"""The simulated cloud behind our own ports: no sockets, microseconds a call, the same faults as over HTTP."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar

from gpuherd.domain.cloud.machine import Listing, LogAddresses, Machine
from gpuherd.domain.cloud.network_volume import VolumeOrder
from gpuherd.domain.cloud.offer import BillingMode, Offer, Region
from gpuherd.domain.cloud.template import CreateCall, Template
from gpuherd.domain.errors import (
    CloudTimeout,
    CloudUnavailable,
    GpuherdError,
    MachineGone,
    NotFound,
    OutcomeUnknown,
)
from gpuherd.domain.instance.idleness import Utilization
from gpuherd.domain.money.bill import ProviderCharge, StorageVolume
from gpuherd.resilience.retry import retry
from gpuherd.simulator import domain_mapping as mapping
from gpuherd.simulator.cloud_images import ImagePorts
from gpuherd.simulator.cloud_prewarms import PrewarmPorts
from gpuherd.simulator.errors import ConnectionCut, GarbageReply, SimulatedError
from gpuherd.simulator.faults.fault import FaultKind
from gpuherd.simulator.money.bill import tenthousandths
from gpuherd.simulator.money.charge import Span
from gpuherd.simulator.money.tariff import HOUR_S
from gpuherd.simulator.operations import CloudOperations, TemplateQuery
from gpuherd.simulator.views.listing import ListQuery, Paging, Snapshot
from gpuherd.simulator.views.product_list import ProductQuery
from gpuherd.simulator.world.world import World

PAGE_SIZE = 100
READ_TRIES = 3

# Garbage that still holds the id of the new machine, only under the wrong content type.
READABLE_GARBAGE = frozenset({"wrong_type"})
# Garbage that is no garbage where no answer is expected: an empty reply, or an object whatever is in it.
HARMLESS_GARBAGE = READABLE_GARBAGE | {"empty", "empty_id", "number_id", "null_id", "no_id"}

T = TypeVar("T")
Ask = Callable[[], Coroutine[Any, Any, T]]


class _Failed(Exception):
    """One try of a read, and whether (or after how long) to try again."""

    def __init__(self, error: GpuherdError, again: bool | float) -> None:
        super().__init__()
        self.error = error
        self.again = again


class SimulatedCloud(ImagePorts, PrewarmPorts):
    """The ports of the cloud, of its bill and of its metrics, on a `World`.

    A call that hangs is given up after `timeout_s` of the world's clock; the cloud goes on with it all the
    same. With `latency_s` each call takes that long, half before and half after its effect, so that a
    caller cancelled in between has lost the reply.
    """

    def __init__(self, world: World, *, timeout_s: float = 30.0, latency_s: float = 0.0) -> None:
        self._world = world
        self._operations = CloudOperations(world)
        self._clock = world.clock
        self._timeout_s = timeout_s
        self._latency_s = latency_s
        self._hanging: set[asyncio.Task[Any]] = set()

    async def list_regions(self) -> tuple[Region, ...]:
        clusters = await self._read(self._operations.clusters)
        return tuple(mapping.region(cluster, gpu_names) for cluster, gpu_names in clusters)

    async def list_offers(self, billing_mode: BillingMode) -> tuple[Offer, ...]:
        query = ProductQuery(billing_method=billing_mode.value)
        products = await self._read(partial(self._operations.products, query))
        return tuple(offer for each in products for offer in mapping.offers(each, self._world.catalogue))

    async def list_templates(self) -> tuple[Template, ...]:
        query = TemplateQuery(Paging(len(self._world.account.templates) or 1))
        templates, _ = await self._read(partial(self._operations.templates, query))
        return tuple(mapping.template(template) for template in templates)

    async def get_template(self, template_id: str) -> Template:
        missing = NotFound("there is no such template", code="TEMPLATE_NOT_FOUND")
        return mapping.template(await self._read(partial(self._operations.template, template_id), missing))

    async def check_registry_auth(self, auth_id: str) -> None:
        auths = await self._read(self._operations.registry_auths)
        if auth_id not in {auth.id for auth in auths}:
            raise NotFound("there is no such registry credential", code="REGISTRY_AUTH_NOT_FOUND")

    async def list_machines(self) -> Listing:
        started_at = self._clock.now()
        machines: dict[str, Machine] = {}
        rows, totals = 0, set[int]()
        for number in itertools.count(1):
            query = ListQuery(Paging(PAGE_SIZE, number))
            total, shown = await self._read(partial(self._list_page, query))
            totals.add(total)
            rows += len(shown)
            before = len(machines)
            for machine in shown:
                machines.setdefault(machine.cloud_id, machine)
            if rows >= total or len(machines) == before:
                break
        complete = totals == {rows} and len(machines) == rows
        return Listing(tuple(machines.values()), complete, started_at, self._clock.now())

    async def get_machine(self, cloud_id: str) -> Machine:
        missing = MachineGone("there is no such machine")
        return await self._read(partial(self._show, cloud_id), missing)

    async def get_log_addresses(self, cloud_id: str) -> LogAddresses:
        missing = MachineGone("there is no such machine")
        snapshot = await self._read(partial(self._operations.get, cloud_id), missing)
        return mapping.log_addresses(snapshot, self._world.addresses)

    async def _show(self, cloud_id: str) -> Machine:
        return self._to_domain(await self._operations.get(cloud_id))

    async def _list_page(self, query: ListQuery) -> tuple[int, list[Machine]]:
        """Return a page as it is at this moment: by the time it arrives its machines may have changed."""
        page = await self._operations.list_machines(query)
        return page.total, [self._to_domain(row) for row in page.rows]

    async def create_machine(self, order: CreateCall) -> str:
        try:
            request = mapping.create_request(order)
        except SimulatedError as refused:
            raise mapping.failed_change(refused, self._clock.now()) from None
        try:
            return await self._change(partial(self._operations.create, request))
        except GarbageReply as garbage:
            if garbage.style in READABLE_GARBAGE:
                return str(garbage.result)
            raise OutcomeUnknown(str(garbage)) from None

    async def start_machine(self, cloud_id: str, send_by_s: float = math.inf) -> None:
        await self._command(partial(self._operations.start, cloud_id))

    async def stop_machine(self, cloud_id: str, send_by_s: float = math.inf) -> None:
        await self._command(partial(self._operations.stop, cloud_id))

    async def restart_machine(self, cloud_id: str, send_by_s: float = math.inf) -> None:
        await self._command(partial(self._operations.restart, cloud_id))

    async def delete_machine(self, cloud_id: str, send_by_s: float = math.inf) -> None:
        try:
            await self._command(partial(self._operations.delete, cloud_id))
        except MachineGone:
            return

    async def charges(self, begin: datetime, end: datetime) -> tuple[ProviderCharge, ...]:
        window = Span(begin.timestamp(), end.timestamp())
        rows = await self._read(partial(self._operations.bill, window, HOUR_S))
        return tuple(mapping.provider_charge(row) for row in rows)

    async def available_usd(self) -> Decimal:
        # As the billing API tells it: without fractions of its unit.
        return Decimal(tenthousandths(await self._read(self._operations.balance))) / 10_000

    async def list_volumes(self) -> tuple[StorageVolume, ...]:
        volumes = await self._read(self._operations.volumes)
        return tuple(mapping.volume(each, self._world.catalogue) for each in volumes)

    async def create_volume(self, order: VolumeOrder, send_by_s: float = math.inf) -> str:
        async def ask() -> str:
            made = await self._operations.create_volume(order.name, order.cluster_id, order.size_gb)
            return made.id

        try:
            return await self._change(ask, failed=mapping.failed_volume_change)
        except GarbageReply as garbage:
            raise OutcomeUnknown(str(garbage)) from None

    async def delete_volume(self, volume_id: str) -> None:
        async def ask() -> str:
            await self._operations.delete_volume(volume_id)
            return ""

        try:
            await self._change(ask, failed=mapping.failed_volume_change)
        except GarbageReply as garbage:
            if garbage.style not in HARMLESS_GARBAGE:
                raise OutcomeUnknown(str(garbage)) from None

    async def samples(
        self, cloud_id: str, begin: datetime, end: datetime, interval: timedelta
    ) -> tuple[Utilization, ...]:
        window, interval_s = Span(begin.timestamp(), end.timestamp()), int(interval.total_seconds())
        ask = partial(self._operations.samples, cloud_id, window, interval_s)
        found = await self._read(ask, MachineGone("there is no such machine"))
        gpu_num = len(self._world.find(cloud_id).gpu_ids)
        return tuple(mapping.use_sample(it, gpu_num) for it in found)

    def _to_domain(self, snapshot: Snapshot) -> Machine:
        return mapping.machine(snapshot, self._world.catalogue, self._world.addresses)

    async def _command(self, ask: Ask[str]) -> None:
        try:
            await self._change(ask, MachineGone("there is no such machine"))
        except GarbageReply as garbage:
            if garbage.style not in HARMLESS_GARBAGE:
                raise OutcomeUnknown(str(garbage)) from None

    async def _change(
        self,
        ask: Ask[str],
        missing: GpuherdError | None = None,
        failed: Callable[[SimulatedError, datetime], GpuherdError] = mapping.failed_change,
    ) -> str:
        """Make a call that has an effect, once."""
        try:
            return await self._exchange(ask)
        except SimulatedError as error:
            if missing is not None and mapping.is_missing(error):
                raise missing from None
            raise failed(error, self._clock.now()) from None
        except (ConnectionCut, TimeoutError) as lost:
            raise OutcomeUnknown(f"no answer came: {lost}") from None

    async def _read(self, ask: Ask[T], missing: GpuherdError | None = None) -> T:
        """Make a call that only looks, again where that helps."""
        try:
            return await retry(
                lambda: self._read_once(ask, missing),
                attempts=READ_TRIES,
                base_s=1.0,
                cap_s=30.0,
                clock=self._clock,
                rng=self._world.rng,
                is_retryable=lambda error: isinstance(error, _Failed) and error.again,
                deadline_s=60.0,
            )
        except _Failed as failed:
            raise failed.error from None

    async def _read_once(self, ask: Ask[T], missing: GpuherdError | None) -> T:
        try:
            return await self._exchange(ask)
        except SimulatedError as error:
            if missing is not None and mapping.is_missing(error):
                raise missing from None
            failure = mapping.failed_read(error, self._clock.now())
            raise _Failed(failure, _again(error.status, failure)) from None
        except ConnectionCut as cut:
            raise _Failed(CloudUnavailable(str(cut)), True) from None
        except GarbageReply as garbage:
            raise _Failed(CloudUnavailable(str(garbage)), garbage.style == "cut") from None
        except TimeoutError:
            raise _Failed(CloudTimeout("no answer in time"), True) from None

    async def _exchange(self, ask: Ask[T]) -> T:
        """Carry one call to the cloud and its answer back, as a network would."""
        if self._latency_s:
            await self._clock.sleep(self._latency_s / 2)
        may_hang = any(armed.fault.kind is FaultKind.HANG for armed in self._world.faults.armed)
        answer = await (self._call_with_timeout(ask) if may_hang else ask())
        if self._latency_s:
            await self._clock.sleep(self._latency_s / 2)
        return answer

    async def _call_with_timeout(self, ask: Ask[T]) -> T:
        """Wait for the answer until patience ends; the cloud does not notice that the caller has left."""
        call = asyncio.ensure_future(ask())
        self._hanging.add(call)
        call.add_done_callback(self._forget_call)
        timer = asyncio.ensure_future(self._clock.sleep(self._timeout_s))
        try:
            await asyncio.wait({call, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        if not call.done():
            raise TimeoutError("it took too long")
        return call.result()

    def _forget_call(self, call: asyncio.Task[Any]) -> None:
        self._hanging.discard(call)
        if not call.cancelled():
            # Retrieved, so that asyncio does not report an exception that was never awaited.
            call.exception()


def _again(status: int, failure: GpuherdError) -> bool | float:
    if status in (408, 429) or status >= 500:
        retry_after_s = failure.retry_after_s if isinstance(failure, CloudUnavailable) else None
        return True if retry_after_s is None else retry_after_s
    return False
