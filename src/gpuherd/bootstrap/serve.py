"""`gpuherd serve`: the service behind its HTTP API, until somebody ends it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import structlog
import uvicorn

from gpuherd.adapters.logs import configure_logs
from gpuherd.bootstrap.cloud import novita_link
from gpuherd.bootstrap.data_dir import CannotStart, admin_key
from gpuherd.bootstrap.service import Service, build_service
from gpuherd.clock import Clock, SystemClock
from gpuherd.domain.secret import Secret
from gpuherd.entrypoints.http.app import build_app
from gpuherd.settings import Settings
from gpuherd.simulator.server import SimulatorServer, start_simulator
from gpuherd.simulator.world import World

log = structlog.get_logger()

SIMULATOR_KEY = Secret("sk_simulated")
WORLD_FILE = "simulator.json"
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

NO_KEY = (
    "no NOVITA_API_KEY is set. Put your key into the environment or gpuherd.toml, "
    "or try gpuherd without one: gpuherd serve --simulator"
)


@contextlib.asynccontextmanager
async def simulated(settings: Settings, clock: Clock, speed: float) -> AsyncIterator[SimulatorServer]:
    """Run a simulated Novita beside the service; its machines outlive a restart, as real ones would."""
    path = settings.data_dir / WORLD_FILE
    world = _remembered_world(path, clock, speed)
    server = await start_simulator(world)
    try:
        yield server
    finally:
        await server.close()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(json.dumps(world.dump()))


def _remembered_world(path: Path, clock: Clock, speed: float) -> World:
    chance = random.Random()
    if path.exists():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return World.load(json.loads(path.read_text()), clock, chance, speed=speed)
    return World(clock, chance, speed=speed)


@contextlib.asynccontextmanager
async def running_service(
    settings: Settings, clock: Clock, *, simulator: bool, speed: float = 1.0
) -> AsyncIterator[Service]:
    """Build, start and in the end stop a service, on the real cloud or on a simulated one."""
    chance = random.SystemRandom()
    async with contextlib.AsyncExitStack() as stack:
        if simulator:
            server = await stack.enter_async_context(simulated(settings, clock, speed))
            link = novita_link(settings, server.base_url, SIMULATOR_KEY, clock, chance)
        elif settings.novita_api_key is not None:
            link = novita_link(settings, settings.novita_api_base_url, settings.novita_api_key, clock, chance)
        else:
            raise CannotStart(NO_KEY)
        service = await build_service(settings, link, clock, chance)
        await service.start()
        try:
            yield service
        finally:
            await service.stop()


async def serve(settings: Settings, *, simulator: bool, speed: float) -> None:
    """Serve until a signal ends it."""
    if settings.host not in LOOPBACK and settings.admin_key is None:
        raise CannotStart(
            f"GPUHERD_HOST is {settings.host}, which others can reach; set GPUHERD_ADMIN_KEY "
            "(16 characters or more) first, so that you know who can get in"
        )
    key = admin_key(settings.data_dir, settings.admin_key)
    configure_logs(
        settings.log_level, [key, settings.novita_api_key, settings.webhook_secret, settings.api_key]
    )
    async with running_service(settings, SystemClock(), simulator=simulator, speed=speed) as service:
        server = http_server(service, settings.host, settings.port)
        _greet(settings, simulator=simulator)
        await server.serve()


def http_server(service: Service, host: str, port: int) -> uvicorn.Server:
    """Return the HTTP server for a service, with limits on slow and idle clients."""
    config = uvicorn.Config(
        build_app(service.plane),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_keep_alive=60,
        timeout_graceful_shutdown=5,
        limit_concurrency=2000,
    )
    return uvicorn.Server(config)


def _greet(settings: Settings, *, simulator: bool) -> None:
    if not sys.stderr.isatty():
        return
    cloud = "a simulated Novita" if simulator else settings.novita_api_base_url
    sys.stderr.write(
        f"gpuherd serves {settings.server_url} on {cloud}; data in {settings.data_dir}. Ctrl-C ends it.\n"
    )


def run_serve(settings: Settings, *, simulator: bool, speed: float) -> None:
    """Block until the service has ended."""
    with asyncio.Runner(loop_factory=_loop) as runner:
        runner.run(serve(settings, simulator=simulator, speed=speed))


def _loop() -> asyncio.AbstractEventLoop:
    import uvloop  # noqa: PLC0415  not to be found on every platform

    return uvloop.new_event_loop()
