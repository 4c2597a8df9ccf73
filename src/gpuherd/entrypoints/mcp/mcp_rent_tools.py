"""Tools that plan, rent, extend and end. An agent rents only a plan of its own, and a person confirms costs.

Variables name secrets and never hold values: what an agent says is in its transcript. The refusal of a wrong
variable does not repeat it, since it may be a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import AcceptedElicitation, Elicit, ElicitationResult, Resolve
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from gpuherd.client.async_client import AsyncGpuherd
from gpuherd.client.client_errors import Forbidden
from gpuherd.client.wish import Wish
from gpuherd.contract.lease_models import AutoStopBody, LeaseBody
from gpuherd.contract.workload_models import ENVS_MAX, MOUNTS_MAX, SECRET_NAME, variable_problem
from gpuherd.entrypoints.mcp.mcp_session import (
    Ctx,
    InstanceArgument,
    Json,
    chosen,
    herd_of,
    instance_data,
    note_use,
    one_line,
    refusal,
    rows,
    safe_json,
    session_of,
)

BY_NAME = '{"VARIABLE": {"secret": NAME}} with names that list_secrets shows; a person sets their values'
ENVS_SCHEMA = {
    "anyOf": [
        {
            "type": "object",
            "maxProperties": ENVS_MAX,
            "additionalProperties": {
                "type": "object",
                "properties": {"secret": {"type": "string", "pattern": f"^{SECRET_NAME.pattern}$"}},
                "required": ["secret"],
                "additionalProperties": False,
            },
        },
        {"type": "null"},
    ]
}
# Not checked by pydantic: its messages quote the wrong value.
NamedEnvs = Annotated[
    Any,
    WithJsonSchema(ENVS_SCHEMA),
    Field(
        description='Variables with the values of secrets, by name: {"HF_TOKEN": {"secret": "hf"}}; see '
        "list_secrets. Values themselves are never given here."
    ),
]


class Mount(BaseModel):
    """A volume, and where it is to be."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(max_length=255)]
    mount_path: Annotated[str, Field(alias="mountPath", description="Like /data.", max_length=4095)]


def checked_envs(envs: Any) -> dict[str, dict[str, str]] | None:
    """Return variables that refer to secrets. Refuse anything else, and do not repeat it."""
    if envs is None:
        return None
    if not isinstance(envs, dict) or len(envs) > ENVS_MAX:
        raise _not_by_name("envs are not such variables")
    found = {}
    for place, (name, value) in enumerate(envs.items(), start=1):
        if variable_problem(name):
            raise _not_by_name(f"variable {place} has no name that a variable can have")
        secret = value.get("secret") if isinstance(value, dict) and value.keys() == {"secret"} else None
        if not isinstance(secret, str) or SECRET_NAME.fullmatch(secret) is None:
            raise _not_by_name(
                f"{name} does not refer to a secret by its name, and values are not taken here"
            )
        found[name] = {"secret": secret}
    return found


async def check_secrets(herd: AsyncGpuherd, envs: Mapping[str, Any] | None) -> None:
    """Refuse the name of an unknown secret, and do not send it: it may be a value."""
    if not envs:
        return
    known = {secret.name for secret in await herd.secrets.list()}
    if missing := [name for name, value in envs.items() if value["secret"] not in known]:
        words = f"this key has no secret of the name that is given for {', '.join(missing)}"
        raise refusal("SECRET_NOT_FOUND", words, BY_NAME)


def checked_mounts(mounts: Sequence[Mount] | None) -> dict[str, str] | None:
    """Return the paths by volume ids."""
    if not mounts:
        return None
    found = {mount.id: mount.mount_path for mount in mounts}
    if len(found) < len(mounts):
        raise refusal("INVALID_VOLUMES", "a volume is named twice", "each volume once")
    return found


def _not_by_name(words: str) -> Exception:
    return refusal("INVALID_ENVS", words, BY_NAME)


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
        "auto_stop": AutoStopBody(silence_seconds=silence_seconds, then=then),
    }
    async with herd_of(ctx) as herd:
        await check_secrets(herd, wish["envs"])
        longest = (await herd.keys.own()).limits.max_lease_seconds
        # Every rental of an agent has an end, within the limit of its key.
        seconds = min(lease_seconds, longest or lease_seconds)
        wish["lease"] = LeaseBody(seconds=seconds, then=then)
        note = None
        try:
            hold = not session_of(ctx).is_read_only
            plan = await herd.plan(product_name, template_id, name=name, hold=hold, **wish)
        except Forbidden:
            note = "this key may only look: the plan cannot be rented"
            plan = await herd.plan(product_name, template_id, name=name, **wish)
        fields = ("fits", "planId", "expiresAt", "heldHourlyPrice", "bestHourlyPrice", "reasons", "warnings")
        shown = chosen(plan.raw, (*fields, "productName", "gpuNum", "billingMode", "estimatedReadyInSeconds"))
        offers = [
            chosen(offer.raw, ("productName", "region", "hourlyPrice", "stock")) for offer in plan.offers
        ]
        ends = {"leaseSeconds": seconds, "silenceSeconds": silence_seconds, "then": then}
        return {**shown, **rows("offers", offers), **ends, "note": note}


SECONDS_AN_HOUR = 3600
CENT = Decimal("0.01")


