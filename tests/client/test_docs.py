"""What docs/client.md shows is run, block by block, against a real server."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_signing import Signer
from tests.client.support.server import InstantClock
from tests.client.test_webhook import BODY
from tests.support.processes.services import KEY, Novita, Server

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
RECEIVER = next(it for it in BLOCKS if "def receive" in it)
LIMIT_S = 80.0


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    novita = Novita(tmp_path)
    await novita.process.start()
    try:
        async with asyncio.timeout(LIMIT_S):
            while "simulated Novita" not in novita.process.log.read_text():
                await asyncio.sleep(0.05)
        it = Server(tmp_path, novita)
        await it.process.start()
        try:
            await it.ready()
            yield it
        finally:
            if it.process.exit_code is None:
                await it.process.end()
    finally:
        await novita.process.end()


async def run(block: str, url: str) -> str:
    env = {"PATH": os.environ["PATH"], "GPUHERD_URL": url, "GPUHERD_API_KEY": KEY}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", block),
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, f"{block}\n{said.decode()}"
    return said.decode()


@pytest.mark.processes
async def test_every_block_does_what_it_shows(server: Server) -> None:
    async with asyncio.timeout(LIMIT_S):
        said = await asyncio.gather(*(run(it, server.url) for it in BLOCKS))
    rent, where, steps, lists, followed, shards, live, errors, _, _ = said
    assert followed.split()[-1] == "exited"
    assert re.search(r"^RTX 4090 24GB in \S+ for \$0\.\d+/h\n.*ssh ", rent)
    assert where == "healthy\n"
    assert "succeeded" in steps and "instance.deleted" in steps
    assert "USD an hour for machines that nobody has" in lists
    assert {line.split()[0] for line in shards.splitlines()} == {"shard-0", "shard-1"}
    assert "instance.created" in live
    assert "gpuNum" in errors and "INSTANCE_NOT_FOUND" in errors
    # Nothing that the page rents stays.
    _, listed = await server.call("GET", "/api/instances")
    assert {it["goal"] for it in listed["instances"]} == {"deleted"}


def test_the_receiver_believes_what_is_signed_now_and_nothing_else() -> None:
    page: dict[str, object] = {}
    exec(RECEIVER, page)
    receive = page["receive"]
    assert callable(receive)
    signer = Signer([Secret(str(page["SECRET"]))])
    assert receive(signer.headers("msg_1", BODY, datetime.now(UTC)), BODY) == 204
    assert receive(signer.headers("msg_1", BODY, InstantClock().now()), BODY) == 401
