"""The tool that plans a rental: what an agent may wish for, and how it must end."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuherd.client import AutoStop, Lease, Wish
from gpuherd.client.client_errors import Forbidden
from gpuherd.entrypoints.mcp.session import Ctx, herd_of, session_of
from gpuherd.entrypoints.mcp.shapes import Json, chosen, rows
from gpuherd.entrypoints.mcp.workload import (
    MOUNTS_MAX,
    Mount,
    NamedEnvs,
    check_secrets,
    checked_envs,
    checked_mounts,
)

LEASE_S = 2 * 3600
SILENCE_S = 3600


async def plan_rental(
    ctx: Ctx,
    product_name: Annotated[str, Field(description="The GPU; part of its name is enough.", max_length=200)],
    template_id: Annotated[
        str | None, Field(description="What to run: see list_templates. Or give an image.", max_length=200)
    ] = None,
    image_url: Annotated[str | None, Field(description="An image to run instead.", max_length=500)] = None,
    command: Annotated[
        str | None,
        Field(
            description="What the container runs, if not its own command. No token belongs here: use envs.",
            max_length=2047,
        ),
    ] = None,
    ports: Annotated[
        list[str] | None, Field(description="To be reached, like 8000/http or 22/tcp.", max_length=15)
    ] = None,
    envs: NamedEnvs = None,
    volumes: Annotated[
        list[Mount] | None,
        Field(description="What to mount: see list_volumes. They pin the region.", max_length=MOUNTS_MAX),
    ] = None,
    registry_auth_id: Annotated[
        str | None,
        Field(description="For a private image: see list_registry_credentials.", max_length=200),
    ] = None,
    min_cuda_version: Annotated[str | None, Field(description="Like 12.4.", max_length=5)] = None,
    name: Annotated[str | None, Field(max_length=100)] = None,
    gpu_num: Annotated[int, Field(ge=1, le=8)] = 1,
    disk_gb: Annotated[int, Field(ge=10, le=1000)] = 60,
    regions: Annotated[list[str] | None, Field(max_length=20)] = None,
    billing_mode: Literal["spot", "onDemand", "auto"] = "spot",
    max_hourly_price: Annotated[str | None, Field(description="USD for the whole instance.")] = None,
    lease_seconds: Annotated[
        int, Field(ge=10, le=90 * 86_400, description="When it ends at last.")
    ] = LEASE_S,
    silence_seconds: Annotated[
        int, Field(ge=10, le=90 * 86_400, description="It also ends after so long without a call about it.")
    ] = SILENCE_S,
    then: Annotated[
        Literal["stop", "delete"], Field(description="How it ends; stop keeps the disk.")
    ] = "stop",
) -> Json:
    """Plan a rental: what would be rented, for how much. Nothing is rented; `rent` takes the planId."""
    wish: Wish = {
        "image_url": image_url,
        "command": command,
        "ports": ports,
        "envs": checked_envs(envs),
        "volumes": checked_mounts(volumes),
        "registry_auth_id": registry_auth_id,
        "min_cuda_version": min_cuda_version,
        "gpu_num": gpu_num,
        "rootfs_size": disk_gb,
        "regions": regions,
        "billing_mode": billing_mode,
        "max_hourly_price": max_hourly_price,
        "auto_stop": AutoStop(silence_seconds, then),
    }
    async with herd_of(ctx) as herd:
        await check_secrets(herd, wish["envs"])
        longest = (await herd.keys.own()).limits.max_lease_seconds
        # What an agent rents always has an end, and no later one than its key may have.
        seconds = min(lease_seconds, longest or lease_seconds)
        wish["lease"] = Lease(seconds=seconds, then=then)
        note = None
        try:
            hold = not session_of(ctx).is_read_only
            plan = await herd.plan(product_name, template_id, name=name, hold=hold, **wish)
        except Forbidden:
            note = "this key may only look: the plan cannot be rented"
            plan = await herd.plan(product_name, template_id, name=name, **wish)
        fields = ("fits", "planId", "expiresAt", "heldHourlyPrice", "bestHourlyPrice", "reasons", "warnings")
        shown = chosen(plan.raw, (*fields, "productName", "gpuNum", "billingMode", "estimatedReadyInSeconds"))
        offers = [chosen(it.raw, ("productName", "region", "hourlyPrice", "stock")) for it in plan.offers]
        ends = {"leaseSeconds": seconds, "silenceSeconds": silence_seconds, "then": then}
        return {**shown, **rows("offers", offers), **ends, "note": note}
