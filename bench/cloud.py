"""A simulated Novita for benchmarks: as much stock as anybody wants, a fixed latency, and the plain truth.

Below `/_bench` it tells what only the cloud knows: since when each machine runs, and how often it was asked;
and there its pulls can be ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aiohttp import web

from gpuherd.adapters.system_clock import SystemClock
from gpuherd.simulator.faults import Fault, FaultKind
from gpuherd.simulator.simulated_machine import NovitaAddresses, StatusChange
from gpuherd.simulator.simulated_request import CreateRequest, ExposedPort
from gpuherd.simulator.simulator_app import make_app
from gpuherd.simulator.world import World

UNITS = 10**6
REQUEST = CreateRequest(
    product_id="4090.16c62g", cluster_id="us-ca-6", ports=(ExposedPort(8888, "http"), ExposedPort(22, "tcp"))
)


def new_world(speed: float) -> World:
    """Return an empty world with stock for everybody."""
    return World(SystemClock(), random.Random(1), speed=speed, units=UNITS)


def load_world(path: Path) -> World:
    """Return the world that `seeding` prepared."""
    return World.load(json.loads(path.read_text()), SystemClock(), random.Random(2))


def rent_all(world: World, names: Iterable[str]) -> None:
    """Rent a machine under each of the names, all alike."""
    for name in names:
        world.create(CreateRequest(**{**_fields(REQUEST), "name": name}))


def _fields(request: CreateRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.__slots__}


async def serve_world(world: World, port: int) -> web.AppRunner:
    """Serve until the runner is cleaned up."""
    # The addresses of machines must not depend on the port of this run: a prepared database knows them.
    world.addresses = NovitaAddresses()
    app = make_app(world)

    async def running(_: web.Request) -> web.Response:
        now = world.now()
        return web.json_response({it.id: it.last("running", now) for it in world.machines.values()})

    async def calls(_: web.Request) -> web.Response:
        return web.json_response(dict(world.calls))

    async def finish_pulls(_: web.Request) -> web.Response:
        now = world.now()
        for it in world.machines.values():
            if it.status(now) == "pulling":
                it.replan(now, StatusChange(now, "running"))
        return web.json_response({})

    app.router.add_get("/_bench/running", running)
    app.router.add_post("/_bench/finish-pulls", finish_pulls)
    app.router.add_get("/_bench/calls", calls)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return runner


async def _serve(port: int, world: World) -> None:
    await serve_world(world, port)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--world", type=Path)
    parser.add_argument("--names", type=Path, help="rent a machine for each line before anybody asks")
    parser.add_argument("--latency-s", type=float, default=0.0)
    options = parser.parse_args()
    world = load_world(options.world) if options.world else new_world(options.speed)
    if options.names:
        rent_all(world, options.names.read_text().split())
    if options.latency_s:
        world.faults.add(Fault(FaultKind.HANG, seconds=options.latency_s))
    asyncio.run(_serve(options.port, world))


if __name__ == "__main__":
    main()
