"""`gpuherd mcp` as a process, over the standard streams and over HTTP, with two client libraries."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import fastmcp
import httpx2
import pytest
from fastmcp.client.elicitation import ElicitResult as WitnessAnswer
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from tests.entrypoints.mcp.conftest import answer_of
from tests.scenarios.conftest import novita, server
from tests.support.processes.services import KEY, Novita, Process, Server, free_port

pytestmark = pytest.mark.processes
__all__ = ["novita", "server"]

WISH = {"product_name": "RTX 4090 24GB", "template_id": "101"}


async def say_yes(context: Any, params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"confirmed": True})


def stdio(server: Server, pid_file: Path) -> StdioServerParameters:
    """Start `gpuherd mcp` as a client would; the shell notes its number, so that it can be killed."""
    line = f'echo $$ > "{pid_file}"; exec "{sys.executable}" -m gpuherd mcp'
    env = {
        "GPUHERD_URL": server.url,
        "GPUHERD_API_KEY": KEY,
        "PATH": os.environ["PATH"],
        "HOME": str(pid_file),
    }
    env |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return StdioServerParameters(command="/bin/sh", args=["-c", line], env=env, cwd=str(pid_file.parent))


@pytest.mark.proves("A2")
async def test_an_agent_that_was_killed_loses_its_machine_at_the_end_of_the_lease(
    tmp_path: Path, server: Server, novita: Novita
) -> None:
    pid_file = tmp_path / "mcp.pid"
    made: dict[str, Any] = {}
    with contextlib.suppress(Exception):
        async with Client(stdio(server, pid_file), elicitation_callback=say_yes) as client:
            wish = {**WISH, "lease_seconds": 10, "then": "delete"}
            plan = answer_of(await client.call_tool("plan_rental", wish))
            made = answer_of(await client.call_tool("rent", {"plan_id": plan["planId"]}))
            os.kill(int(pid_file.read_text()), signal.SIGKILL)
            await client.call_tool("list_instances", {})
    assert made, "it was killed after it had rented"
    async with asyncio.timeout(90):
        while (await server.instance(made["id"]))["status"] != "deleted":
            await asyncio.sleep(0.2)
    assert await novita.machines() == []


async def test_a_plan_outlives_the_agent_that_made_it_and_is_rented_once(
    tmp_path: Path, server: Server, novita: Novita
) -> None:
    pid_file = tmp_path / "mcp.pid"
    plan: dict[str, Any] = {}
    with contextlib.suppress(Exception):
        async with Client(stdio(server, pid_file), elicitation_callback=say_yes) as client:
            plan = answer_of(await client.call_tool("plan_rental", WISH))
            os.kill(int(pid_file.read_text()), signal.SIGKILL)
            await client.call_tool("rent", {"plan_id": plan["planId"]})
    assert plan, "it was killed after it had planned"
    assert (await server.call("GET", "/api/instances"))[1]["total"] == 0
    assert await novita.machines() == []

    async with Client(stdio(server, pid_file), elicitation_callback=say_yes) as client:
        made = [answer_of(await client.call_tool("rent", {"plan_id": plan["planId"]})) for _ in range(2)]
    assert made[0]["id"] == made[1]["id"]
    assert (await server.until_settled(made[0]["id"]))["usable"]
    assert len(await novita.machines()) == 1


@contextlib.asynccontextmanager
async def over_http(tmp_path: Path, server: Server) -> AsyncIterator[str]:
    port = free_port()
    # A key of its own would be of no use to anybody: each request brings one.
    env = {"GPUHERD_URL": server.url, "GPUHERD_MCP_ASK_ABOVE": "0"}
    process = Process(["mcp", "--http", str(port)], env, tmp_path / "mcp.log", forked=False)
    await process.start()
    url = f"http://127.0.0.1:{port}/mcp"
    try:
        async with asyncio.timeout(60), aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.post(url):
                        break
                assert process.exit_code is None, process.log.read_text()
                await asyncio.sleep(0.1)
        yield url
    finally:
        await process.end()
    assert KEY not in process.log.read_text()


async def test_over_http_each_call_has_the_rights_of_its_own_key(tmp_path: Path, server: Server) -> None:
    _, reader = await server.call("POST", "/api/keys", {"scopes": ["read"]})
    _, writer = await server.call("POST", "/api/keys", {"scopes": ["write"], "limits": {"maxGpus": 1}})
    async with over_http(tmp_path, server) as url:
        for headers in ({}, {"Authorization": "Bearer ghk_wrong"}):
            async with aiohttp.ClientSession() as session, session.post(url, headers=headers) as reply:
                assert reply.status == 401
        rebound = {"Authorization": f"Bearer {KEY}", "Host": "evil.example"}
        async with aiohttp.ClientSession() as session, session.post(url, json={}, headers=rebound) as reply:
            assert reply.status == 421

        @contextlib.asynccontextmanager
        async def agent_of(key: str, mode: str = "auto") -> AsyncIterator[Client]:
            http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=60)
            transport = streamable_http_client(url, http_client=http)
            async with http, Client(transport, mode=mode, elicitation_callback=say_yes) as client:
                yield client

        async def plan_and_rent(key: str, mode: str) -> dict[str, Any]:
            async with agent_of(key, mode) as client:
                plan = answer_of(await client.call_tool("plan_rental", WISH))
                return answer_of(await client.call_tool("rent", {"plan_id": plan.get("planId", "none")}))

        assert (await plan_and_rent(reader["key"], "auto"))["refused"] == "PLAN_NOT_FOUND"
        made = [await plan_and_rent(KEY, mode) for mode in ("auto", "legacy")]
        assert len({it["id"] for it in made}) == 2

        # A plain key may write, and sees, plans and ends what is its own; its limits hold.
        own = await plan_and_rent(writer["key"], "auto")
        async with agent_of(KEY) as admin, agent_of(writer["key"]) as client:
            listed = answer_of(await client.call_tool("list_instances", {}))["instances"]
            assert [it["id"] for it in listed] == [own["id"]]
            others = answer_of(await admin.call_tool("plan_rental", WISH))["planId"]
            for tool, arguments, code in (
                ("rent", {"plan_id": others}, "PLAN_NOT_FOUND"),
                ("show_instance", {"instance": made[0]["id"]}, "INSTANCE_NOT_FOUND"),
                ("delete_instance", {"instance": made[0]["id"]}, "INSTANCE_NOT_FOUND"),
            ):
                assert answer_of(await client.call_tool(tool, arguments))["refused"] == code
            assert answer_of(await client.call_tool("plan_rental", WISH)).get("planId") is None
            ended = await client.call_tool("delete_instance", {"instance": own["id"]})
            assert not ended.is_error

        # Another library understands the same: the tools, the question, the answer, and a no.
        said: list[str] = []

        async def witness(message: str, *_: Any) -> Any:
            said.append(message)
            return {"confirmed": True} if len(said) == 1 else WitnessAnswer(action="decline")

        for mode in ("auto", "legacy"):
            said.clear()
            async with fastmcp.Client(url, auth=KEY, elicitation_handler=witness, mode=mode) as client:
                assert {it.name for it in await client.list_tools()} > {"plan_rental", "rent"}
                for expected in (False, True):
                    plan = (await client.call_tool("plan_rental", WISH)).structured_content
                    result = await client.call_tool("rent", {"plan_id": plan["planId"]}, raise_on_error=False)
                    assert result.is_error is expected
            assert len(said) == 2 and said[0].startswith("Rent 1 x RTX 4090 24GB")


async def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    # A module of this name that is none stands for its absence.
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['mcp'] = None\n")
    env = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    process = Process(["mcp"], env, tmp_path / "out.log", forked=False)
    await process.start()
    assert await process.wait() == 78
    said = process.log.read_text()
    assert "pip install 'gpuherd[mcp]'" in said and "Traceback" not in said
