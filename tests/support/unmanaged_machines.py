"""Machines on the account without an instance: rented outside gpuherd, or left over by it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from gpuherd.domain.cloud.orphan import Orphan
from gpuherd.domain.instance.instance import ID_PREFIX, Goal, Instance, Status
from gpuherd.domain.instance.rent_attempt import AttemptState, Tag, cloud_name
from gpuherd.ports.instance_port import Change
from gpuherd.simulator.simulated_request import CreateRequest, ExposedPort
from gpuherd.simulator.world import World
from tests.support.builders import an_attempt, an_instance, instance_id
from tests.support.herd import Herd


def rent_outside_gpuherd(world: World, name: str) -> str:
    """Rent a machine as somebody at the console would, whatever the stock, and return its id."""
    product = next(it for it in world.catalogue.products if it.spot_price)
    cluster_id = product.cluster_ids[0]
    world.stock(product.id, cluster_id, 8)
    ports = (ExposedPort(8888, "http"),)
    request = CreateRequest(product.id, name=name, cluster_id=cluster_id, billing_mode="spot", ports=ports)
    return world.create(request)


def tag_of(herd: Herd, n: int, attempt: int = 1) -> Tag:
    return Tag(herd.installation, instance_id(n).removeprefix(ID_PREFIX), attempt)


def rent_tagged(herd: Herd, n: int, attempt: int = 1) -> str:
    """Rent a machine that carries the tag of the n-th instance."""
    return rent_outside_gpuherd(herd.world, cloud_name(f"job-{n}", tag_of(herd, n, attempt)))


async def record(
    herd: Herd, n: int, state: AttemptState = AttemptState.ABANDONED, **changes: Any
) -> Instance:
    """Remember the n-th instance with one create call; without changes it was deleted."""
    fields = {"status": Status.DELETED, "goal": Goal.DELETED, "settled": True, **changes}
    instance = an_instance(n, **fields)
    made = instance.cloud_id if state is AttemptState.BOUND else None
    call = an_attempt(n, tag=str(tag_of(herd, n)), state=state, cloud_id=made)
    return await herd.instances.add(Change(instance, attempt=call))


async def a_surplus_machine(herd: Herd, n: int) -> str:
    """Leave a machine over whose create call was given up."""
    await record(herd, n)
    return rent_tagged(herd, n)


async def look(herd: Herd, after_s: float = 0.0) -> None:
    """Let time pass, list, and collect."""
    await herd.clock.sleep(after_s)
    await herd.look()
    await herd.collect()


async def look_for(herd: Herd, span: timedelta, every_s: float = 10.0) -> None:
    """List and collect again and again."""
    for _ in range(int(span.total_seconds() // every_s)):
        await look(herd, every_s)


async def ledger(herd: Herd) -> dict[str, Orphan]:
    """Return the open lines by cloud id."""
    return {it.cloud_id: it for it in await herd.orphans.open()}


def alive(herd: Herd) -> set[str]:
    """Return the machines that exist and that nobody has asked to remove."""
    return {machine.id for machine in herd.world.alive()}
