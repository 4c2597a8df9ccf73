"""The command line, assembled: our commands, and those that need more than the HTTP API, handed in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Annotated

import typer

from gpuherd import __version__
from gpuherd.client.client_connection import Clock
from gpuherd.client.server_address import Address
from gpuherd.entrypoints.cli.commands import catalogue, costs, events
from gpuherd.entrypoints.cli.commands.audit import build_audit
from gpuherd.entrypoints.cli.commands.budgets import build_budgets
from gpuherd.entrypoints.cli.commands.cloud import build_cloud
from gpuherd.entrypoints.cli.commands.creates import build_creates
from gpuherd.entrypoints.cli.commands.images.prewarm import build_prewarm
from gpuherd.entrypoints.cli.commands.images.registry import build_registry
from gpuherd.entrypoints.cli.commands.images.templates import build_templates
from gpuherd.entrypoints.cli.commands.instances import (
    lease,
    logs,
    operations,
    plan,
    read,
    replace,
    up,
    why,
)
from gpuherd.entrypoints.cli.commands.jobs import build_jobs
from gpuherd.entrypoints.cli.commands.keys import build_keys
from gpuherd.entrypoints.cli.commands.orphans import build_orphans
from gpuherd.entrypoints.cli.commands.remote import access, copy, execute, run, ssh_config
from gpuherd.entrypoints.cli.commands.secrets import build_secrets
from gpuherd.entrypoints.cli.commands.volumes import build_volumes
from gpuherd.entrypoints.cli.commands.webhooks import build_webhooks
from gpuherd.entrypoints.cli.runtime import exit_codes
from gpuherd.entrypoints.cli.runtime.command_group import GpuherdGroup
from gpuherd.entrypoints.cli.runtime.session import CliContext

Command = Callable[..., None]

_COMMANDS: tuple[Command, ...] = (
    plan.plan,
    up.up,
    read.ls,
    read.show,
    read.wait,
    why.why,
    events.events,
    logs.logs,
    operations.start,
    operations.restart,
    replace.replace,
    operations.stop,
    operations.rm,
    lease.lease,
    lease.keep,
    run.run,
    access.ssh,
    copy.cp,
    costs.costs,
    costs.leftovers,
    costs.balance,
    catalogue.offers,
    catalogue.regions,
)

_EPILOG = f"""\
Settings: GPUHERD_URL (http://127.0.0.1:8080) is the server, GPUHERD_API_KEY the key; NO_COLOR is respected.
Tables on a terminal, JSON when piped or with --json; errors then are JSON on stderr too.

{exit_codes.explained()}
"""


def build_app(
    *,
    connect: Callable[[], Address],
    clock: Clock,
    rng: Random,
    serve: Command,
    simulator: Command,
    demo: Command,
    more: Mapping[str, Command] | None = None,
) -> typer.Typer:
    """Return the whole of `gpuherd`.

    `connect` is asked once by each command that needs the server; it may raise BadConfiguration. `serve`,
    `simulator`, `demo` and `more` are functions with signatures for typer: they build what entrypoints must
    not know.
    """
    app = typer.Typer(
        name="gpuherd",
        cls=GpuherdGroup,
        help="Rent GPUs, follow them until they can be used, and never pay for one that nobody knows about.",
        epilog=_EPILOG,
        no_args_is_help=True,
        # A traceback with local variables would show the API key.
        pretty_exceptions_enable=False,
        context_settings={
            "obj": CliContext(connect, clock, rng),
            "help_option_names": ["-h", "--help"],
        },
    )
    app.callback()(_top)
    for name, command in {"serve": serve, "simulator": simulator, "demo": demo, **(more or {})}.items():
        app.command(name)(command)
    for command in _COMMANDS:
        app.command()(command)
    app.command("exec")(execute.execute)
    app.command("ssh-config")(ssh_config.ssh_config)
    app.command("open")(access.open_page)
    app.add_typer(build_jobs(), name="jobs")
    app.add_typer(build_orphans(), name="orphans")
    app.add_typer(build_creates(), name="creates")
    app.add_typer(build_cloud(), name="cloud")
    app.add_typer(build_webhooks(), name="webhooks")
    app.add_typer(build_keys(), name="keys")
    app.add_typer(build_secrets(), name="secrets")
    app.add_typer(build_budgets(), name="budgets")
    app.add_typer(build_volumes(), name="volumes")
    app.add_typer(build_templates(), name="templates")
    app.add_typer(build_registry(), name="registry")
    app.add_typer(build_prewarm(), name="prewarm")
    app.add_typer(build_audit(), name="audit")
    return app


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gpuherd {__version__}")
        raise typer.Exit


def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    pass
