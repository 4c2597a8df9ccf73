"""What all tools of an agent share: the connection, refusals, and texts from outside as bounded data.

Others have written names, labels, reasons and errors. An agent gets them on one line, printable and short, so
that they cannot pass for anything else.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from gpuherd.client.async_client import AsyncGpuherd
from gpuherd.client.client_errors import ApiError, GpuherdError
from gpuherd.contract.instance_models import Instance

TEXT_MAX = 300
# Limits for all lists and objects.
ROWS_MAX = 50
DEPTH_MAX = 8


def one_line(text: str, length: int = TEXT_MAX) -> str:
    """Return a text without line breaks, control, invisible and bidirectional characters, cut to a length."""
    # guard: texts of others are plain
    visible = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(visible.split())
    return line if len(line) <= length else line[: length - 1] + "…"


def safe_json(value: Any, depth: int = DEPTH_MAX) -> Any:
    """Return JSON whose texts are on one line each, and whose lists and depth are bounded."""
    match value:
        case str():
            return one_line(value)
        case dict() if depth:
            entries = list(value.items())[:ROWS_MAX]
            return {one_line(str(name), 100): safe_json(entry, depth - 1) for name, entry in entries}
        case list() | tuple() if depth:
            return [safe_json(entry, depth - 1) for entry in value[:ROWS_MAX]]
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
    """Return the error of a tool: a code, the reason, and what is allowed, as JSON."""
    values: Json = {"refused": code, "reason": one_line(reason), "allowed": allowed}
    if details:
        values["details"] = safe_json(dict(details))
    return ToolError(json.dumps(values, ensure_ascii=False, default=str))


def refusal_of(error: GpuherdError) -> ToolError:
    """Return the refusal for an error of the client."""
    if not isinstance(error, ApiError):
        advice = "try again; if it was a rental, with the same planId: it never rents twice"
        return refusal("NO_ANSWER", str(error), advice)
    problems = {problem.field: problem.message for problem in error.errors}
    allowed = ALLOWED.get(error.code, OTHERWISE)
    return refusal(error.code, error.detail, allowed, {**error.details, **problems})


Json = dict[str, Any]

# Without the webhook and the pages of the machine: their addresses may hold a token.
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


def instance_data(instance: Instance) -> Json:
    """Return one instance, with its ssh command if there is one. The command holds no password."""
    ssh = None if instance.ssh is None else one_line(instance.ssh)
    return {**chosen(instance.raw, INSTANCE_FIELDS), "ssh": ssh}


def chosen(raw: Mapping[str, Any], names: Iterable[str]) -> Json:
    """Return those of the fields that the reply has."""
    found: Json = safe_json({name: raw[name] for name in names if name in raw})
    return found


def rows(name: str, found: Sequence[Any], more: bool = False) -> Json:
    """Return a bounded list, and True as `cut` if it was longer."""
    return {name: safe_json(list(found[:ROWS_MAX])), "cut": more or len(found) > ROWS_MAX}


ASK_ABOVE_USD = Decimal("0.50")


@dataclass(frozen=True)
class AgentSession:
    """What all calls of one server share."""

    # Returns a client with the key of the caller. The MCP server has no rights of its own.
    connect: Callable[[], AsyncGpuherd]
    is_read_only: bool = False
    # A person must confirm a rental that may cost more than this in all.
    ask_above_usd: Decimal = ASK_ABOVE_USD


Ctx = Context[AgentSession, Any]
InstanceArgument = Annotated[
    str, Field(description="Id or name, as list_instances returns it.", max_length=200)
]


def session_of(ctx: Ctx) -> AgentSession:
    """Return the session of a call."""
    session = ctx.request_context.lifespan_context
    assert isinstance(session, AgentSession)
    return session


@asynccontextmanager
async def herd_of(ctx: Ctx) -> AsyncIterator[AsyncGpuherd]:
    """Open a client for one call. Its errors become refusals that an agent can act on."""
    try:
        async with session_of(ctx).connect() as herd:
            yield herd
    except GpuherdError as error:
        raise refusal_of(error) from error


async def note_use(ctx: Ctx, herd: AsyncGpuherd, instance: str) -> None:
    """Send a heartbeat: a call about an instance counts as its use."""
    if session_of(ctx).is_read_only:
        return
    try:
        await herd.instances.heartbeat(instance)
    except ApiError:
        # A read key, or an instance that does not run: the call itself goes on.
        return
