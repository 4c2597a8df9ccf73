"""Serves a world over HTTP on one port: Novita's API, the programs on the machines, and the controls."""

from __future__ import annotations

from typing import Literal

from aiohttp import web

from gpuherd.simulator.api.app import add_api
from gpuherd.simulator.api.control import add_control
from gpuherd.simulator.api.machine_apps import add_apps
from gpuherd.simulator.world.addresses import LocalAddresses, NovitaAddresses
from gpuherd.simulator.world.world import World

# Calls that hang on purpose would hold up the end for as long as they hang.
SHUTDOWN_S = 0.2

Endpoints = Literal["local", "novita"]


class SimulatorServer:
    """A running simulator."""

    def __init__(self, runner: web.AppRunner, world: World, base_url: str) -> None:
        self._runner = runner
        self.world = world
        self.base_url = base_url

    async def close(self) -> None:
        await self._runner.cleanup()


def make_app(world: World) -> web.Application:
    """Return the application, for callers with a server of their own."""
    app = web.Application()
    add_api(app, world)
    add_apps(app, world)
    add_control(app, world)
    return app


async def start_simulator(
    world: World,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    endpoints: Endpoints = "local",
) -> SimulatorServer:
    """Serve `world`; port 0 takes any free one.

    `endpoints` says where machines claim to be: at this server, which answers for them, or at Novita's names.
    """
    runner = web.AppRunner(make_app(world), access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    try:
        await site.start()
    except OSError:
        await runner.cleanup()
        raise
    base_url = _base_url(host, runner)
    world.addresses = LocalAddresses(base_url) if endpoints == "local" else NovitaAddresses()
    return SimulatorServer(runner, world, base_url)


def _base_url(host: str, runner: web.AppRunner) -> str:
    port = runner.addresses[0][1]
    # An address that means "all interfaces" is none that a client can call.
    name = "127.0.0.1" if host in ("", "0.0.0.0", "::") else host  # noqa: S104 - compared, not bound
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
