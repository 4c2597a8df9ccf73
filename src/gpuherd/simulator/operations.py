"""Every operation of the simulated cloud, faults included: what its HTTP API and its port share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from gpuherd.simulator.calls import ApiEndpoint, Call
from gpuherd.simulator.catalogue import Cluster, CpuProduct, RegistryAuth, StoredTemplate
from gpuherd.simulator.create_request import CreateRequest, ExposedPort
from gpuherd.simulator.errors import SimulatedError
from gpuherd.simulator.fault_injection import FaultInjector
from gpuherd.simulator.fields import Fields
from gpuherd.simulator.money.bill import BillRow
from gpuherd.simulator.money.charge import Span
from gpuherd.simulator.money.use import UseSample
from gpuherd.simulator.money.volumes import NetworkVolume
from gpuherd.simulator.views.billing import billed
from gpuherd.simulator.views.listing import (
    FIRST_PAGE,
    ListQuery,
    MachinePage,
    Paging,
    Snapshot,
    list_machines,
    show_machine,
)
from gpuherd.simulator.views.metrics import measured
from gpuherd.simulator.views.product_list import (
    CpuQuery,
    ProductOnSale,
    ProductQuery,
    gpu_names,
    list_cpu_products,
    list_products,
)
from gpuherd.simulator.world.account import AccountJob
from gpuherd.simulator.world.prewarms import PrewarmRequest, PrewarmTask
from gpuherd.simulator.world.world import World

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TemplateQuery:
    """Which templates are wanted; no channel means all of them."""

    paging: Paging = FIRST_PAGE
    name: str = ""
    channels: tuple[str, ...] = ()


class CloudOperations:
    """Each method is one call: it may raise `SimulatedError`, `ConnectionCut` or `GarbageReply`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._fault_injector = FaultInjector(world)

    async def clusters(self) -> list[tuple[Cluster, list[str]]]:
        """Return each cluster with the names of its GPUs."""
        return await self._ask(
            ApiEndpoint.CLUSTERS,
            lambda: [(cluster, gpu_names(self.world, cluster)) for cluster in self.world.catalogue.clusters],
        )

    async def products(self, query: ProductQuery) -> list[ProductOnSale]:
        return await self._ask(ApiEndpoint.PRODUCTS, lambda: list_products(self.world, query))

    async def cpu_products(self, query: CpuQuery) -> list[CpuProduct]:
        return await self._ask(ApiEndpoint.CPU_PRODUCTS, lambda: list_cpu_products(self.world, query))

    async def create(self, request: CreateRequest) -> str:
        """Rent a machine and return its id."""
        call = Call(ApiEndpoint.CREATE, request.name, request.product_id, request.cluster_id, request=request)
        return await self._fault_injector.execute(call, lambda: self.world.create(request))

    async def list_machines(self, query: ListQuery) -> MachinePage:
        call = Call(ApiEndpoint.LIST, name=query.name)
        return await self._fault_injector.execute(call, lambda: list_machines(self.world, query))

    async def get(self, machine_id: str) -> Snapshot:
        return await self._about(ApiEndpoint.GET, machine_id, lambda: show_machine(self.world, machine_id))

    async def start(self, machine_id: str) -> str:
        """Start a machine and return its new status; stop, restart and delete are alike."""
        return await self._command(ApiEndpoint.START, machine_id)

    async def stop(self, machine_id: str) -> str:
        return await self._command(ApiEndpoint.STOP, machine_id)

    async def restart(self, machine_id: str) -> str:
        return await self._command(ApiEndpoint.RESTART, machine_id)

    async def delete(self, machine_id: str) -> str:
        return await self._command(ApiEndpoint.DELETE, machine_id)

    async def edit(self, machine_id: str, ports: Sequence[ExposedPort] | None, add_disk_gb: int) -> None:
        await self._about(
            ApiEndpoint.EDIT, machine_id, lambda: self.world.edit(machine_id, ports, add_disk_gb)
        )

    async def upgrade(self, machine_id: str, change: Callable[[CreateRequest], CreateRequest]) -> None:
        await self._about(ApiEndpoint.UPGRADE, machine_id, lambda: self.world.upgrade(machine_id, change))

    async def migrate(self, machine_id: str) -> str:
        """Move a machine to another host and return the id of the job that does it."""
        return await self._about(ApiEndpoint.MIGRATE, machine_id, lambda: self.world.migrate(machine_id))

    async def set_auto_migrate(self, machine_id: str, *, is_open: bool) -> None:
        await self._about(
            ApiEndpoint.SET_AUTO_MIGRATE,
            machine_id,
            lambda: self.world.set_auto_migrate(machine_id, is_open=is_open),
        )

    async def templates(self, query: TemplateQuery) -> tuple[list[StoredTemplate], int]:
        """Return one page of templates, newest first, and how many there are."""
        return await self._ask(ApiEndpoint.TEMPLATES, lambda: self._list_templates(query))

    async def template(self, template_id: str) -> StoredTemplate:
        return await self._ask(ApiEndpoint.TEMPLATE, lambda: self.world.account.template(template_id))

    async def create_template(self, template: Fields) -> str:
        account, now = self.world.account, self.world.now()
        return await self._ask(ApiEndpoint.TEMPLATE_CREATE, lambda: account.add_template(template, now))

    async def update_template(self, template: Fields) -> str:
        account = self.world.account
        return await self._ask(ApiEndpoint.TEMPLATE_UPDATE, lambda: account.change_template(template))

    async def delete_template(self, template_id: str) -> str:
        account = self.world.account
        return await self._ask(ApiEndpoint.TEMPLATE_DELETE, lambda: account.remove_template(template_id))

    async def registry_auths(self) -> list[RegistryAuth]:
        account = self.world.account
        return await self._ask(ApiEndpoint.REGISTRY_AUTHS, lambda: [*account.registry_auths.values()])

    async def save_registry_auth(self, name: str, username: str, password: str) -> str:
        account = self.world.account
        return await self._ask(
            ApiEndpoint.REGISTRY_SAVE, lambda: account.save_registry_auth(name, username, password)
        )

    async def delete_registry_auth(self, auth_id: str) -> None:
        in_use = any(machine.request.image_auth_id == auth_id for machine in self.world.alive())
        account = self.world.account
        await self._ask(
            ApiEndpoint.REGISTRY_DELETE, lambda: account.remove_registry_auth(auth_id, in_use=in_use)
        )

    async def volumes(self) -> list[NetworkVolume]:
        return await self._ask(ApiEndpoint.NETWORK_STORAGES, self.world.volumes.listed)

    async def create_volume(self, name: str, cluster_id: str, size_gb: int) -> NetworkVolume:
        world = self.world
        return await self._ask(
            ApiEndpoint.NETWORK_STORAGE_CREATE,
            lambda: world.volumes.create(name, cluster_id, size_gb, world.now()),
        )

    async def update_volume(self, volume_id: str, name: str, size_gb: int) -> NetworkVolume:
        world = self.world
        return await self._ask(
            ApiEndpoint.NETWORK_STORAGE_UPDATE,
            lambda: world.volumes.change(volume_id, name, size_gb, world.now()),
        )

    async def delete_volume(self, volume_id: str) -> None:
        world = self.world
        await self._ask(
            ApiEndpoint.NETWORK_STORAGE_DELETE,
            lambda: world.volumes.delete(volume_id, world.now(), world.mounted_volumes()),
        )

    async def prewarms(self) -> list[PrewarmTask]:
        return await self._ask(ApiEndpoint.PREWARMS, self.world.prewarms.listed)

    async def prewarm_quota(self) -> tuple[int, int, int]:
        """Return how many tasks there are and may be, and how many GB each image may have."""
        kept = self.world.prewarms
        return await self._ask(
            ApiEndpoint.PREWARM_QUOTA, lambda: (len(kept.listed()), kept.tasks_max, kept.image_gb_max)
        )

    async def create_prewarm(self, request: PrewarmRequest) -> str:
        # By its image, as machines by their name.
        call = Call(ApiEndpoint.PREWARM_CREATE, request.image_url, cluster_id=request.cluster_id)
        return await self._fault_injector.execute(call, lambda: self.world.prewarm(request, call))

    async def edit_prewarm(self, task_id: str, note: str) -> None:
        kept = self.world.prewarms
        await self._ask(ApiEndpoint.PREWARM_EDIT, lambda: kept.change_note(task_id, note))

    async def delete_prewarms(self, task_ids: Sequence[str]) -> None:
        await self._ask(ApiEndpoint.PREWARM_DELETE, lambda: self.world.prewarms.delete(task_ids))

    async def samples(self, machine_id: str, window: Span, interval_s: int) -> list[UseSample]:
        """Return how busy a machine was, as the metrics API shows it."""
        return await self._about(
            ApiEndpoint.METRICS, machine_id, lambda: measured(self.world, machine_id, window, interval_s)
        )

    async def bill(self, window: Span, cycle_s: int) -> list[BillRow]:
        return await self._ask(ApiEndpoint.BILL, lambda: billed(self.world, window, cycle_s))

    async def balance(self) -> Fraction:
        return await self._ask(ApiEndpoint.BALANCE, self.world.balance_usd)

    async def nothing(self, endpoint: ApiEndpoint) -> None:
        """Answer for what the simulated account does not own: networks."""
        await self._ask(endpoint, lambda: None)

    async def jobs(self) -> list[AccountJob]:
        return await self._ask(ApiEndpoint.JOBS, lambda: [*reversed(self.world.account.jobs)])

    def _list_templates(self, query: TemplateQuery) -> tuple[list[StoredTemplate], int]:
        matching = [
            template
            for template in self.world.account.templates.values()
            if query.name.casefold() in template.name.casefold()
            and (not query.channels or template.channel in query.channels)
        ]
        matching.reverse()
        offset = query.paging.offset
        return matching[offset : offset + query.paging.size], len(matching)

    async def _command(self, endpoint: ApiEndpoint, machine_id: str) -> str:
        commands = {
            ApiEndpoint.START: self.world.start,
            ApiEndpoint.STOP: self.world.stop,
            ApiEndpoint.RESTART: self.world.restart,
            ApiEndpoint.DELETE: self.world.delete,
        }
        machine = await self._about(endpoint, machine_id, lambda: commands[endpoint](machine_id))
        return machine.status(self.world.now())

    async def _about(self, endpoint: ApiEndpoint, machine_id: str, operation: Callable[[], T]) -> T:
        """Make a call about one machine, which faults may tell by its name and place."""
        try:
            call = self.world.call_about(endpoint, self.world.find(machine_id))
        except SimulatedError:
            call = Call(endpoint, machine_id=machine_id)
        return await self._fault_injector.execute(call, operation)

    async def _ask(self, endpoint: ApiEndpoint, operation: Callable[[], T]) -> T:
        return await self._fault_injector.execute(Call(endpoint), operation)
