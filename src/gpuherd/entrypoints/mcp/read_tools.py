"""Tools that only look. Those about one instance count as its use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from gpuherd.client import InstanceFailed, WaitTimedOut
from gpuherd.entrypoints.mcp.plain import ROWS_MAX, plain_data
from gpuherd.entrypoints.mcp.plan_tool import plan_rental
from gpuherd.entrypoints.mcp.session import Ctx, herd_of, note_use
from gpuherd.entrypoints.mcp.shapes import LISTED_FIELDS, Json, chosen, instance_data, rows

WAIT_MAX_S = 50

InstanceRef = Annotated[str, Field(description="Id or name, as list_instances returns it.", max_length=200)]
Limit = Annotated[int, Field(ge=1, le=ROWS_MAX)]


async def find_offers(
    ctx: Ctx,
    product_name: Annotated[str | None, Field(description="Part of a GPU's name, like 4090.")] = None,
    billing_mode: Literal["spot", "onDemand"] = "spot",
) -> Json:
    """List GPUs that can be rented, with price for one GPU and hour, and stock by region."""
    async with herd_of(ctx) as herd:
        found = await herd.products(product_name, billing_mode=billing_mode)
        return rows("products", [it.raw for it in found])


async def list_templates(ctx: Ctx) -> Json:
    """List the templates that plan_rental can run."""
    async with herd_of(ctx) as herd:
        return rows(
            "templates", [chosen(it.raw, ("id", "name", "imageUrl")) for it in await herd.templates()]
        )


async def list_volumes(ctx: Ctx) -> Json:
    """List the network volumes that plan_rental can mount, with region, size and price."""
    async with herd_of(ctx) as herd:
        fields = ("id", "name", "region", "sizeGb", "hourlyPrice")
        return rows("volumes", [chosen(it.raw, fields) for it in await herd.volumes.list()])


async def list_secrets(ctx: Ctx) -> Json:
    """List the names of the secrets that envs of plan_rental can refer to; nobody is told their values."""
    async with herd_of(ctx) as herd:
        return rows("secrets", [chosen(it.raw, ("name", "shared")) for it in await herd.secrets.list()])


async def list_registry_credentials(ctx: Ctx) -> Json:
    """List the credentials with which plan_rental can pull private images, by id and name."""
    async with herd_of(ctx) as herd:
        return rows("credentials", [chosen(it.raw, ("id", "name")) for it in await herd.registry.list()])


async def list_instances(
    ctx: Ctx,
    status: Annotated[str | None, Field(description="Only these, like running.")] = None,
    limit: Limit = ROWS_MAX,
) -> Json:
    """List the instances of this key, newest first."""
    async with herd_of(ctx) as herd:
        found: list[Any] = []
        async for it in herd.instances.list(status=status, page_size=limit):
            if len(found) == limit:
                return rows("instances", found, more=True)
            found.append(chosen(it.raw, LISTED_FIELDS))
        return rows("instances", found)


async def show_instance(ctx: Ctx, instance: InstanceRef) -> Json:
    """Show one instance: status, address, cost so far, and when it ends."""
    async with herd_of(ctx) as herd:
        await note_use(ctx, herd, instance)
        return instance_data(await herd.instances.get(instance))


async def explain_instance(ctx: Ctx, instance: InstanceRef) -> Json:
    """Explain how an instance came to be what it is, what it waits for, and what to do about it."""
    async with herd_of(ctx) as herd:
        await note_use(ctx, herd, instance)
        explained: Json = plain_data(dict((await herd.instances.why(instance)).raw))
        return explained


async def wait_for_instance(
    ctx: Ctx,
    instance: InstanceRef,
    until: Literal["ready", "exited", "deleted"] = "ready",
    timeout_seconds: Annotated[int, Field(ge=1, le=WAIT_MAX_S)] = WAIT_MAX_S,
) -> Json:
    """Wait until an instance can be used, has stopped, or is gone; call again if it timed out."""
    async with herd_of(ctx) as herd:
        await note_use(ctx, herd, instance)
        try:
            reached = await herd.instances.wait(instance, until, timeout_seconds)
        except WaitTimedOut as waiting:
            return {**instance_data(waiting.instance), "reached": False, "timedOut": True}
        except InstanceFailed as failed:
            return {**instance_data(failed.instance), "reached": False, "timedOut": False}
        return {**instance_data(reached), "reached": True, "timedOut": False}


async def recent_events(ctx: Ctx, instance: InstanceRef | None = None, limit: Limit = 20) -> Json:
    """List what happened last, newest first: to one instance, or to all of this key."""
    async with herd_of(ctx) as herd:
        if instance is not None:
            await note_use(ctx, herd, instance)
            instance = (await herd.instances.get(instance)).id
        page = await herd.history(instance, limit=limit)
        return rows("events", page.raw.get("events", []))


async def costs(
    ctx: Ctx,
    since: Annotated[str | None, Field(description="A day or moment; thirty days ago if left out.")] = None,
    until: Annotated[str | None, Field(description="A day or moment, excluded.")] = None,
    group_by: Annotated[str | None, Field(description="instance, day, product, region or label:KEY.")] = None,
) -> Json:
    """Sum up what was spent, in USD, with what still costs an hour."""
    async with herd_of(ctx) as herd:
        summed: Json = plain_data(dict((await herd.costs.get(since, until, group_by=group_by)).raw))
        return summed


async def leftovers(ctx: Ctx) -> Json:
    """List everything that still costs money, the dearest first, with what to do about it."""
    async with herd_of(ctx) as herd:
        found: Json = plain_data(dict((await herd.costs.leftovers()).raw))
        return found


READ_TOOLS: Sequence[Any] = (
    *(find_offers, list_templates, list_volumes, list_secrets, list_registry_credentials, plan_rental),
    *(list_instances, show_instance, explain_instance),
    *(wait_for_instance, recent_events, costs, leftovers),
)
