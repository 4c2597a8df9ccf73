"""`gpuherd demo` and `gpuherd simulator`: a service and a simulated Novita without a network."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import random
import secrets
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import click
from aiohttp import web

from gpuherd.adapters.logging_setup import configure_logs
from gpuherd.adapters.system_clock import SystemClock
from gpuherd.bootstrap.http_server import HttpServer
from gpuherd.bootstrap.key_files import CannotStart, admin_key
from gpuherd.bootstrap.serve import bound_socket, running_service
from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_signing import verify
from gpuherd.entrypoints.cli.cli_output import Output
from gpuherd.entrypoints.cli.command_runner import local_command
from gpuherd.ops.startup import exit_if_start_fails
from gpuherd.settings import Settings, load_settings
from gpuherd.simulator.simulator_app import start_simulator
from gpuherd.simulator.simulator_control import apply_scenario, scenario_names
from gpuherd.simulator.world import World

SPEED = 5.0
WEBHOOK_LIMIT_S = 30.0


@local_command("demo", json=False)
def demo(output: Output) -> None:
    """Rent a simulated GPU, watch it become ready, and see its signed webhook arrive."""
    with exit_if_start_fails():
        run_demo()


def run_demo() -> None:
    """Show gpuherd at work. Exit 0 if everything arrived; on a terminal, serve until Ctrl-C."""
    with tempfile.TemporaryDirectory(prefix="gpuherd-demo-") as directory:
        asyncio.run(_demo(Path(directory)))


async def _demo(directory: Path) -> None:
    secret = Secret(f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}")
    with _bind_any_port() as listener:
        await _show(directory, secret, listener)


async def _show(directory: Path, secret: Secret, listener: socket.socket) -> None:
    port = int(listener.getsockname()[1])
    settings = _settings(directory, secret, port)
    configure_logs("error", [secret])
    clock = SystemClock()
    async with (
        _receiver(secret) as (hook_url, received),
        running_service(settings, clock, simulator=True, speed=SPEED) as service,
    ):
        server = HttpServer(service)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            while not server.started:  # noqa: ASYNC110  uvicorn offers no event to wait for
                await asyncio.sleep(0.02)
            _print_line(
                f"gpuherd is serving on http://127.0.0.1:{port}, with a simulated Novita (no key, no cost)."
            )
            key = admin_key(directory, None)
            environment = {"GPUHERD_URL": f"http://127.0.0.1:{port}", "GPUHERD_API_KEY": key.reveal()}
            await _rent(environment, hook_url)
            await asyncio.wait_for(_until_ready_webhook(received), WEBHOOK_LIMIT_S)
            _print_line("Everything worked: request, rental, boot, readiness, signed webhook.")
            if sys.stdout.isatty():
                server.handle_signals()
                _print_line(_what_next(environment))
                await serving
        finally:
            server.should_exit = True
            await serving


async def _rent(environment: Mapping[str, str], hook_url: str) -> None:
    """Run the same command that a user would type, with its progress."""
    words = [
        "up",
        "--name",
        "demo",
        "--gpu",
        "RTX 4090 24GB",
        "--template",
        "101",
        "--webhook-url",
        hook_url,
        "--yes",
    ]
    _print_line(f"$ gpuherd {' '.join(words)}")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gpuherd", *words, env={**os.environ, **environment}
    )
    if await process.wait() != 0:
        raise CannotStart(f"the demo rental ended with exit code {process.returncode}")


@contextlib.asynccontextmanager
async def _receiver(secret: Secret) -> AsyncIterator[tuple[str, asyncio.Queue[str]]]:
    """Listen for webhooks, check their signatures, and print them."""
    received: asyncio.Queue[str] = asyncio.Queue()
    clock = SystemClock()

    async def receive(request: web.Request) -> web.Response:
        body = await request.read()
        verify(dict(request.headers), body, secret, clock.now())
        event = json.loads(body)
        _print_line(f"  webhook {event['type']:<20} signature valid, id {request.headers['webhook-id']}")
        received.put_nowait(event["type"])
        return web.Response()

    app = web.Application()
    app.router.add_post("/hook", receive)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/hook", received
    finally:
        await runner.cleanup()


async def _until_ready_webhook(received: asyncio.Queue[str]) -> None:
    while await received.get() != "instance.ready":
        pass


def _settings(directory: Path, secret: Secret, port: int) -> Settings:
    values = {
        "GPUHERD_DATA_DIR": str(directory),
        "GPUHERD_PORT": str(port),
        "GPUHERD_ALLOW_PRIVATE_TARGETS": "127.0.0.0/8",
        "GPUHERD_FAST_POLL_INTERVAL": "0.5",
        "WEBHOOK_SECRET": secret.reveal(),
    }
    return load_settings(values, directory)


@contextlib.contextmanager
def _bind_any_port() -> Iterator[socket.socket]:
    """Bind the usual port, or any other if it is taken."""
    with contextlib.ExitStack() as stack:
        try:
            listener = stack.enter_context(bound_socket("127.0.0.1", 8080))
        except CannotStart:
            listener = stack.enter_context(bound_socket("127.0.0.1", 0))
        yield listener


def _what_next(environment: Mapping[str, str]) -> str:
    settings = " ".join(f"{name}={value}" for name, value in environment.items())
    return f"Still serving; Ctrl-C ends it. In another terminal:\n  export {settings}\n  .venv/bin/gpuherd ls"


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@local_command(
    "simulator",
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=8090,
        show_default=True,
        help="0 takes any free port.",
    ),
    click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen."),
    click.option(
        "--speed",
        type=click.FloatRange(min=0.01),
        default=1.0,
        show_default=True,
        help="Divide boot and reclaim times of the simulator by this.",
    ),
    click.option(
        "--scenario",
        default="calm",
        show_default=True,
        help="A story with troubles in it; a wrong name lists them.",
    ),
    click.option("--seed", type=int, help="Repeat the same chances."),
    json=False,
)
def simulator(output: Output, port: int, host: str, speed: float, scenario: str, seed: int | None) -> None:
    """Run a stand-alone double of Novita's API that costs nothing."""
    with exit_if_start_fails():
        asyncio.run(simulate(host, port, speed, scenario, seed))


async def simulate(host: str, port: int, speed: float, scenario: str, seed: int | None) -> None:
    """Serve a simulated Novita until a signal ends it."""
    if scenario not in scenario_names():
        known = "\n".join(f"  {name}: {story}" for name, story in scenario_names().items())
        raise CannotStart(f"there is no scenario {scenario!r}. There are:\n{known}")
    world = World(SystemClock(), random.Random(seed), speed=speed)
    apply_scenario(world, scenario)
    try:
        server = await start_simulator(world, host, port)
    except OSError as error:
        raise CannotStart(f"port {port} cannot be used: {error.strerror}") from error
    # A script waits for this line.
    sys.stdout.write(f"simulated Novita at {server.base_url} (speed {speed:g}, scenario {scenario})\n")
    sys.stdout.flush()
    try:
        await _until_signal()
    finally:
        await server.close()


async def _until_signal() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(name, stop.set)
    await stop.wait()
