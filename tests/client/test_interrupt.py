"""Ctrl-C in a real program: whatever it was doing, what it rented is given back."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from tests.client.test_docs import LIMIT_S, server
from tests.support.processes.services import KEY, Server

__all__ = ["server"]

PROGRAM = """
import time
from gpuherd.client import Gpuherd

with Gpuherd() as herd:
    tell = lambda it: print(it.status, flush=True)
    with herd.rent("job", product_name="RTX 4090 24GB", template_id="101", on_progress=tell) as gpu:
        print("inside", flush=True)
        time.sleep(600)
"""


async def interrupted_at(word: str, url: str) -> int:
    """Run the program, send it Ctrl-C when it has said `word`, and return its exit code."""
    env = {"PATH": os.environ["PATH"], "GPUHERD_URL": url, "GPUHERD_API_KEY": KEY}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, env=env, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(LIMIT_S):
            while word not in (line := (await process.stdout.readline()).decode()):
                assert line, "it ended too soon"
            process.send_signal(signal.SIGINT)
            return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()


@pytest.mark.processes
async def test_an_interrupted_program_gives_back_what_it_rented(server: Server) -> None:
    codes = await asyncio.gather(interrupted_at("creating", server.url), interrupted_at("inside", server.url))
    assert all(codes)
    _, listed = await server.call("GET", "/api/instances")
    assert [it["goal"] for it in listed["instances"]] == ["deleted", "deleted"]
