"""The command line, assembled: our commands, and those that need more than the HTTP API, handed in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from gpuherd import __version__
from gpuherd.clock import Chance, Clock
from gpuherd.entrypoints.cli import catalogue, events, exit_codes, instances, operations, plan, visit, why
from gpuherd.entrypoints.cli.audit import build_audit
from gpuherd.entrypoints.cli.connection import Connection
from gpuherd.entrypoints.cli.helpful import Helpful
from gpuherd.entrypoints.cli.jobs import build_jobs
from gpuherd.entrypoints.cli.keys import build_keys
from gpuherd.entrypoints.cli.orphans import build_orphans
from gpuherd.entrypoints.cli.session import Surroundings
from gpuherd.entrypoints.cli.webhooks import build_webhooks

Command = Callable[..., None]

_COMMANDS: tuple[Command, ...] = (
    plan.plan,
    instances.up,
    instances.ls,
    instances.show,
    instances.wait,
    why.why,
    events.events,
    operations.start,
    operations.stop,
    operations.rm,
    visit.ssh,
    catalogue.offers,
    catalogue.templates,
    catalogue.regions,
)

_EPILOG = f"""\
Settings: GPUHERD_URL (http://127.0.0.1:8080) is the server, GPUHERD_API_KEY the key; NO_COLOR is respected.
Tables on a terminal, JSON when piped or with --json; errors then are JSON on stderr too.

{exit_codes.explained()}
"""


def build_app(
    *,
    connect: Callable[[], Connection],
    clock: Clock,
    chance: Chance,
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
        cls=Helpful,
        help="Rent GPUs, follow them until they can be used, and never pay for one that nobody knows about.",
        epilog=_EPILOG,
        no_args_is_help=True,
        # A traceback with local variables would show the API key.
        pretty_exceptions_enable=False,
        context_settings={
            "obj": Surroundings(connect, clock, chance),
            "help_option_names": ["-h", "--help"],
        },
    )
    app.callback()(_top)
    for name, command in {"serve": serve, "simulator": simulator, "demo": demo, **(more or {})}.items():
        app.command(name)(command)
    for command in _COMMANDS:
        app.command()(command)
    app.command("open")(visit.open_page)
    app.add_typer(build_jobs(), name="jobs")
    app.add_typer(build_orphans(), name="orphans")
    app.add_typer(build_webhooks(), name="webhooks")
    app.add_typer(build_keys(), name="keys")
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
