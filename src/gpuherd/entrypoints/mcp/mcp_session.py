"""One MCP session: its client, refusals, and text that is safe to show."""

from __future__ import annotations

import json
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from gpuherd.client.async_client import AsyncGpuherd
from gpuherd.client.client_errors import ApiError, GpuherdError
from gpuherd.contract.instance import Instance

Json = dict[str, Any]


# Not the webhook, nor the pages of the machine: their addresses may hold a token.
INSTANCE_FIELDS = (
    *("id", "name", "status", "statusReason", "usable", "productName", "gpuNum", "region", "billingMode"),
    *(
        "hourlyPrice",
        "maxHourlyPrice",
        "templateId",
        "imageUrl",
        "volumes",
        "labels",
        "portMappings",
        "lease",
    ),
    *("autoStop", "cost", "waits", "lastError", "lossExpectedAt", "replaces", "replacedBy"),
    *("createdAt", "readyAt", "stoppedAt", "estimatedReadyTime"),
)


LISTED_FIELDS = (
    *("id", "name", "status", "usable", "productName", "gpuNum", "region", "hourlyPrice", "lease"),
    "createdAt",
)


def instance_data(it: Instance) -> Json:
    """Return one instance, with the command that logs in where there is one; that holds no password."""
    return {**chosen(it.raw, INSTANCE_FIELDS), "ssh": None if it.ssh is None else plain(it.ssh)}


def chosen(raw: Mapping[str, Any], names: Iterable[str]) -> Json:
    """Return these fields, as far as the server told them."""
    found: Json = plain_data({name: raw[name] for name in names if name in raw})
    return found


def rows(name: str, found: Sequence[Any], more: bool = False) -> Json:
    """Return a list that is not longer than anybody reads, and whether it was."""
    return {name: plain_data(list(found[:ROWS_MAX])), "cut": more or len(found) > ROWS_MAX}


TEXT_MAX = 300


# Of lists and objects, whatever they hold.
ROWS_MAX = 50


DEPTH_MAX = 8


def plain(text: str, length: int = TEXT_MAX) -> str:
    """Return a text without line breaks, control, invisible and bidirectional characters, cut to a length."""
    # What is not printable for Python is what has no shape of its own, or changes that of others.
    # guard: texts of others are plain
    visible = "".join(it if it.isprintable() else " " for it in text)
    line = " ".join(visible.split())
    return line if len(line) <= length else line[: length - 1] + "…"


def plain_data(value: Any, depth: int = DEPTH_MAX) -> Any:
    """Return JSON with nothing but plain texts in it, and no more of it than anybody reads."""
    match value:
        case str():
            return plain(value)
        case dict() if depth:
            rows = list(value.items())[:ROWS_MAX]
            return {plain(str(name), 100): plain_data(it, depth - 1) for name, it in rows}
        case list() | tuple() if depth:
            return [plain_data(it, depth - 1) for it in value[:ROWS_MAX]]
        case dict() | list() | tuple():
            return "…"
        case _:
            return value


ALLOWED = {
    "PLAN_EXPIRED": "call plan_rental again and rent the new plan",
    "PLAN_NOT_FOUND": "call plan_rental first, and rent the planId that it returns",
    "FORBIDDEN": "only to look: this key may not change anything",
    "UNAUTHORIZED": "nothing: the key is not known to this server; ask a person for another one",
    "BUDGET_EXHAUSTED": "something cheaper or shorter, within what details say is left",
    "QUOTA_EXCEEDED": "as much as the limits in details leave; stop or delete something first",
    "LEASE_ENDED": "a new rental: plan_rental, then rent",
    "INVALID_LEASE": "a shorter lease: details or the reason say how long it may be",
    "NO_OPTIMAL_PRODUCT_ANY_REGION": "another product, region or price: find_offers shows what there is",
    "INVALID_VOLUMES": "volumes that list_volumes shows, all of one region, each at a path of its own",
    "REGISTRY_AUTH_NOT_FOUND": "an id that list_registry_credentials shows",
    "INSTANCE_NOT_FOUND": "an id or name that list_instances returns",
}


OTHERWISE = "read the reason, and change the request or ask a person"


def refusal(code: str, reason: str, allowed: str, details: Mapping[str, Any] | None = None) -> ToolError:
    """Return what a tool raises: JSON, so that no text in it can pass for ours."""
    said = {"refused": code, "reason": plain(reason), "allowed": allowed}
    if details:
        said["details"] = plain_data(dict(details))
    return ToolError(json.dumps(said, ensure_ascii=False, default=str))


def refusal_of(error: GpuherdError) -> ToolError:
    """Return what the server, or the way to it, has refused."""
    if not isinstance(error, ApiError):
        advice = "try again; if it was a rental, with the same planId: it never rents twice"
        return refusal("NO_ANSWER", str(error), advice)
    problems = {it.field: it.message for it in error.errors}
    allowed = ALLOWED.get(error.code, OTHERWISE)
    return refusal(error.code, error.detail, allowed, {**error.details, **problems})


ASK_ABOVE_USD = Decimal("0.50")


@dataclass(frozen=True)
class AgentSession:
    """One for the whole server; whose call it is, `connect` knows."""

    # Returns a client with the key of the caller: MCP itself has no right to anything.
    connect: Callable[[], AsyncGpuherd]
    is_read_only: bool = False
    # What may cost more than this in all is not rented without a person's word.
    ask_above_usd: Decimal = ASK_ABOVE_USD


Ctx = Context[AgentSession, Any]


def session_of(ctx: Ctx) -> AgentSession:
    """Return what the tools share."""
    session = ctx.request_context.lifespan_context
    assert isinstance(session, AgentSession)
    return session


@asynccontextmanager
async def herd_of(ctx: Ctx) -> AsyncIterator[AsyncGpuherd]:
    """Talk to the server; whatever it refuses is told in a form that an agent can act on."""
    try:
        async with session_of(ctx).connect() as herd:
            yield herd
    except GpuherdError as error:
        raise refusal_of(error) from error


async def note_use(ctx: Ctx, herd: AsyncGpuherd, instance: str) -> None:
    """Count a call about an instance as its use: who has an agent at work on it is not silent."""
    if session_of(ctx).is_read_only:
        return
    try:
        await herd.instances.heartbeat(instance)
    except ApiError:
        # A key that may only look, or nothing to use: the call itself goes on.
        return


InstanceRef = Annotated[str, Field(description="Id or name, as list_instances returns it.", max_length=200)]
