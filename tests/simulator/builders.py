"""Requests and small steps that most tests of the simulator share."""

from __future__ import annotations

from typing import Any

from gpuherd.simulator.create_request import CreateRequest, ExposedPort
from gpuherd.simulator.world.machine import SimulatedMachine
from gpuherd.simulator.world.world import World
from tests.support.fake_clock import FakeClock

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
