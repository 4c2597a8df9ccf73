"""`gpuherd serve`: the service behind its HTTP API, until somebody ends it."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
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

from gpuherd.adapters.logging_setup import configure_logs
from gpuherd.adapters.stores.database_clock import DatabaseClock
from gpuherd.adapters.system_clock import SystemClock, SystemRandom
from gpuherd.bootstrap.build_cloud import novita_link
from gpuherd.bootstrap.key_files import CannotStart, admin_key
from gpuherd.bootstrap.service_lifecycle import Service, build_service
from gpuherd.domain.cloud.account_identity import SIMULATOR
from gpuherd.domain.secret import Secret
from gpuherd.entrypoints.use_case_access import add_request_ids
from gpuherd.ports.clock_port import Clock
from gpuherd.settings import NO_NOVITA_KEY, Settings
from gpuherd.usecases.service.leader_election import ALL, WORKER

log = structlog.get_logger()

SIMULATOR_KEY = Secret("sk_simulated")
SIMULATOR_STATE_FILE = "simulator.json"
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})


@contextlib.contextmanager
def bound_socket(host: str, port: int) -> Iterator[socket.socket]:
    """Take the port before anything else is begun, and say plainly when it cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise CannotStart(f"port {port} on {host} cannot be used: {error.strerror}") from error
    with listener:
        yield listener


@contextlib.asynccontextmanager
async def running_simulator(settings: Settings, clock: Clock, speed: float) -> AsyncIterator[str]:
    """Run a simulated Novita beside the service, and yield its address.

    Its machines outlive a restart, as real ones would.
    """
    # A service with a real cloud does not load the simulator.
    from gpuherd.simulator.simulator_app import start_simulator  # noqa: PLC0415
    from gpuherd.simulator.world import World  # noqa: PLC0415

    path = settings.data_dir / SIMULATOR_STATE_FILE
    world = World(clock, random.Random(), speed=speed)
    if path.exists():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            world = World.load(json.loads(path.read_text()), clock, random.Random(), speed=speed)
    server = await start_simulator(world)
    try:
        yield server.base_url
    finally:
        await server.close()
        _save(json.dumps(world.dump()), path)


def _save(world: str, path: Path) -> None:
    """Write a world down for the next start; where there is no room for it, what is there stays."""
    new_file = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new_file.write_text(world)
        new_file.replace(path)
    except OSError as error:
        log.warning("simulator.world_not_saved", file=str(path), error=error.strerror)
        with contextlib.suppress(OSError):
            new_file.unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def running_service(
    settings: Settings,
    clock: Clock,
    *,
    simulator: bool,
    speed: float = 1.0,
    role: str = ALL,
) -> AsyncIterator[Service]:
    """Build, start and in the end stop a service, on the real cloud or on a simulated one."""
    rng = SystemRandom()
    if settings.sqlite_path is None:
        # Several machines write into one database, and compare what they have written.
        clock = DatabaseClock(clock)
    async with contextlib.AsyncExitStack() as stack:
        if simulator:
            base_url = await stack.enter_async_context(running_simulator(settings, clock, speed))
            link = novita_link(settings, base_url, SIMULATOR_KEY, clock, rng)
            link = replace(link, machines_on_loopback=True, identity=SIMULATOR)
        elif settings.novita_api_key is not None:
            link = novita_link(settings, settings.novita_api_base_url, settings.novita_api_key, clock, rng)
        else:
            raise CannotStart(NO_NOVITA_KEY)
        service = await build_service(settings, link, clock, rng, role)
        try:
            await service.start()
            yield service
        finally:
            await service.stop()


async def serve(settings: Settings, *, simulator: bool, speed: float, role: str) -> None:
    """Serve until a signal ends it."""
    if role != ALL and settings.sqlite_path is not None:
        raise CannotStart(
            f"--role {role} needs other processes beside this one, and a SQLite file has room for one; "
            "set GPUHERD_DATABASE_URL to a PostgreSQL database, or leave --role out"
        )
    if settings.host not in LOOPBACK_HOSTS and settings.admin_key is None:
        raise CannotStart(
            f"GPUHERD_HOST is {settings.host}, which others can reach; set GPUHERD_ADMIN_KEY "
            "(16 characters or more) first, so that you know who can get in"
        )
    key = admin_key(settings.data_dir, settings.admin_key)
    configure_logs(
        settings.log_level,
        [
            key,
            settings.novita_api_key,
            settings.webhook_secret,
            settings.webhook_secret_previous,
            settings.api_key,
        ],
        add_context=add_request_ids,
    )
    with (
        exit_on_sigterm(),
        bound_socket(settings.host, settings.port) as listener,
    ):
        async with running_service(
            settings, SystemClock(), simulator=simulator, speed=speed, role=role
        ) as service:
            # Background work runs while the HTTP server is still being loaded.
            http_server = await asyncio.to_thread(importlib.import_module, "gpuherd.bootstrap.http_server")
            server = http_server.HttpServer(service, worker=role == WORKER)
            server.handle_signals()
            _print_banner(settings, simulator=simulator)
            await server.serve(sockets=[listener])


@contextlib.contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM cancel this task and end the process with 0, while the service starts.

    A second SIGTERM ends the process at once.
    The HTTP server takes the signal over later, without a gap. Without a handler, the first process of a
    container would ignore the signal.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    signalled = False

    def on_sigterm() -> None:
        nonlocal signalled
        if signalled:
            # Nothing is lost: the next start finds whatever is under way, as after a crash.
            os._exit(1)
        signalled = True
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, on_sigterm)
    try:
        yield
    except asyncio.CancelledError:
        if signalled:
            raise SystemExit(0) from None
        raise


def _print_banner(settings: Settings, *, simulator: bool) -> None:
    if not sys.stderr.isatty():
        return
    cloud = "a simulated Novita" if simulator else settings.novita_api_base_url
    sys.stderr.write(
        f"gpuherd serves {settings.server_url} on {cloud}; data in {settings.data_dir}. Ctrl-C ends it.\n"
    )


def run_serve(settings: Settings, *, simulator: bool, speed: float, role: str) -> None:
    """Block until the service has ended."""
    # Whatever is written from here on is for this user only.
    os.umask(0o077)
    import uvloop  # noqa: PLC0415  no other command needs it

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(settings, simulator=simulator, speed=speed, role=role))
