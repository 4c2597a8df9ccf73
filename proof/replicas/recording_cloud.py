"""A simulated Novita that also keeps a diary of every create call: when it came, and until when it lasted.

`python -m proof.replicas.recording_cloud --port P`; the diary is at `/_diary`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler

from gpuherd.adapters.system_clock import SystemClock
from gpuherd.simulator.simulated_machine import LocalAddresses
from gpuherd.simulator.simulator_app import SHUTDOWN_S, make_app
from gpuherd.simulator.world import World
from proof.replicas.processes import ModuleProcess
from tests.support.processes.services import Novita

SPEED = 200.0
UNITS = 10**6
CREATE = "/gpu/instance/create"
READY = "simulated Novita"


def record_creates(app: web.Application, world: World) -> None:
    """Let `app` write down each create call, whatever becomes of it."""
    recorded_creates: list[dict[str, Any]] = []

    @web.middleware
    async def noted(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.path.endswith(CREATE):
            return await handler(request)
        line = {"name": json.loads(await request.read())["name"], "began": world.now(), "ended": None}
        recorded_creates.append(line)
        try:
            return await handler(request)
        finally:
            line["ended"] = world.now()

    async def tell(_: web.Request) -> web.Response:
        return web.json_response(recorded_creates)

    app.middlewares.append(noted)
    app.router.add_get("/_diary", tell)


async def serve(port: int) -> None:
    """Serve until the process ends."""
    world = World(SystemClock(), random.Random(1), speed=SPEED, units=UNITS)
    app = make_app(world)
    record_creates(app, world)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    world.addresses = LocalAddresses(f"http://127.0.0.1:{port}")
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


class CreateRecordingCloud(Novita):
    """That process, as its users see it."""

    def __init__(self, directory: Path):
        super().__init__(directory)
        words = ["proof.replicas.recording_cloud", "--port", str(self.port)]
        self.process = ModuleProcess(words, {}, directory / "simulator.log")

    async def start(self) -> None:
        await self.process.start()
        async with asyncio.timeout(60):
            while READY not in self.process.log.read_text():
                assert self.process.exit_code is None, self.process.log.read_text()[-2000:]
                await asyncio.sleep(0.05)

    async def creates(self) -> list[dict[str, Any]]:
        """Return the diary."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/_diary") as reply:
            found: list[dict[str, Any]] = await reply.json()
            return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    asyncio.run(serve(parser.parse_args().port))
