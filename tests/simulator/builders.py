"""Requests and small steps that most tests of the simulator share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from gpuherd.simulator.account_api import ProductQuery, products_on_sale
from gpuherd.simulator.fault_effects import ask, ask_about, carry_out
from gpuherd.simulator.faults import ApiEndpoint, Call
from gpuherd.simulator.instance_api import (
    ListQuery,
    MachinePage,
    list_machines,
    show_machine,
)
from gpuherd.simulator.simulated_catalogue import ProductOnSale
from gpuherd.simulator.simulated_machine import SimulatedMachine, Snapshot
from gpuherd.simulator.simulated_request import CreateRequest, ExposedPort
from gpuherd.simulator.world import World
from tests.support.fake_clock import FakeClock

T = TypeVar("T")

BOOT_S = 40
"""Longer than any pull with its jitter takes until the program answers."""


def a_request(**changes: Any) -> CreateRequest:
    wanted: dict[str, Any] = {
        "product_id": "4090.16c62g",
        "name": "job-7",
        "cluster_id": "us-ca-6",
        "ports": (ExposedPort(8080, "http"), ExposedPort(22, "tcp")),
        **changes,
    }
    return CreateRequest(**wanted)


def a_body(**changes: Any) -> dict[str, Any]:
    """The same request as JSON."""
    body: dict[str, Any] = {
        "productId": "4090.16c62g",
        "name": "job-7",
        "clusterId": "us-ca-6",
        "gpuNum": 1,
        "rootfsSize": 60,
        "imageUrl": "docker.io/library/ubuntu:22.04",
        "kind": "gpu",
        "ports": "8080/http,22/tcp",
        **changes,
    }
    return {name: value for name, value in body.items() if value is not None}


async def a_running_machine(world: World, clock: FakeClock, **changes: Any) -> SimulatedMachine:
    machine = world.machines[world.create(a_request(**changes))]
    await clock.advance(BOOT_S)
    assert machine.status(world.now()) == "running"
    return machine


def status_of(world: World, machine: SimulatedMachine) -> str:
    world.tick()
    return machine.status(world.now())


class Calls:
    """Calls to a world, with the faults that strike them, and without words of the wire."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def clusters(self) -> None:
        await ask(self._world, ApiEndpoint.CLUSTERS, lambda: None)

    async def products(self, query: ProductQuery) -> list[ProductOnSale]:
        return await ask(self._world, ApiEndpoint.PRODUCTS, lambda: products_on_sale(self._world, query))

    async def create(self, wanted: CreateRequest) -> str:
        call = Call(ApiEndpoint.CREATE, wanted.name, wanted.product_id, wanted.cluster_id, request=wanted)
        return await carry_out(self._world, call, lambda: self._world.create(wanted))

    async def list_machines(self, query: ListQuery) -> MachinePage:
        call = Call(ApiEndpoint.LIST, name=query.name)
        return await carry_out(self._world, call, lambda: list_machines(self._world, query))

    async def get(self, machine_id: str) -> Snapshot:
        return await self._about(ApiEndpoint.GET, machine_id, lambda it: show_machine(self._world, it))

    async def start(self, machine_id: str) -> SimulatedMachine:
        return await self._about(ApiEndpoint.START, machine_id, self._world.start)

    async def stop(self, machine_id: str) -> SimulatedMachine:
        return await self._about(ApiEndpoint.STOP, machine_id, self._world.stop)

    async def migrate(self, machine_id: str) -> str:
        return await self._about(ApiEndpoint.MIGRATE, machine_id, self._world.migrate)

    async def _about(self, endpoint: ApiEndpoint, machine_id: str, operation: Callable[[str], T]) -> T:
        return await ask_about(self._world, endpoint, machine_id, lambda: operation(machine_id))
