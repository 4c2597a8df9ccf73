"""The question before money is spent: made from what is stored only, and never answered for a person."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal

from mcp.server.mcpserver import AcceptedElicitation, Elicit, ElicitationResult
from pydantic import BaseModel, Field

from gpuherd.client import AsyncGpuherd
from gpuherd.entrypoints.mcp.plain import plain
from gpuherd.entrypoints.mcp.refusal import refusal
from gpuherd.entrypoints.mcp.session import Ctx, herd_of, session_of

SECONDS_AN_HOUR = 3600
CENT = Decimal("0.01")


class Confirm(BaseModel):
    """What a person answers."""

    confirmed: bool = Field(description="Spend at most this much?")


YES = Confirm(confirmed=True)


async def ask_to_rent(plan_id: str, ctx: Ctx) -> Confirm | Elicit[Confirm]:
    """Ask whether a held plan shall be rented, where that is needed."""
    async with herd_of(ctx) as herd:
        plan = await herd.held_plan(plan_id)
        if plan.instance_id is not None:
            # It was rented already, and is not rented again.
            return YES
        # guard: what an agent rents has an end
        if plan.lease_seconds is None:
            words = "what an agent rents must have an end, and this plan has no lease"
            raise refusal("LEASE_REQUIRED", words, "a plan made with plan_rental: it always has one")
        price = plan.held_hourly_price
        most = price * plan.lease_seconds / SECONDS_AN_HOUR
        what = f"{plan.gpu_num} x {_words(plan.product_names)} ({plain(plan.billing_mode, 20)})"
        terms = f"at most ${price} an hour, for {_duration(plan.lease_seconds)}"
        return await _decide(ctx, herd, f"Rent {what} for {terms}, at most ${_rounded(most)} in all?", most)


async def ask_to_extend(instance: str, seconds: int, ctx: Ctx) -> Confirm | Elicit[Confirm]:
    """Ask whether an instance shall go on for so long, where that is needed."""
    async with herd_of(ctx) as herd:
        it = await herd.instances.get(instance)
        price = it.hourly_price
        most = None if price is None else price * seconds / SECONDS_AN_HOUR
        cost = "at a price that is not known" if most is None else f"at most ${_rounded(most)} more"
        return await _decide(ctx, herd, f"Keep {plain(it.id, 60)} for {_duration(seconds)}, {cost}?", most)


def require_yes(answer: ElicitationResult[Confirm], undone: str) -> None:
    """Go on only if a person has said yes, or did not have to be asked."""
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
    said = "an unknown amount" if most is None else f"${_rounded(most)}"
    raise refusal(
        "CONFIRMATION_NEEDED",
        f"this may cost {said}, more than ${limit}, and this client cannot ask a person",
        f"something of at most ${limit} in all (a shorter lease, a cheaper GPU); a client that supports "
        "elicitation; or a key with a strict budget",
    )


def _can_ask(ctx: Ctx) -> bool:
    capabilities = ctx.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    # One that names no mode is of a time when forms were the only one.
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def _words(names: tuple[str, ...]) -> str:
    return " or ".join(plain(it, 60) for it in names[:3])


def _rounded(amount: Decimal) -> Decimal:
    """Round up: what is asked for must not be less than what it costs."""
    return amount.quantize(CENT, ROUND_CEILING)


def _duration(seconds: int) -> str:
    hours, minutes = divmod((seconds + 59) // 60, 60)
    words = [f"{hours} h"] * bool(hours) + [f"{minutes} min"] * bool(minutes)
    return " ".join(words) or "0 min"
