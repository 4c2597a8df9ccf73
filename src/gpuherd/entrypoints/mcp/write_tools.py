"""Tools that change something. What can be rented is what was planned: `rent` takes nothing else."""

from __future__ import annotations

from typing import Annotated

from mcp.server.mcpserver import ElicitationResult, Resolve
from pydantic import Field

from gpuherd.client import Lease
from gpuherd.entrypoints.mcp.confirm import Confirm, ask_to_extend, ask_to_rent, require_yes
from gpuherd.entrypoints.mcp.plain import plain_data
from gpuherd.entrypoints.mcp.read_tools import InstanceRef
from gpuherd.entrypoints.mcp.session import Ctx, herd_of, note_use
from gpuherd.entrypoints.mcp.shapes import Json, instance_data

MayRent = Annotated[ElicitationResult[Confirm], Resolve(ask_to_rent)]
MayExtend = Annotated[ElicitationResult[Confirm], Resolve(ask_to_extend)]


async def rent(
    ctx: Ctx,
    plan_id: Annotated[str, Field(description="The planId that plan_rental returned.", max_length=200)],
    answer: MayRent,
) -> Json:
    """Rent what was planned. One plan is one machine, however often this is called, and never dearer."""
    require_yes(answer, "nothing was rented")
    async with herd_of(ctx) as herd:
        return instance_data(await herd.instances.rent_plan(plan_id))


async def extend_lease(
    ctx: Ctx,
    instance: InstanceRef,
    seconds: Annotated[int, Field(ge=10, le=90 * 86_400, description="The new end, counted from now.")],
    answer: MayExtend,
) -> Json:
    """Set the end of an instance anew: so many seconds from now."""
    # guard: an agent asks for more time as it asks for a rental
    require_yes(answer, "its end is as it was")
    async with herd_of(ctx) as herd:
        changed: Json = plain_data(dict((await herd.instances.set_lease(instance, Lease(seconds))).raw))
        await note_use(ctx, herd, instance)
        return changed


async def keep_alive(ctx: Ctx, instance: InstanceRef) -> Json:
    """Say that an instance is in use, so that silence does not end it. Its lease ends all the same."""
    async with herd_of(ctx) as herd:
        await herd.instances.heartbeat(instance)
        return instance_data(await herd.instances.get(instance))


async def stop_instance(ctx: Ctx, instance: InstanceRef) -> Json:
    """Stop an instance: the GPU is given back, the disk stays."""
    async with herd_of(ctx) as herd:
        accepted: Json = plain_data(dict((await herd.instances.stop(instance)).raw))
        return accepted


async def delete_instance(ctx: Ctx, instance: InstanceRef) -> Json:
    """Delete an instance with all its data, in any state. This cannot be undone."""
    async with herd_of(ctx) as herd:
        accepted: Json = plain_data(dict((await herd.instances.delete(instance)).raw))
        return accepted
