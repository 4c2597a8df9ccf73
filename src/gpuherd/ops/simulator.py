"""`gpuherd simulator`: a stand-alone Novita that costs nothing."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys

import click

from gpuherd.adapters.system_clock import SystemClock
from gpuherd.bootstrap.key_files import CannotStart
from gpuherd.entrypoints.cli.cli_output import Output
from gpuherd.entrypoints.cli.command_runner import local_command
from gpuherd.ops.startup import exit_if_start_fails
from gpuherd.simulator.simulator_app import start_simulator
from gpuherd.simulator.simulator_control import apply_scenario, scenario_names
from gpuherd.simulator.world import World


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
    # The one line that a script waits for.
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
