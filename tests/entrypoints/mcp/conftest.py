"""The MCP server in memory, over the whole application on a simulated cloud, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

import httpx
import pytest
from mcp import Client
from mcp_types import ElicitResult, TextContent

from gpuherd.client.async_client import AsyncGpuherd
from gpuherd.entrypoints.mcp.mcp_server import build_server
from gpuherd.entrypoints.mcp.mcp_session import AgentSession
from tests.client.support.real_app import URL, AppTransport, HerdClock
from tests.entrypoints.http.conftest import KEY, anonymous, api, clock, herd, meter, plane
from tests.support.fake_clock import FakeClock

__all__ = ["anonymous", "api", "clock", "herd", "meter", "plane"]

# RTX 4090 costs 0.2 an hour in the simulated catalogue: two hours of it are above this.
ASK_ABOVE = Decimal("0.10")
Answer = Literal["accept", "no", "decline", "cancel"]


@dataclass
class Agent:
    """An agent with a client of one era, and a person who answers, if the client can ask one."""

    http: httpx.AsyncClient
    clock: FakeClock
    mode: str = "auto"
    key: str = KEY
    answer: Answer | None = None
    is_read_only: bool = False
    ask_above: Decimal = ASK_ABOVE
    asked: list[str] = field(default_factory=list)

    def client(self) -> Client:
        clock = HerdClock(self.clock, asyncio.get_running_loop())

        def connect() -> AsyncGpuherd:
            return AsyncGpuherd(URL, "key", transport=AppTransport(self.http, self.key), clock=clock)

        server = build_server(AgentSession(connect, self.is_read_only, self.ask_above))
        callback = None if self.answer is None else self._ask
        return Client(server, mode=self.mode, elicitation_callback=callback)

    async def _ask(self, context: Any, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        if self.answer in ("decline", "cancel"):
            return ElicitResult(action=self.answer)
        return ElicitResult(action="accept", content={"confirmed": self.answer == "accept"})

    async def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool; a refusal is returned like an answer."""
        async with self.client() as client:
            return answer_of(await client.call_tool(tool, arguments))

    async def plan(self, **wish: Any) -> dict[str, Any]:
        return await self("plan_rental", product_name="RTX 4090 24GB", template_id="101", **wish)


def answer_of(result: Any) -> dict[str, Any]:
    """Return what a tool has answered, or refused with."""
    if not result.is_error:
        assert isinstance(result.structured_content, dict)
        return result.structured_content
    (content,) = result.content
    assert isinstance(content, TextContent)
    _, _, said = content.text.partition(": ")
    refused: dict[str, Any] = json.loads(said)
    return refused


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def an_agent(api: httpx.AsyncClient, clock: FakeClock) -> Callable[..., Agent]:
    def made(**about: Any) -> Agent:
        return Agent(api, clock, **about)

    return made
