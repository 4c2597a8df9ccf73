"""`gpuherd`: parse the command line, and build what `serve` and `mcp` need."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import click

from gpuherd.entrypoints.cli.cli_app import build_cli
from gpuherd.entrypoints.cli.cli_errors import ExitCode
from gpuherd.entrypoints.cli.cli_output import Output
from gpuherd.entrypoints.cli.command_runner import command_context, local_command


@local_command(
    "serve",
    click.option("--simulator", is_flag=True, help="Use a simulated Novita: no key, no cost."),
    click.option(
        "--simulator-speed",
        type=click.FloatRange(min=0.01),
        default=1.0,
        show_default=True,
        help="Divide boot and reclaim times of the simulator by this.",
    ),
    click.option(
        "--role",
        type=click.Choice(["all", "api", "worker"]),
        default="all",
        show_default=True,
        help="What this process does; api and worker need PostgreSQL.",
    ),
    json=False,
)
def serve(output: Output, simulator: bool, simulator_speed: float, role: str) -> None:
    """Run the service: API, workers and observer in one process, or one of several replicas."""
    # The service loads everything, which the commands of a user do not need.
    from gpuherd.ops.startup import exit_if_start_fails, usable_settings  # noqa: PLC0415

    settings = usable_settings(needs_cloud=not simulator)
    if simulator:
        settings = settings.for_simulator()
    # After the settings: a mistake in them is reported at once.
    from gpuherd.bootstrap.serve import run_serve  # noqa: PLC0415

    with exit_if_start_fails():
        run_serve(settings, simulator=simulator, speed=simulator_speed, role=role)


@local_command(
    "mcp",
    click.option(
        "--http", type=click.IntRange(1, 65535), help="Serve over HTTP on this port; each call brings a key."
    ),
    click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen, with --http."),
    click.option("--read-only", is_flag=True, help="Only tools that look: nothing can be rented or ended."),
    json=False,
)
def mcp(output: Output, http: int | None, host: str, read_only: bool) -> None:
    """Serve agents over the Model Context Protocol, on the standard streams or over HTTP."""
    if importlib.util.find_spec("mcp") is None:
        sys.stderr.write("gpuherd mcp needs an extra that is not installed: pip install 'gpuherd[mcp]'\n")
        raise SystemExit(int(ExitCode.CONFIGURATION))
    # An extra, and the settings.
    from gpuherd.client.server_address import address_of  # noqa: PLC0415
    from gpuherd.entrypoints.mcp.mcp_server import run_http, run_stdio  # noqa: PLC0415
    from gpuherd.ops.startup import exit_if_start_fails, usable_settings  # noqa: PLC0415

    settings = usable_settings()
    terms: Any = {"read_only": read_only, "ask_above_usd": settings.mcp_ask_above_usd}
    with exit_if_start_fails():
        server = command_context().find_server()
        address = address_of(server.url, server.key)
        if http is None:
            run_stdio(address, **terms)
        else:
            run_http(address, host, http, **terms)


def main() -> None:
    """The console script."""
    build_cli(serve, mcp)(prog_name="gpuherd")


if __name__ == "__main__":
    main()