class Confirm(BaseModel):
    """The answer of a person."""

    confirmed: bool = Field(description="Spend at most this much?")


YES = Confirm(confirmed=True)


async def ask_to_rent(plan_id: str, ctx: Ctx) -> Confirm | Elicit[Confirm]:
    """Ask a person to confirm the rental of a held plan, unless it is cheap."""
    async with herd_of(ctx) as herd:
        plan = await herd.held_plan(plan_id)
        if plan.instance_id is not None:
            # It is rented already. A repeat rents nothing.
            return YES
        # guard: what an agent rents has an end
        if plan.lease_seconds is None:
            words = "what an agent rents must have an end, and this plan has no lease"
            raise refusal("LEASE_REQUIRED", words, "a plan made with plan_rental: it always has one")
        price = plan.held_hourly_price
        most = price * plan.lease_seconds / SECONDS_AN_HOUR
        what = f"{plan.gpu_num} x {_product_names(plan.product_names)} ({one_line(plan.billing_mode, 20)})"
        terms = f"at most ${price} an hour, for {_duration(plan.lease_seconds)}"
        return await _decide(ctx, herd, f"Rent {what} for {terms}, at most ${_rounded(most)} in all?", most)


async def ask_to_extend(instance: str, seconds: int, ctx: Ctx) -> Confirm | Elicit[Confirm]:
    """Ask a person to confirm a new end of an instance, unless it is cheap."""
    async with herd_of(ctx) as herd:
        found = await herd.instances.get(instance)
        price = found.hourly_price
        most = None if price is None else price * seconds / SECONDS_AN_HOUR
        cost = "at a price that is not known" if most is None else f"at most ${_rounded(most)} more"
        return await _decide(
            ctx, herd, f"Keep {one_line(found.id, 60)} for {_duration(seconds)}, {cost}?", most
        )


def require_yes(answer: ElicitationResult[Confirm], undone: str) -> None:
    """Refuse, unless a person has confirmed or did not have to."""
    # guard: an agent spends nothing that a person did not say yes to
    if not (isinstance(answer, AcceptedElicitation) and answer.data.confirmed):
        words = f"a person was asked and did not say yes; {undone}"
        raise refusal("NOT_CONFIRMED", words, "something else: ask the person what they want")


async def _decide(
    ctx: Ctx, herd: AsyncGpuherd, question: str, most: Decimal | None
) -> Confirm | Elicit[Confirm]:
    limit = session_of(ctx).ask_above_usd
    if most is not None and most <= limit:
        return YES
    if _can_ask(ctx):
        return Elicit(question, Confirm)
    # guard: where an agent cannot ask only a strict budget stands in
    if (await herd.keys.own()).strict_budget:
        return YES
    amount = "an unknown amount" if most is None else f"${_rounded(most)}"
    raise refusal(
        "CONFIRMATION_NEEDED",
        f"this may cost {amount}, more than ${limit}, and this client cannot ask a person",
        f"something of at most ${limit} in all (a shorter lease, a cheaper GPU); a client that supports "
        "elicitation; or a key with a strict budget",
    )


def _can_ask(ctx: Ctx) -> bool:
    capabilities = ctx.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    # An older client names no mode: forms were the only one.
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def _product_names(names: tuple[str, ...]) -> str:
    return " or ".join(one_line(name, 60) for name in names[:3])


def _rounded(amount: Decimal) -> Decimal:
    """Round up: a person must not confirm less than the cost."""
    return amount.quantize(CENT, ROUND_CEILING)


def _duration(seconds: int) -> str:
    hours, minutes = divmod((seconds + 59) // 60, 60)
    words = [f"{hours} h"] * bool(hours) + [f"{minutes} min"] * bool(minutes)
    return " ".join(words) or "0 min"


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
    instance: InstanceArgument,
    seconds: Annotated[int, Field(ge=10, le=90 * 86_400, description="The new end, counted from now.")],
    answer: MayExtend,
) -> Json:
    """Set the end of an instance anew: so many seconds from now."""
    # guard: an agent asks for more time as it asks for a rental
    require_yes(answer, "its end is as it was")
    async with herd_of(ctx) as herd:
        changed: Json = safe_json(
            dict((await herd.instances.set_lease(instance, LeaseBody(seconds=seconds))).raw)
        )
        await note_use(ctx, herd, instance)
        return changed


async def keep_alive(ctx: Ctx, instance: InstanceArgument) -> Json:
    """Say that an instance is in use, so that silence does not end it. Its lease ends all the same."""
    async with herd_of(ctx) as herd:
        await herd.instances.heartbeat(instance)
        return instance_data(await herd.instances.get(instance))


async def stop_instance(ctx: Ctx, instance: InstanceArgument) -> Json:
    """Stop an instance: the GPU is given back, the disk stays."""
    async with herd_of(ctx) as herd:
        accepted: Json = safe_json(dict((await herd.instances.stop(instance)).raw))
        return accepted


async def delete_instance(ctx: Ctx, instance: InstanceArgument) -> Json:
    """Delete an instance with all its data, in any state. This cannot be undone."""
    async with herd_of(ctx) as herd:
        accepted: Json = safe_json(dict((await herd.instances.delete(instance)).raw))
        return accepted
