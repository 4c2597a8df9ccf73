"""What the tools share: how to reach the server with the key of whoever calls, and what is agreed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from mcp.server.mcpserver import Context

from gpuherd.client import ApiError, AsyncGpuherd, GpuherdError
from gpuherd.entrypoints.mcp.refusal import refusal_of

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
