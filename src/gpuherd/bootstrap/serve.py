"""`gpuherd serve`: the service behind its HTTP API, until somebody ends it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
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
            link = replace(link, machines_are_here=True)
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
    with listening(settings.host, settings.port) as door:
        async with running_service(settings, SystemClock(), simulator=simulator, speed=speed) as service:
            server = HttpServer(service)
            server.obey_signals()
            _greet(settings, simulator=simulator)
            await server.serve(sockets=[door])


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Take the port before anything else is begun, and say plainly when it cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        door = socket.socket(family, kind, protocol)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(address)
    except OSError as error:
        raise CannotStart(f"port {port} on {host} cannot be used: {error.strerror}") from error
    with door:
        yield door


class HttpServer(uvicorn.Server):
    """uvicorn with limits on slow and idle clients. It leaves the end of the process to us."""

    def __init__(self, service: Service):
        config = uvicorn.Config(
            build_app(service.plane),
            log_config=None,
            access_log=False,
            server_header=False,
            # Whoever writes such a header says what he likes.
            proxy_headers=False,
            lifespan="off",
            timeout_keep_alive=60,
            timeout_graceful_shutdown=5,
            limit_concurrency=2000,
        )
        super().__init__(config)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn would raise the signal again after its own end, before the service could end its work.
        yield

    def obey_signals(self) -> None:
        """End politely on the first signal, and at once on the second."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._told)

    def _told(self) -> None:
        if self.should_exit:
            # Nothing is lost: whatever is under way is found again at the next start, as after a crash.
            os._exit(1)
        self.should_exit = True


def _greet(settings: Settings, *, simulator: bool) -> None:
    if not sys.stderr.isatty():
        return
    cloud = "a simulated Novita" if simulator else settings.novita_api_base_url
    sys.stderr.write(
        f"gpuherd serves {settings.server_url} on {cloud}; data in {settings.data_dir}. Ctrl-C ends it.\n"
    )


def run_serve(settings: Settings, *, simulator: bool, speed: float) -> None:
    """Block until the service has ended."""
    # Whatever is written from here on is for this user only.
    os.umask(0o077)
    with asyncio.Runner(loop_factory=_loop) as runner:
        runner.run(serve(settings, simulator=simulator, speed=speed))


def _loop() -> asyncio.AbstractEventLoop:
    import uvloop  # noqa: PLC0415  not to be found on every platform

    return uvloop.new_event_loop()
